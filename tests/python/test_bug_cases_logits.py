# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of the logits: LSE base, sinks, soft-cap, extreme logits, ALiBi
(B14, B19, B44, B45, B53)."""

import math

import numpy as np
import pytest

from probes import (
    HUGE,
    TOLERANCE,
    call,
    close,
    np_type,
    offsets,
    pack,
    q_types,
    same_bits,
    uniform,
)

SPLITS = (None, 1, 2, 8)


@pytest.mark.parametrize("splits", (None, 1, 3))
def test_b14_lse_base(backend, splits):
    probe = uniform([8, 64, 0], [1, 2, 1])
    out_e, natural = call(backend, probe.args, num_splits=splits)
    out_2, binary = call(backend, probe.args, num_splits=splits, lse_base="2")
    close(natural[0], np.full(4, 2.0794415), 1e-3)
    close(binary[0], np.full(4, 3.0), 1e-3)
    assert same_bits(out_e, out_2)
    close(binary, natural.astype(np.float64) / math.log(2), 1e-5 * 8)
    assert same_bits(natural, call(backend, probe.args, num_splits=splits, lse_base="e")[1])


@pytest.mark.parametrize("base", ("e", "2"))
def test_b14_sink_alone_in_either_base(backend, base):
    sinks = np.array([0.5, -1, 2, 0], np.float32)
    _, lse = call(backend, uniform([0], [1]).args, sinks=sinks, lse_base=base)
    close(lse[0], sinks / (1 if base == "e" else math.log(2)), 1e-3)


@pytest.mark.parametrize("splits", (1, 2, 8, 64, None))
def test_b19_sink_counts_once_whatever_the_splits(backend, splits):
    probe = uniform([4096, 4096], [1, 4], page=16, values=lambda b: 1.0)
    sinks = np.full(4, math.log(4096), np.float32)
    out, lse = call(backend, probe.args, sinks=sinks, num_splits=splits, causal=False)
    close(out, np.full(out.shape, 0.5), 1e-3)
    close(lse, np.full(lse.shape, math.log(8192)), 1e-3)


@pytest.mark.parametrize("splits", SPLITS)
def test_b19_sinks_are_per_head(backend, splits):
    probe = uniform([1, 1], [1, 1], heads=3, values=lambda b: 1.0)
    heads = np.arange(6)
    sinks = np.log(heads + 1.0).astype(np.float32)
    out, _ = call(backend, probe.args, sinks=sinks, num_splits=splits)
    close(out, np.broadcast_to(1 / (heads + 2.0)[None, :, None], out.shape), 2e-3)


@pytest.mark.parametrize("kv", (None, "float8_e4m3fn", "float8_e5m2", "int8"))
@pytest.mark.parametrize(
    "options", ({"window_left": 3}, {"softcap": 1.0}, {"batch_invariant": True})
)
def test_b19_sinks_with_window_softcap_and_8_bit_caches(backend, options, kv):
    probe = uniform([1000, 3], [4, 3], page=16, values=lambda b: 1.0, kv=kv)
    sinks = np.log([1.0, 2.0, 4.0, 3.0]).astype(np.float32)
    for splits in (None,) if "batch_invariant" in options else (None, 1, 8, 64):
        out, lse = call(backend, probe.args, sinks=sinks, num_splits=splits, **options)
        want = probe.want(window_left=options.get("window_left", -1))[1]
        total = np.exp(want) + np.exp(sinks)[None]
        close(lse, np.log(total), 1e-3)
        close(out, np.broadcast_to((np.exp(want) / total)[..., None], out.shape), 2e-3)


def test_b19_sink_is_not_scaled_and_not_capped(backend):
    probe = uniform([4], [1], values=lambda b: 1.0)
    sinks = np.full(4, 3.0, np.float32)
    options = {"sinks": sinks, "softmax_scale": 0.1, "softcap": 0.5}
    _, lse = call(backend, probe.args, **options)
    close(lse, np.full((1, 4), math.log(4 + math.exp(3))), 1e-3)


def test_b44_cap_comes_before_the_mask(backend):
    for splits in SPLITS:
        probe = uniform([5, 5], [2, 2])
        out, lse = call(backend, probe.args, softcap=1.0, num_splits=splits)
        np.testing.assert_array_equal(out[0, :, 4], 0)  # the fault: 0.0842
        close(out[0, :, :4], np.full((4, 4), 0.25), 2e-3)
        probe.check(out, lse)  # the dead slots hold NaN


def one_logit(q, k, dtype="float16", n=1, dim=64, v=None, rows=1, **options):
    """One sequence of n equal keys; q and k are constant vectors' first entries, V per key."""
    qs = np.zeros((rows, 4, dim), dtype)
    qs[..., 0] = q
    keys = np.zeros((n, 2, dim), dtype)
    keys[..., 0] = k
    vals = np.broadcast_to(np.asarray(v or [1.0] * n)[:, None, None], (n, 2, dim)).astype(dtype)
    return dict(q=qs, cu_seqlens_q=offsets([rows]), **pack([keys], [vals], **options))


