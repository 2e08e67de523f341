# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of the masks: causal, window, draft trees (B01, B11, B12, B35, B36, B39)."""

import math

import numpy as np
import pytest

import pagedecode
from probes import (
    call,
    close,
    is_cuda,
    normal,
    pack_mask,
    q_types,
    refused,
    same_bits,
    uniform,
)

SPLITS = (None, 1, 3, 7)


@pytest.mark.parametrize("splits", SPLITS)
def test_b01_causal_is_bottom_right(backend, splits):
    for dtype in q_types(backend):
        probe = uniform([5, 7, 2], [2, 3, 2], dtype=dtype)
        out, lse = call(backend, probe.args, num_splits=splits)
        probe.check(out, lse)
        row = out[:2, :, :5].astype(np.float32)
        close(row[0], np.tile([0.25, 0.25, 0.25, 0.25, 0], (4, 1)), 1e-6)
        close(row[1], np.full((4, 5), 0.2), 1.2e-2 * 0.2)
        close(lse[:2, 0], [1.386294, 1.609438], 1e-4)


def test_b01_one_row_causal_or_not_is_the_same(backend):
    args = normal([1, 33, 70], [1, 1, 1])
    assert same_bits(call(backend, args, causal=True), call(backend, args, causal=False))


def test_b01_not_causal_sees_every_key(backend):
    probe = uniform([5, 7, 2], [2, 3, 4])
    probe.check(*call(backend, probe.args, causal=False), causal=False)


def test_b01_four_dimensional_query(backend):
    probe = uniform([5, 9], [3, 3])
    args = {**probe.args, "q": probe.args["q"].reshape(2, 3, 4, 64), "cu_seqlens_q": None}
    out, lse = call(backend, args)
    assert out.shape == (2, 3, 4, 64) and lse.shape == (6, 4)
    probe.check(out, lse)


@pytest.mark.parametrize("splits", SPLITS)
def test_b11_each_row_has_its_own_window_start(backend, splits):
    probe = uniform([10, 4], [4, 2])
    out, lse = call(backend, probe.args, window_left=3, num_splits=splits)
    for i in range(4):
        np.testing.assert_array_equal(np.flatnonzero(out[i, 0]), range(3 + i, 7 + i))
    close(lse[:4], np.full((4, 4), 1.386294), 1e-3)
    probe.check(out, lse, window_left=3)


@pytest.mark.parametrize("splits", (None, 5))
@pytest.mark.parametrize("window", (3, 15, 64))
def test_b11_window_across_tile_edges(backend, window, splits):
    lengths = list(range(window + 1, 256, 5))
    rows = [1 + b % 6 for b in range(len(lengths))]
    probe = uniform(lengths, rows, dim=256, group=1, page=16)
    out, lse = call(backend, probe.args, window_left=window, num_splits=splits)
    probe.check(out, lse, window_left=window)


def test_b11_window_of_a_tree_follows_positions(backend):
    # Siblings share a depth: their windows start at the same key.
    depth = np.array([0, 1, 1, 2, 2, 2])
    tree = np.eye(6, dtype=bool)
    tree[1:, 0] = True
    tree[3:5, 1] = True
    tree[5, 2] = True
    positions = np.concatenate([6 + depth, 4 + depth]).astype(np.int32)
    probe = uniform([12, 10], [6, 6])
    args = dict(probe.args, draft_mask=np.concatenate([tree, tree]), positions=positions)
    for window in (0, 1, 3, 7):
        out, lse = call(backend, args, window_left=window)
        for b in range(2):
            one = uniform([[12, 10][b]], [6])
            rows = slice(6 * b, 6 * b + 6)
            one.check(out[rows], lse[rows], [tree], window_left=window, positions=positions[rows])


@pytest.mark.parametrize("window", (0, 1, 3, 8, 9, 10, 11, 2**30, 2**31 - 1, -1))
def test_b12_window_counts_the_keys_besides_the_own(backend, window):
    probe = uniform([10, 1], [1, 1])
    out, lse = call(backend, probe.args, window_left=window)
    seen = 10 if window == -1 else min(window + 1, 10)
    np.testing.assert_array_equal(np.flatnonzero(out[0, 0]), range(10 - seen, 10))
    close(lse[0], np.full(4, math.log(seen)), 1e-3)
    probe.check(out, lse, window_left=window)


