# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of rows and heads: every row in its place, none left out
(B02, B04, B05, B18, B32, B40)."""

import numpy as np
import pytest

import pagedecode
from backends import convert
from probes import (
    TOLERANCE,
    call,
    close,
    csr,
    is_cuda,
    normal,
    offsets,
    pack,
    q_types,
    refused,
    same_bits,
    slice_call,
    uniform,
)
from reference import decode_reference


@pytest.mark.parametrize("splits", (None, 1, 2, 7))
def test_b02_rows_land_on_their_own_sequence(backend, splits):
    for dtype in q_types(backend):
        probe = uniform(
            [4096, 4096, 1], [4, 4, 1], group=4, page=16, dtype=dtype, values=lambda b: b + 1.0
        )
        out, lse = call(backend, probe.args, num_splits=splits)
        want = np.repeat([1.0, 2.0, 3.0], [4, 4, 1])[:, None, None]
        close(out, np.broadcast_to(want, out.shape), 1e-6)
        probe.check(out, lse) if dtype != "float32" else close(lse, probe.want()[1], 1e-3)


@pytest.mark.parametrize("splits", (None, 1, 2, 7))
@pytest.mark.parametrize("pad", ("heads", "dim", "rows", "none"))
def test_b02_strided_out_of_either_rank(writable_backend, splits, pad):
    backend = writable_backend
    probe = uniform([4096, 600, 5], [4, 4, 4], group=4, page=16, values=lambda b: b + 1.0)
    want = np.repeat([1.0, 2.0, 3.0], 4)[:, None, None]
    for rank in (3, 4):
        args = dict(probe.args)
        whole = backend.to(np.full((26, 10, 80), 123, np.float16))
        view = {
            "heads": lambda a: a[2:14, :8, :64],
            "dim": lambda a: a[2:14, 1:9, 8:72],
            "rows": lambda a: a[2:26:2, 1:9, :64],
            "none": lambda a: a[:12].reshape(-1)[640 : 640 + 12 * 512].reshape(12, 8, 64),
        }[pad](whole)
        if rank == 4:
            args["q"] = args["q"].reshape(3, 4, 8, 64)
            args["cu_seqlens_q"] = None
            big = backend.to(np.full((5, 6, 10, 80), 123, np.float16))
            whole, view = big, big[1:4, 1:5, 1:9, :64]
        lse_whole = backend.to(np.full((14, 10), 7, np.float32))
        lse = (
            lse_whole[1:13, 1:9] if pad == "heads" else lse_whole.reshape(-1)[8:104].reshape(12, 8)
        )
        pagedecode.decode(**convert(backend, args), out=view, lse=lse, num_splits=splits)
        got = backend.back(view).astype(np.float32).reshape(12, 8, 64)
        np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))
        close(backend.back(lse), probe.want()[1], 1e-3)
        everything = backend.back(whole).astype(np.float32)
        assert (everything == 123).sum() == everything.size - got.size
        assert (backend.back(lse_whole) == 7).sum() == 140 - 96


def test_b02_rows_past_the_last_sequence_are_not_written(writable_backend):
    backend = writable_backend
    probe = uniform([5, 7], [2, 3])
    args = {**probe.args, "q": np.zeros((9, 4, 64), np.float16)}
    out, lse = call(backend, args)
    probe.check(out[:5], lse[:5])
    assert (out[5:].astype(np.float32) == 123).all() and (lse[5:] == 123).all()


@pytest.mark.parametrize("splits", (None, 1, 4))
@pytest.mark.parametrize("causal", (True, False))
def test_b04_empty_sequences_are_written(backend, splits, causal):
    probe = uniform([0, 5, 0, 1], [3, 3, 3, 3])
    options = {"num_splits": splits, "causal": causal}
    out, lse = call(backend, probe.args, fill=np.nan, **options)
    probe.check(out, lse, causal=causal)
    for rows in (slice(0, 3), slice(6, 9)):
        np.testing.assert_array_equal(out[rows].astype(np.float32), 0)
        assert np.isneginf(lse[rows]).all()
    for b in (1, 3):
        one = call(backend, slice_call(probe.args, b), **options)
        rows = slice(3 * b, 3 * b + 3)
        close(out[rows], one[0].astype(np.float64), 2e-3)
        close(lse[rows], one[1], 1e-3)


@pytest.mark.parametrize(
    "options",
    [{}, {"causal": False}, {"window_left": 2}, {"softcap": 1.0}, {"num_splits": 5},
     {"batch_invariant": True}, {"draft_mask": np.ones((7, 4), bool), "max_seqlen_q": 4},
     {"alibi_slopes": np.ones(4, np.float32)}, {"rope": pagedecode.Rope()}, {"lse_base": "2"}],
    ids=lambda o: next(iter(o), "plain"),
)  # fmt: skip
def test_b04_all_sequences_empty(backend, options):
    probe = uniform([0, 0, 0], [1, 4, 2])
    for args in (probe.args, csr(probe.args, 4)):
        out, lse = call(backend, args, fill=np.nan, **options)
        np.testing.assert_array_equal(out.astype(np.float32), 0)
        assert np.isneginf(lse).all()
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    out, lse = call(backend, probe.args, fill=np.nan, sinks=sinks, **options)
    np.testing.assert_array_equal(out.astype(np.float32), 0)
    unit = np.log(2) if options.get("lse_base") == "2" else 1
    close(lse, np.tile(sinks / unit, (7, 1)), 1e-3)


@pytest.mark.parametrize(
    "options",
    [{}, {"softcap": 5.0}, {"num_splits": 1}, {"num_splits": 3}, {"window_left": 8},
     {"batch_invariant": True}],
    ids=lambda o: str(o),
)  # fmt: skip
def test_b05_rows_that_see_nothing(backend, options):
    probe = uniform([2, 9, 0], [5, 2, 3])
    out, lse = call(backend, probe.args, fill=np.nan, **options)
    probe.check(out, lse)
    assert np.isneginf(lse[:3]).all()
    close(lse[3], np.zeros(4), 1e-3)
    close(lse[4], np.full(4, 0.693147), 1e-3)
    # The same rows through a mask: all-false rows 0 to 2.
    mask = np.zeros((10, 5), bool)
    mask[3, 3] = mask[4, 3:5] = True
    mask[5, 0] = mask[6, :2] = True
    through = call(backend, probe.args, fill=np.nan, draft_mask=mask, max_seqlen_q=5, **options)
    probe.check(*through)


def test_b05_an_all_false_mask_row_with_sinks(backend):
    probe = uniform([6, 6], [3, 3], values=lambda b: 1.0)
    args = {**probe.args, "seq_lens": np.array([3, 6], np.int32)}
    mask = np.zeros((6, 3), bool)
    sinks = np.array([0.0, 1.0, -3.0, 2.0], np.float32)
    out, lse = call(backend, args, draft_mask=mask, sinks=sinks)
    np.testing.assert_array_equal(out[:3].astype(np.float32), 0)
    close(lse[:3], np.tile(sinks, (3, 1)), 1e-3)
    close(lse[3:], np.tile(np.log(3 + np.exp(sinks)), (3, 1)), 1e-3)


GROUPS = (1, 2, 3, 5, 6, 7, 8, 12, 16, 64, 128)


@pytest.mark.parametrize("group", GROUPS)
def test_b18_query_head_i_uses_kv_head_i_over_group(backend, group):
    heads = 2 if group > 16 else 3
    vals = [
        np.broadcast_to(np.arange(heads, dtype=np.float16)[None, :, None], (n, heads, 64)).copy()
        for n in (5, 37)
    ]
    packed = pack([np.ones_like(v) for v in vals], vals)
    for m in (1, 4):
        q = np.zeros((2 * m, heads * group, 64), np.float16)
        for splits in (None, 3):
            out, _ = call(backend, packed, q=q, cu_seqlens_q=offsets([m, m]), num_splits=splits)
            want = (np.arange(heads * group) // group)[None, :, None]
            np.testing.assert_array_equal(out, np.broadcast_to(want, out.shape))


@pytest.mark.parametrize("group", GROUPS)
def test_b18_random_data(backend, group):
    args = normal([37, 5], [1, 4], heads=2, group=group)
    want = decode_reference(**args)
    for splits in (None, 2):
        out, lse = call(backend, args, num_splits=splits)
        close(out, want[0], 2e-3, 4.0)
        close(lse, want[1], 1e-3)


@pytest.mark.parametrize("heads", ((33, 2), (3, 2), (1, 2), (2, 4), (129, 1), (258, 2)))
def test_b18_other_head_counts_are_refused(backend, heads):
    args = normal([5], [1], heads=heads[1], group=1)
    with refused("q", "k_cache"):
        call(backend, args, q=np.zeros((1, heads[0], 64), np.float16))


@pytest.mark.parametrize(
    "dim", (8, 16, 24, 40, 64, 72, 80, 96, 112, 120, 128, 136, 160, 192, 248, 256)
)
def test_b32_every_head_dim_is_exact(backend, dim):
    for dtype in q_types(backend):
        args = normal([5, 37], [2, 1], dim=dim, dtype=dtype)
        want = decode_reference(**args)
        for splits in (None, 3):
            out, lse = call(backend, args, fill=np.nan, num_splits=splits)
            close(out, want[0], TOLERANCE[dtype], 4.0)
            close(lse, want[1], 1e-4 if dtype == "float32" else 1e-3)
        explicit = call(backend, args, softmax_scale=dim**-0.5)
        assert same_bits(explicit, call(backend, args))


@pytest.mark.parametrize("dim", (8, 40, 80, 96, 128, 192))
def test_b32_nan_after_each_row_is_never_read(writable_backend, dim):
    backend = writable_backend
    args = normal([5, 37], [2, 1], dim=dim)
    padded = dict(convert(backend, args))
    for name in ("q", "k_cache", "v_cache"):
        wide = np.full((*args[name].shape[:-1], dim + 16), np.nan, np.float16)
        wide[..., :dim] = args[name]
        padded[name] = backend.to(wide)[..., :dim]
    assert same_bits(call(backend, padded), call(backend, args))


@pytest.mark.parametrize("dim", (65, 68, 4, 257, 264, 320, 512, 576))
def test_b32_other_head_dims_are_refused(backend, dim):
    args = normal([5], [1], dim=dim)
    with refused("q", "head", "k_cache"):
        call(backend, args)


def test_b32_unequal_dims_are_refused(backend):
    args, other = normal([5], [1], dim=128), normal([5], [1], dim=64)
    with refused("v_cache"):
        call(backend, {**args, "v_cache": other["v_cache"]})
    with refused("k_cache", "q"):
        call(backend, {**args, "q": other["q"]})


@pytest.mark.parametrize("heads", (8, 3))
def test_b40_batch_of_zero(backend, heads):
    for pool in (3, 0):
        cache = np.zeros((pool, 16, heads, 64), np.float16)
        for table in (np.zeros((0, 3), np.int32), np.zeros((0, 0), np.int64)):
            args = dict(
                k_cache=cache,
                v_cache=cache.copy(),
                q=np.zeros((0, heads, 64), np.float16),
                block_table=table,
                seq_lens=np.zeros(0, np.int32),
                cu_seqlens_q=np.zeros(1, np.int32),
            )
            for extra in ({}, {"num_splits": 3}, {"batch_invariant": True}, {"max_seqlen_q": 4}):
                out, lse = call(backend, args, **extra)
                assert out.shape == (0, heads, 64) and lse.shape == (0, heads)
            four = {**args, "q": np.zeros((0, 4, heads, 64), np.float16), "cu_seqlens_q": None}
            out, lse = call(backend, four)
            assert out.shape == (0, 4, heads, 64) and lse.shape == (0, heads)


def test_b40_four_dimensional_query_of_no_rows(backend):
    args = normal([5, 3], [0, 0])
    out, lse = call(
        backend, {**args, "q": np.zeros((2, 0, 4, 64), np.float16), "cu_seqlens_q": None}
    )
    assert out.shape == (2, 0, 4, 64) and lse.shape == (0, 4)


@pytest.mark.parametrize("lengths", ([0, 3, 0, 5], [4, 3, 4, 5]))
def test_b40_zero_query_sequences_change_nothing(backend, lengths):
    args = normal(lengths, [0, 1, 0, 1], heads=3, group=3)
    out, lse = call(backend, args, batch_invariant=True)
    for row, b in enumerate((1, 3)):
        one = call(backend, slice_call(args, b), batch_invariant=True)
        assert same_bits((out[row : row + 1], lse[row : row + 1]), one)
    want = decode_reference(**args)
    for options in ({}, {"num_splits": 2}, {"window_left": 1}):
        want = decode_reference(**args, window_left=options.get("window_left", -1))
        out, lse = call(backend, args, **options)
        close(out, want[0], 2e-3, 4.0)
        close(lse, want[1], 1e-3)


def test_b40_table_of_width_zero_and_an_empty_pool(backend):
    cache = np.zeros((0, 16, 2, 64), np.float16)
    args = dict(
        q=np.zeros((2, 4, 64), np.float16),
        k_cache=cache,
        v_cache=cache,
        block_table=np.zeros((2, 0), np.int32),
        seq_lens=np.zeros(2, np.int32),
        cu_seqlens_q=offsets([1, 1]),
    )
    out, lse = call(backend, args)
    assert (out == 0).all() and np.isneginf(lse).all()
    if not is_cuda(backend):  # on CUDA lengths are clamped to what the table holds
        with refused("seq_lens"):
            call(backend, {**args, "seq_lens": np.array([0, 1], np.int32)})


def test_b40_other_functions_with_nothing_to_do(writable_backend):
    backend = writable_backend
    args = normal([5], [1])
    k, v = backend.to(args["k_cache"].copy()), backend.to(args["v_cache"].copy())
    nothing = backend.to(np.zeros((0, 2, 64), np.float16))
    none = backend.to(np.zeros(0, np.int64))
    pagedecode.append(nothing, nothing, k, v, none)
    pagedecode.move(k, v, none, none)
    assert same_bits(backend.back(k), args["k_cache"])
    assert same_bits(backend.back(v), args["v_cache"])
    out, lse = pagedecode.merge_states(
        [backend.to(np.zeros((0, 4, 64), np.float16))] * 2,
        [backend.to(np.zeros((0, 4), np.float32))] * 2,
    )
    assert tuple(out.shape) == (0, 4, 64) and tuple(lse.shape) == (0, 4)
    got = pagedecode.slots(
        backend.to(np.zeros((0, 3), np.int32)),
        backend.to(np.zeros(0, np.int32)),
        backend.to(np.zeros(1, np.int32)),
        page_size=4,
        total_q=0,
    )
    assert tuple(got.shape) == (0,)
