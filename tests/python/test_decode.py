# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The standing case list on every backend, against the float64 reference."""

import numpy as np
import pytest

import backends
from backends import BACKENDS, check_call, run, written
from cases import CASES, F16, make_case
from reference import Pages

ALL = [
    pytest.param(
        name,
        case,
        id=f"{name}-{case.name}",
        marks=[pytest.mark.gpu] if name in backends.GPU else [],
    )
    for name, b in BACKENDS.items()
    for case in CASES
    if b.takes(case) and name != "jax-cpu"  # test_libraries_agree_bit_for_bit
]


@pytest.mark.parametrize("name, case", ALL)
def test_case(name, case):
    backend = BACKENDS[name]
    args = case.build()
    first = check_call(backend, args)
    again = run(backend, args)
    rows = written(args)
    assert again.rows(rows).same_bits(first.rows(rows)), "the same call gives the same bits"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_libraries_agree_bit_for_bit(case):
    """On one device the library that arrays came from changes nothing."""
    args = case.build()
    rows = written(args)
    want = run(BACKENDS["numpy"], args).rows(rows)
    for name in ("torch-cpu", "jax-cpu"):
        assert run(BACKENDS[name], args).rows(rows).same_bits(want), name


def test_empty_batch(backend):
    for options in (dict(lens=()), dict(lens=((0, 4), (0, 0))), dict(lens=(), table="csr")):
        args = make_case(np.random.default_rng(0), **options)
        result = check_call(backend, args)
        assert result.out.shape[0] == 0 and result.lse.shape[0] == 0


def test_empty_batch_of_four_dimensions(backend):
    args = make_case(np.random.default_rng(0), lens=(), ragged=False)
    args["q"] = np.zeros((0, 3, 6, 64), F16)
    result = run(backend, args)
    assert result.out.shape == (0, 3, 6, 64) and result.lse.shape == (0, 6)


def test_four_and_three_dimensions_agree(backend):
    args = make_case(np.random.default_rng(5), lens=((4, 30), (4, 2), (4, 17)), ragged=False)
    four = check_call(backend, args)
    flat = dict(
        args, q=args["q"].reshape(12, 6, 64), cu_seqlens_q=np.array([0, 4, 8, 12], np.int32)
    )
    three = check_call(backend, flat, max_seqlen_q=4)
    assert four.out.shape == (3, 4, 6, 64) and three.rows(slice(None)).same_bits(
        four.rows(slice(None))
    )


def test_long_sequence(device_backend):
    """Far more keys than any tile, one row and many, short sequences beside it."""
    lens = ((1, 9000), (4, 4097), (1, 1), (2, 0), (0, 77))
    check_call(device_backend, make_case(np.random.default_rng(2), lens=lens, heads=(2, 4)))


def test_very_negative_and_very_positive_logits(device_backend):
    """No finite stand-in for minus infinity: raw logits of +-256000 still give a softmax."""
    args = make_case(np.random.default_rng(0), lens=((1, 4), (3, 1)), head_dim=128)
    for sign in (-1, 1):
        args["q"][...] = 100
        args["k_cache"][...] = 20 * sign
        result = run(device_backend, args)
        assert np.abs(result.lse[0] - (sign * 256000 / 128**0.5 + np.log(4))).max() < 0.01
        assert np.isfinite(result.out.astype(np.float32)).all()


def test_visible_nan_and_inf_are_not_hidden(device_backend):
    """Poison that a row does see must show: K NaN -> all NaN, V Inf -> Inf in its column."""
    args = make_case(np.random.default_rng(0), lens=((2, 5), (2, 5)), page=8, heads=(2, 2))
    first, second = args["block_table"][:2, 0]
    args["k_cache"][first, 0, 0, 3] = np.nan
    args["v_cache"][second, 1, 1, 7] = np.inf
    result = run(device_backend, args)
    assert np.isnan(result.out[:2, :2].astype(float)).all() and np.isnan(result.lse[:2, :2]).all()
    assert np.isfinite(result.out[:2, 2:].astype(float)).all()
    assert np.isposinf(result.out[2:, 2:, 7].astype(float)).all()
    others = np.delete(result.out[2:, 2:], 7, axis=-1)
    assert np.isfinite(others.astype(float)).all() and np.isfinite(result.lse[2:]).all()