@pytest.mark.parametrize("window", (0, 2))
def test_b12_window_without_causal_leaves_later_keys(backend, window):
    probe = uniform([10, 3], [4, 3])
    out, lse = call(backend, probe.args, window_left=window, causal=False)
    probe.check(out, lse, window_left=window, causal=False)


@pytest.mark.parametrize("window", (-2, -100))
def test_b12_other_negative_windows_are_refused(backend, window):
    with refused("window_left"):
        call(backend, uniform([10], [1]).args, window_left=window)


def mask_args(backend, shape=None, dtype=bool, **options):
    probe = uniform([20, 20], [10, 10])
    return dict(probe.args, draft_mask=np.ones(shape, dtype), **options)


@pytest.mark.parametrize(
    "shape",
    [(20, 15), (20, 25), (19, 10), (21, 10), (10, 20), (20, 20), (20, 9), (20, 31), (20, 64),
     (200,), (2, 10, 10), (20, 0)],
)  # fmt: skip
def test_b35_masks_of_the_wrong_size_are_refused(backend, shape):
    # CUDA does not read cu_seqlens_q: max_seqlen_q tells the host the width there.
    with refused("draft_mask"):
        call(backend, mask_args(backend, shape), max_seqlen_q=10)
    if not is_cuda(backend):
        with refused("draft_mask"):
            call(backend, mask_args(backend, shape))


@pytest.mark.parametrize("shape", [(20, 2), (20, 0), (19, 1), (21, 1), (20,), (20, 10)])
def test_b35_packed_masks_of_the_wrong_size_are_refused(backend, shape):
    with refused("draft_mask"):
        call(backend, mask_args(backend, shape, np.uint32), max_seqlen_q=10)


@pytest.mark.parametrize("dtype", ("int32", "uint8", "int64", "float32"))
def test_b35_masks_are_bool_or_packed_uint32(backend, dtype):
    for shape in ((20, 10), (20, 1)):
        with refused("draft_mask"):
            call(backend, mask_args(backend, shape, dtype), max_seqlen_q=10)


def test_b35_four_dimensional_query_tells_the_width(backend):
    probe = uniform([20, 20], [10, 10])
    args = {**probe.args, "q": probe.args["q"].reshape(2, 10, 4, 64), "cu_seqlens_q": None}
    with refused("draft_mask"):
        call(backend, args, draft_mask=np.ones((20, 11), bool))
    probe.check(*call(backend, args, draft_mask=np.ones((20, 10), bool)), causal=False)


def test_b35_every_legal_width_is_the_same_mask(backend):
    rng = np.random.default_rng(3)
    probe = uniform([20, 20], [10, 10])
    mask = rng.random((20, 10)) < 0.5
    wide = rng.random((20, 32)) < 0.5
    wide[:, :10] = mask
    runs = [
        call(backend, probe.args, draft_mask=form, max_seqlen_q=10)
        for form in (mask, wide, pack_mask(mask, rng))
    ]
    probe.check(*runs[0], [mask[:10], mask[10:]])
    assert same_bits(runs[0], runs[1]) and same_bits(runs[0], runs[2])


def test_b35_mask_takes_the_place_of_causal(backend):
    probe = uniform([20, 13], [10, 10])
    ones = np.ones((20, 10), bool)
    args = dict(probe.args, max_seqlen_q=10)
    with_causal = call(backend, args, draft_mask=ones, causal=True)
    assert same_bits(with_causal, call(backend, args, draft_mask=ones, causal=False))
    probe.check(*with_causal, causal=False)
    probe.check(*call(backend, args, draft_mask=~ones), [~ones[:10]] * 2)


def star(nodes: int) -> np.ndarray:
    """Node 0 is the root, all others its children."""
    mask = np.eye(nodes, dtype=bool)
    mask[:, 0] = True
    return mask


