# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Forced splits of the keys: right for every count, more splits than keys included."""

import numpy as np
import pytest

from backends import check_call, run
from cases import BF16, F16, F32, Case, make_case

COUNTS = (1, 2, 7, 100, 1000)
LENS = ((4, 1500), (1, 1), (3, 700), (2, 0), (0, 9), (40, 65), (1, 2049))
OPTIONS = {
    "plain": {},
    "f32": dict(q_dtype=F32, heads=(2, 1)),
    "window": dict(window_left=70, sinks=True),  # leaves most splits empty
    "not-causal": dict(causal=False, q_dtype=BF16),
    "alibi-softcap": dict(alibi=True, softcap=3.0),
    "rope": dict(rope=True, q_dtype=BF16),
    "base-2": dict(lse_base="2", sinks=True),
    "tree": dict(mask="tree-packed"),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", OPTIONS)
def test_counts(device_backend, name, count):
    options = dict(dict(lens=LENS, heads=(2, 3)), **OPTIONS[name])
    if not device_backend.takes(Case("", options)):
        return
    check_call(device_backend, make_case(np.random.default_rng(61), **options), num_splits=count)


@pytest.mark.parametrize("count", (None, *COUNTS))
def test_each_row_keeps_its_own_sequence(device_backend, count):
    """Uniform weights and V = b + 1: every row of sequence b is exactly b + 1."""
    lens = ((4, 4096), (4, 4096), (1, 1), (9, 1030))
    args = make_case(np.random.default_rng(0), lens=lens, heads=(2, 4), poisoned=False, page=64)
    args["k_cache"][...] = 0
    for b in range(4):
        args["v_cache"][args["block_table"][b, : -(-lens[b][1] // 64)]] = b + 1
    out = run(device_backend, args, num_splits=count).out.astype(float)
    want = np.repeat(np.arange(1, 5), [4, 4, 1, 9])
    assert (out == want[:, None, None]).all()


@pytest.mark.parametrize("count", (None, *COUNTS))
def test_sink_counts_once(device_backend, count):
    args = make_case(np.random.default_rng(0), lens=((1, 4096), (4, 4096)), page=64)
    args["q"][...] = 0
    args["v_cache"][...] = 1
    args["k_cache"][...] = 1
    sinks = np.log(np.arange(1, 7) * 1024).astype(F32)
    result = run(device_backend, args, num_splits=count, sinks=sinks)
    seen = np.array([4096, 4093, 4094, 4095, 4096])[:, None]
    want = seen / (seen + np.arange(1, 7) * 1024)
    assert np.abs(result.out.astype(float) - want[..., None]).max() < 1e-3
    assert np.abs(result.lse - np.log(seen + np.arange(1, 7) * 1024)).max() < 1e-3


@pytest.mark.parametrize("splits", (1, 2, 3, 8))
def test_every_length_round_the_tiles(device_backend, splits):
    """Lengths 1 to 600 in one batch a split count: no boundary loses or repeats a key (out =
    mean)."""
    lengths = [*range(1, 600, 7), *(k + d for k in (64, 128, 256, 512) for d in (-1, 0, 1))]
    args = make_case(
        np.random.default_rng(0), lens=[(1, n) for n in lengths], heads=(1, 2), head_dim=8
    )
    args["q"][...] = 0
    result = check_call(device_backend, args, num_splits=splits)
    assert np.abs(result.lse - np.log(lengths)[:, None]).max() < 1e-5 * 7


@pytest.mark.parametrize("count", [0, -1, -7])
def test_counts_below_one(backend, count):
    args = make_case(np.random.default_rng(0), lens=((2, 20),))
    with pytest.raises(ValueError, match="num_splits"):
        run(backend, args, num_splits=count)


def test_the_type_of_the_count(backend):
    args = make_case(np.random.default_rng(0), lens=((2, 20),))
    for wrong in (2.5, "2", [2]):
        with pytest.raises((TypeError, ValueError), match="num_splits"):
            run(backend, args, num_splits=wrong)
    assert run(backend, args, num_splits=np.int64(2)).out.dtype == F16


def test_far_more_splits_than_keys(numpy_backend):
    args = make_case(np.random.default_rng(0), lens=((2, 20), (1, 300), (1, 0)))
    for count in (10**4, 10**6, 2**31 - 1):
        check_call(numpy_backend, args, num_splits=count)