def test_nothing_but_empty_arrays(backend):
    """No pages at all, no columns in the table: every row is empty, and nothing is read."""
    args = make_case(np.random.default_rng(0), lens=((2, 0), (1, 0)), extra=0)
    assert args["block_table"].shape == (2, 0)
    for name in ("k_cache", "v_cache"):
        args[name] = args[name][:0]
    for sinks in (None, np.zeros(6, np.float32)):
        result = run(backend, args, sinks=sinks)
        assert (result.out == 0).all()
        assert (result.lse == (-np.inf if sinks is None else 0)).all()
    csr = Pages(np.zeros(3, np.int32), np.zeros(0, np.int32))
    assert (run(backend, args, block_table=csr).out == 0).all()


def test_a_large_group_with_many_rows(device_backend):
    """300 rows x group 128 of one KV head."""
    args = make_case(
        np.random.default_rng(0), lens=((300, 310), (1, 5)), heads=(1, 128), head_dim=8
    )
    check_call(device_backend, args)


def test_numpy_numbers_as_options(backend):
    """Options may be NumPy scalars."""
    args = make_case(np.random.default_rng(0), lens=((3, 37), (2, 20)))
    want = run(backend, args, window_left=5, softcap=2.0, softmax_scale=0.25, max_seqlen_q=3)
    got = run(
        backend,
        args,
        window_left=np.int64(5),
        softcap=np.float32(2.0),
        softmax_scale=np.float64(0.25),
        max_seqlen_q=np.int32(3),
        causal=np.bool_(True),
    )
    assert got.same_bits(want)


def test_extreme_sinks(device_backend):
    """A sink of -inf is none at all; a very large one takes all the weight."""
    args = make_case(np.random.default_rng(0), lens=((3, 37), (2, 1), (1, 0)))
    plain = run(device_backend, args)
    none = check_call(device_backend, args, sinks=np.full(6, -np.inf, np.float32))
    assert np.abs(none.out.astype(float) - plain.out.astype(float)).max() < 1e-3
    assert np.isneginf(none.lse[-1]).all() and (none.out[-1] == 0).all()
    for splits in (None, 3):
        for sink in (-1e30, -200.0, 300.0, 1e30):
            sinks = np.full(6, sink, np.float32)
            check_call(device_backend, args, sinks=sinks, num_splits=splits)


def test_positions_far_away(device_backend):
    """Positions beyond float32's integers: differences of draft positions stay exact."""
    mask = np.tri(4, dtype=bool)
    args = make_case(np.random.default_rng(0), lens=((4, 4), (4, 4)), index_dtype=np.int64)
    args["draft_mask"] = np.concatenate([mask, mask])
    near = np.array([0, 1, 1, 3, 2, 3, 4, 4])
    slopes = np.linspace(0.1, 1.5, 6).astype(np.float32)
    want = check_call(device_backend, args, positions=near, alibi_slopes=slopes, window_left=2)
    for far in (2**24 + 1, 2**30 + 1):
        got = run(device_backend, args, positions=near + far, alibi_slopes=slopes, window_left=2)
        assert got.same_bits(want), far


def test_infinite_sinks(device_backend):
    """All the weight is the sink's: out 0, LSE inf; the other heads are as without."""
    for splits in (1, 3, None):
        for dim in (64, 128):
            args = make_case(
                np.random.default_rng(5), lens=((2, 200), (1, 0)), sinks=True, head_dim=dim
            )
            want = run(device_backend, args, num_splits=splits)
            args["sinks"][1] = np.inf
            got = run(device_backend, args, num_splits=splits)
            assert (got.out[:, 1] == 0).all() and (got.lse[:, 1] == np.inf).all()
            others = np.arange(len(args["sinks"])) != 1
            assert backends.bits_equal(got.out[:, others], want.out[:, others])
            assert backends.bits_equal(got.lse[:, others], want.lse[:, others])
