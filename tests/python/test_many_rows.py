# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""64 query rows (m x group) and more, which on Hopper have kernels of their own: every option, and
a row's bits beside other rows."""

from itertools import product

import numpy as np
import pytest

from backends import BACKENDS, check_call, run
from cases import BF16, E4M3, E5M2, F16, I8, make_case
from test_nonfinite import check_spoilt

# Rows of the longest: 64, 128, 264 (three tiles of 128). The last sequences: lengths round a tile
# of 64 keys, no rows, more rows than keys.
ROWS = {8: (2, 8), 16: (1, 8), 33: (2, 8)}
ENDS = ((1, 64), (3, 65), (0, 5), (7, 63), (5, 2), (2, 0), (1, 129))
OPTIONS = {
    "plain": {},
    "not-causal": dict(causal=False),
    "window": dict(window_left=70, sinks=True),
    "window-0": dict(window_left=0),
    "tree": dict(mask="tree"),
    "random-packed": dict(mask="random-packed", window_left=40),
    "softcap": dict(softcap=2.0),
    "alibi": dict(alibi=True, sinks=True, lse_base="2"),
    "tree-alibi-window": dict(mask="tree-packed", alibi=True, window_left=100, softcap=9.0),
    "negative-scale": dict(softmax_scale=-0.1, k_scale="heads", v_scale="heads"),
    "splits": dict(num_splits=4),
    "splits-window": dict(num_splits=7, window_left=100),
    "invariant": dict(batch_invariant=True),
    "hnd-csr": dict(layout="HND", table="csr", page=8, extra_rows=3),
}


CACHES = {"same": {}, "e4m3": dict(k_dtype=E4M3), "int8": dict(k_dtype=I8, k_scale="heads")}


def lens(m, n=700):
    return ((m, n), (m - 1, m + 20), (m, m), *((min(a, m), b) for a, b in ENDS))


def check_options(backend, name, m, dim, page=16, cache="same"):
    options = dict(page=page) | CACHES[cache] | OPTIONS[name]
    q_dtype = F16 if m == 16 else BF16
    rng = np.random.default_rng(m)
    args = make_case(
        rng, lens=lens(m), heads=ROWS[m], head_dim=dim, q_dtype=q_dtype, hint=True, **options
    )
    check_call(backend, args)


# Tiles of rows are CUDA's: fewer shapes will do on the CPU.
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("m", [8, 33])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(numpy_backend, name, m, dim):
    check_options(numpy_backend, name, m, dim)


@pytest.mark.gpu
@pytest.mark.parametrize("page, cache", [*product([1, 16, 64], ["same", "e4m3"]), (16, "int8")])
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("name", OPTIONS)
def test_options_on_cuda(name, m, dim, page, cache):
    check_options(BACKENDS["torch-cuda"], name, m, dim, page, cache)


@pytest.mark.parametrize("group", [64, 100, 128])
def test_groups(device_backend, group):
    args = make_case(
        np.random.default_rng(group),
        lens=((1, 300), (2, 65), (1, 1), (1, 0)),
        heads=(2, group),
        head_dim=128,
        q_dtype=BF16,
        batch_invariant=group == 100,
    )
    check_call(device_backend, args)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("mask", [{}, dict(window_left=30), dict(mask="tree-packed")], ids=str)
@pytest.mark.parametrize("cache", [None, E4M3, E5M2], ids=str)
def test_what_is_not_finite_stays_in_its_column(device_backend, cache, mask, m, dim):
    if device_backend.device == "cpu" and (dim == 256 or m == 16 or cache):
        pytest.skip("tiles of rows are CUDA's: fewer shapes will do")
    rng = np.random.default_rng(dim)
    shape = dict(lens=lens(m, 300), heads=ROWS[m], head_dim=dim, q_dtype=BF16, k_dtype=cache)
    args = make_case(rng, **shape, **mask)
    check_spoilt(device_backend, rng, args, 1, 60)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("cache", CACHES)
def test_a_row_does_not_depend_on_those_beside_it(device_backend, cache, dim):
    """Sharp logits in one row move its reference, and no other's."""
    shape = dict(lens=((16, 900), (16, 64)), heads=(1, 8), head_dim=dim, hint=True)
    args = make_case(np.random.default_rng(5), **shape, **CACHES[cache])
    before = run(device_backend, args)
    rows = [0, 7, 20]
    args["q"][rows] *= 30
    after = check_call(device_backend, args)
    others = np.setdiff1d(np.arange(len(args["q"])), rows)
    assert after.rows(others).same_bits(before.rows(others))
