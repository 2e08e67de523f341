# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The bench's lists of cases."""

import itertools

import pytest

from bench.cases import table
from bench.published import published_us
from bench.sweep import sweep


def test_table_is_the_28_rows():
    cases = list(table())
    assert len(cases) == len({c.name for c in cases}) == 28
    assert {c.rows for c in cases} == {8, 32, 64, 128}
    assert sum(c.skew for c in cases) == 4
    assert all(published_us(c) for c in cases)


PROPERTIES = {
    "kv_dtype": {"bf16", "e4m3"},
    "q": {1, 2, 4, 8, 16},
    "group": {1, 4, 8, 16},
    "d": {64, 128, 256},
    "page": {1, 16, 64},
    "layout": {"NHD", "HND"},
    "skew": {False, True},
}


def test_sweep_covers_what_it_names():
    cases = list(sweep())
    assert len(cases) == len({c.name for c in cases}) >= 120
    for name, values in PROPERTIES.items():
        assert {getattr(c, name) for c in cases} == values
    assert {1, 256} <= {c.batch for c in cases}
    assert {512, 131072} <= {c.kv for c in cases}


def property_of(case, name):
    return (case.batch, case.kv, case.skew) if name == "shape" else getattr(case, name)


@pytest.mark.parametrize("pair", list(itertools.combinations([*PROPERTIES, "shape"], 2)))
def test_sweep_holds_every_pair_of_values(pair):
    if set(pair) == {"skew", "shape"}:
        return  # a shape says whether it is skewed
    values = [[property_of(c, name) for c in list(sweep())[:120]] for name in pair]
    assert len(set(zip(*values, strict=True))) == len(set(values[0])) * len(set(values[1]))


def test_sweep_fits_a_gpu():
    for c in sweep():
        size = 2 if c.kv_dtype == "bf16" else 1
        assert 8e6 < c.batch * c.kv * c.hkv * c.d * 2 * size < 5e9