def test_b44_cap_of_one_logit(backend):
    args = one_logit(10.0, 10.0)
    _, lse = call(backend, args, softmax_scale=1.0, softcap=50.0)
    close(lse, np.full((1, 4), 48.2014), 1e-3)
    _, off = call(backend, args, softmax_scale=1.0, softcap=0.0)
    close(off, np.full((1, 4), 100.0), 1e-3)
    _, negative = call(backend, one_logit(10.0, -10.0), softmax_scale=1.0, softcap=50.0)
    close(negative, np.full((1, 4), -48.2014), 1e-3)


def extreme(n, dtype="float16", v=None):
    """q = 100, k = -20 in all 128 dimensions: raw logits of -256000."""
    v = np.arange(n, dtype=np.float32) if v is None else np.asarray(v, np.float32)
    q = np.full((2, 4, 128), 100, dtype)
    keys = np.full((n, 2, 128), -20, dtype)
    vals = np.broadcast_to(v[:, None, None], (n, 2, 128)).astype(dtype)
    packed = pack([keys, keys], [vals, vals], fill=HUGE)
    return dict(q=q, cu_seqlens_q=offsets([1, 1]), **packed)


@pytest.mark.parametrize("splits", (None, 1, 2, 4, 16))
def test_b45_very_negative_logits(backend, splits):
    # A float32 near 22626 has steps of 0.002.
    out, lse = call(backend, extreme(4), num_splits=splits)
    close(out, np.full(out.shape, 1.5), 2e-3 * 3)
    close(lse, np.full(lse.shape, -22626.0307), 4e-3)
    out, _ = call(backend, extreme(1, v=[3.0]), num_splits=splits)
    np.testing.assert_array_equal(out.astype(np.float32), 3.0)


@pytest.mark.parametrize("splits", (None, 2, 5))
def test_b45_hidden_key_never_wins(backend, splits):
    args = extreme(5, v=[0, 1, 2, 3, 1000])
    args["q"] = np.full((4, 4, 128), 100, np.float16)
    args["cu_seqlens_q"] = offsets([2, 2])
    mask = np.array([[True, False], [True, False]] * 2)
    for options in ({}, {"draft_mask": mask}):
        out, lse = call(backend, args, num_splits=splits, max_seqlen_q=2, **options)
        rows = (0, 2) if not options else (0, 1, 2, 3)
        for i in rows:
            close(out[i], np.full(out[i].shape, 1.5), 6e-3)
            close(lse[i], np.full(4, -22626.0307), 4e-3)


def test_b45_a_window_that_empties_splits(backend):
    args = extreme(200, v=np.arange(200) % 4)
    for splits in (None, 4, 16):
        out, lse = call(backend, args, window_left=3, num_splits=splits)
        close(out, np.full(out.shape, 1.5), 6e-3)
        close(lse, np.full(lse.shape, -22626.0307), 4e-3)