@pytest.mark.parametrize("nodes", (31, 32, 33, 40, 63, 64, 65, 130))
def test_b36_star_trees_of_any_size(backend, nodes):
    for prefix in (0, 8, 16, 61, 64, 126):
        mask = star(nodes)
        probe = uniform([prefix + nodes] * 2, [nodes, nodes], dim=256, group=1, page=16)
        for form in (np.tile(mask, (2, 1)), pack_mask(np.tile(mask, (2, 1)))):
            out, lse = call(backend, probe.args, draft_mask=form, max_seqlen_q=nodes)
            probe.check(out, lse, [mask, mask])
    # A causal leak would give row r the columns of its elder siblings.
    last = out[nodes - 1, 0]
    np.testing.assert_array_equal(np.flatnonzero(last), [*range(127), 126 + nodes - 1])


@pytest.mark.parametrize("splits", SPLITS)
def test_b36_requests_with_different_trees(backend, splits):
    rng = np.random.default_rng(7)
    rows, lengths = [40, 1, 0, 33, 7], [48, 1, 5, 33, 100]
    masks = [rng.random((m, m)) < 0.4 for m in rows]
    flat = rng.random((sum(rows), 40)) < 0.5  # columns past a sequence's m mean nothing
    at = np.concatenate([[0], np.cumsum(rows)])
    for b, mask in enumerate(masks):
        flat[at[b] : at[b + 1], : rows[b]] = mask
    probe = uniform(lengths, rows, dim=104, page=16)
    runs = [
        call(backend, probe.args, draft_mask=form, max_seqlen_q=40, num_splits=splits)
        for form in (flat, pack_mask(flat, rng))
    ]
    probe.check(*runs[0], masks)
    assert same_bits(*runs)


def test_b36_chain_tree_equals_causal(backend):
    args = normal([70, 9, 3], [9, 9, 3])
    chain = np.tril(np.ones((9, 9), bool))
    mask = np.concatenate([chain, chain, chain[:3]])
    tree, plain = call(backend, args, draft_mask=mask, max_seqlen_q=9), call(backend, args)
    close(tree[0], plain[0].astype(np.float64), 4e-3)
    close(tree[1], plain[1], 1e-3)


def test_b36_more_rows_than_keys_under_a_tree(backend):
    rng = np.random.default_rng(11)
    rows, lengths = [5, 6, 4], [2, 0, 6]  # keys of rows i < m - n do not exist
    masks = [rng.random((m, m)) < 0.6 for m in rows]
    flat = np.ones((15, 6), bool)
    for at, mask in zip((0, 5, 11), masks, strict=True):
        flat[at : at + len(mask), : len(mask)] = mask
    probe = uniform(lengths, rows)
    probe.check(*call(backend, probe.args, draft_mask=flat, max_seqlen_q=6), masks)


@pytest.mark.parametrize("all_true_mask", (False, True))
def test_b39_length_bounds_hold_without_causal(backend, all_true_mask):
    lengths = [1, 15, 16, 17, 255, 256, 257, 1000]
    # Dead slots hold large finite keys: nothing but the length bound keeps them out.
    for m in (1, 2):
        probe = uniform(lengths, [m] * 8, page=16, values=lambda b: 1.0, dead=60000.0)
        options = {"draft_mask": np.ones((8 * m, m), bool)} if all_true_mask else {}
        out, lse = call(
            backend, probe.args, causal=False, max_seqlen_q=m, window_left=-1, **options
        )
        want = np.repeat(np.log(np.repeat(lengths, m))[:, None], 4, axis=1)
        if m == 2 and all_true_mask:  # n = 1: row 0 has no key of its own, its bits mean nothing
            want[0] = -np.inf
        np.testing.assert_array_equal(out.astype(np.float32)[np.isfinite(want)], 1.0)
        close(lse, want, 1e-3)


def test_b39_check_agrees(backend):
    probe = uniform([5, 7], [2, 3])
    pagedecode.check(**{k: backend.to(v) for k, v in probe.args.items()}, causal=False)