@pytest.mark.parametrize("scale", (-0.125, 1e-6, 3.0))
def test_b45_any_finite_scale(backend, scale):
    for dtype in q_types(backend):
        qs = np.zeros((1, 4, 64), np.float32)
        qs[..., 0] = 4.0
        keys = np.zeros((3, 2, 64), np.float32)
        keys[..., 0] = np.array([-2.0, 0.0, 2.0])[:, None]
        vals = np.broadcast_to(np.array([0.0, 1.0, 4.0])[:, None, None], (3, 2, 64))
        kind = np_type(dtype)
        packed = pack([keys.astype(kind)], [vals.astype(kind)])
        args = dict(q=qs.astype(kind), cu_seqlens_q=offsets([1]), **packed)
        out, lse = call(backend, args, softmax_scale=scale)
        logits = scale * 4.0 * np.array([-2.0, 0.0, 2.0])
        weights = np.exp(logits - logits.max())
        want = (weights * [0.0, 1.0, 4.0]).sum() / weights.sum()
        close(out, np.full(out.shape, want), TOLERANCE[dtype], 4.0)
        close(lse, np.full((1, 4), np.log(weights.sum()) + logits.max()), 1e-3)


def test_b45_a_scale_of_zero_is_an_average_or_refused(backend):
    probe = uniform([5, 7], [2, 3], values="random")
    args = {**probe.args, "q": np.ones_like(probe.args["q"])}
    try:
        out, lse = call(backend, args, softmax_scale=0.0)
    except ValueError as error:
        assert "softmax_scale" in str(error)
    else:
        probe.check(out, lse)


SLOPES_12 = [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625,
             0.70710678, 0.35355339, 0.1767767, 0.08838835]  # fmt: skip


@pytest.mark.parametrize("splits", (None, 1, 3))
def test_b53_each_head_has_its_own_slope(backend, splits):
    probe = uniform([3, 5], [1, 1], heads=4, group=3)
    slopes = np.array(SLOPES_12, np.float32)
    out, lse = call(backend, probe.args, alibi_slopes=slopes, num_splits=splits)
    close(out[0, 0, :3], [0.186324, 0.307196, 0.506480], 2e-3)
    for b, n in enumerate((3, 5)):
        weights = np.exp(slopes[:, None].astype(np.float64) * (np.arange(n) - (n - 1)))
        close(out[b, :, :n], weights / weights.sum(1, keepdims=True), 2e-3)
        close(lse[b], np.log(weights.sum(1)), 1e-3)


def test_b53_several_rows_equal_single_steps(backend):
    slopes = np.array(SLOPES_12, np.float32)
    probe = uniform([13, 9], [4, 4], heads=4, group=3)
    out, lse = call(backend, probe.args, alibi_slopes=slopes)
    for i in range(4):
        step = dict(probe.args, q=probe.args["q"][:2], cu_seqlens_q=offsets([1, 1]))
        step["seq_lens"] = probe.args["seq_lens"] - 3 + i
        one = call(backend, step, alibi_slopes=slopes)
        for b in range(2):
            close(out[4 * b + i], one[0][b].astype(np.float64), 2e-3)
            close(lse[4 * b + i], one[1][b], 1e-3)


def test_b53_siblings_share_a_bias(backend):
    # Two children of one root have the same distance to every key; later keys may be "ahead".
    mask = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool)
    positions = np.array([5, 6, 6], np.int32)
    probe = uniform([8], [3])
    slopes = np.array([0.5, 0.25, 1.0, 0.125], np.float32)
    args = dict(probe.args, draft_mask=mask, positions=positions)
    out, lse = call(backend, args, alibi_slopes=slopes)
    close(lse[1], lse[2], 1e-6)
    np.testing.assert_array_equal(out[1, :, :6], out[2, :, :6])
    np.testing.assert_array_equal(out[1, :, 6], out[2, :, 7])
    np.testing.assert_array_equal(out[1, :, 7], 0)
    # Without causal, keys ahead of the row get a positive bias: + slope * (pos(j) - pos(i)).
    free = uniform([4], [2])
    out, lse = call(backend, free.args, alibi_slopes=slopes, causal=False)
    weights = np.exp(slopes[:, None] * (np.arange(4) - 2.0))
    close(out[0, :, :4], weights / weights.sum(1, keepdims=True), 2e-3)
    close(lse[0], np.log(weights.sum(1)), 1e-3)
