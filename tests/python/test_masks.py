# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Rules 1 to 5: which keys a row sees, shown exactly by uniform probes (see
`cases.uniform_probe`)."""

import itertools

import numpy as np
import pytest

from backends import check_call, run
from cases import (
    BF16,
    E4M3,
    F16,
    F32,
    I8,
    check_probe,
    make_case,
    pack_mask,
    plan_of,
    tree_mask,
    uniform_probe,
)

SPLITS = (None, 1, 3)


def make_probe(lens, **options):
    options = dict(dict(heads=(2, 2), head_dim=64, page=4), **options)
    return uniform_probe(np.random.default_rng(11), lens=lens, **options)


def check(backend, args, visible=None, **changes):
    args = {**args, **changes}
    if visible is None:
        visible = [row for seq in plan_of(args) for row in seq.visible]
    result = run(backend, args)
    check_probe(args, result.out, result.lse, visible)
    return result


# By hand: lens, options, what each row sees.
BY_HAND = {
    "bottom-right": ([(2, 5), (1, 3)], {}, [range(4), range(5), range(3)]),
    "one-row-not-causal": ([(1, 5)], dict(causal=False), [range(5)]),
    "rows-are-all-keys": ([(3, 3)], {}, [range(1), range(2), range(3)]),
    "more-rows-than-keys": ([(5, 2), (2, 0)], {}, [[], [], [], [0], [0, 1], [], []]),
    "not-causal": ([(2, 5)], dict(causal=False), [range(5)] * 2),
    "window": (
        [(4, 10)],
        dict(window_left=3),
        [range(3, 7), range(4, 8), range(5, 9), range(6, 10)],
    ),
    "window-0": ([(3, 10)], dict(window_left=0), [[7], [8], [9]]),
    "window-0-not-causal": (
        [(3, 10)],
        dict(window_left=0, causal=False),
        [range(7, 10), range(8, 10), [9]],
    ),
    "window-1-few-keys": ([(4, 2)], dict(window_left=1), [[], [], [0], [0, 1]]),
    "window-all-but-one": ([(1, 10)], dict(window_left=8), [range(1, 10)]),
    "window-exactly-all": ([(1, 10)], dict(window_left=9), [range(10)]),
    "window-beyond": ([(1, 10)], dict(window_left=10), [range(10)]),
    "window-int32-max": ([(2, 10)], dict(window_left=2**31 - 1), [range(9), range(10)]),
}


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(backend, name, splits):
    lens, options, visible = BY_HAND[name]
    check(backend, make_probe(lens, **options), visible, num_splits=splits)


def tree_by_hand():
    """Root, two children, one grandchild of the first child; prefix of 4 keys."""
    mask = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], bool)
    return mask, np.array([4, 5, 5, 6])


TREES = {
    "plain": ({}, [range(5), range(6), [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4, 5, 7]]),
    "not-causal": (dict(causal=False), [range(5), range(6), [*range(5), 6], [*range(6), 7]]),
    "window-1": (dict(window_left=1), [[3, 4], [4, 5], [4, 6], [5, 7]]),
    "window-0": (dict(window_left=0), [[4], [5], [6], [7]]),
    "window-2": (dict(window_left=2), [[2, 3, 4], [3, 4, 5], [3, 4, 6], [4, 5, 7]]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", TREES)
def test_tree_by_hand(backend, name, packed):
    options, visible = TREES[name]
    mask, positions = tree_by_hand()
    args = make_probe([(4, 8)])
    args["draft_mask"] = pack_mask(mask, np.random.default_rng(0)) if packed else mask
    for splits in SPLITS:
        check(backend, args, visible, positions=positions, num_splits=splits, **options)


def test_window_without_positions_counts_indices(backend):
    """The same tree without `positions`: a draft key's position is its index."""
    mask, _ = tree_by_hand()
    check(backend, make_probe([(4, 8)]), [[3, 4], [4, 5], [6], [7]], draft_mask=mask, window_left=1)


def test_mask_above_the_diagonal(backend):
    """Any shape of tree: a row may see later draft keys and not itself."""
    mask = np.array([[0, 1, 1], [0, 0, 0], [1, 1, 0]], bool)
    visible = [[0, 1, 3, 4], [0, 1], [0, 1, 2, 3]]
    for causal in (True, False):
        check(backend, make_probe([(3, 5)]), visible, draft_mask=mask, causal=causal)
    check(backend, make_probe([(3, 3)]), [[1, 2], [], [0, 1]], draft_mask=mask)


def test_mask_with_fewer_keys_than_rows(backend):
    """Columns of keys that do not exist mean nothing; rows without a key of their own see
    nothing."""
    mask = np.ones((4, 4), bool)
    args = make_probe([(4, 2)])
    check(backend, args, [[], [], [0, 1], [0, 1]], draft_mask=mask)
    mask[:2] = False
    mask[3] = [True, True, False, True]
    check(backend, args, [[], [], [0, 1], [1]], draft_mask=mask)
    packed = pack_mask(mask, np.random.default_rng(0)) | np.uint32(0xFFFFFFF3)
    check(backend, args, draft_mask=packed, window_left=0)


def test_all_false_rows(backend):
    args = make_probe([(2, 2), (2, 6)])
    mask = np.zeros((4, 2), bool)
    check(backend, args, [[], [], range(4), range(4)], draft_mask=mask)


@pytest.mark.parametrize("m", [1, 2, 31, 32, 33, 63, 64, 65, 100])
def test_mask_widths(device_backend, m):
    """Every width, exact or rounded up to 32, bool or packed; sequences of fewer rows beside it."""
    rng = np.random.default_rng(m)
    lens = [(m, m + 9), (max(m - 1, 1), m + 3), (m, m)]
    args = make_probe(lens, head_dim=120, heads=(2, 1), page=8)
    rows = []
    for k, _ in lens:
        bits = rng.random((k, -(-m // 32) * 32)) < 0.5  # garbage past the sequence's m
        bits[:, :k] = tree_mask(rng, k)[0]
        rows.append(bits)
    wide = np.concatenate(rows)
    for width, hint in itertools.product((m, wide.shape[1]), (None, m)):
        mask = np.ascontiguousarray(wide[:, :width])
        check(device_backend, args, draft_mask=mask, max_seqlen_q=hint)
        packed = pack_mask(mask, np.random.default_rng(1))
        check(device_backend, args, draft_mask=packed, max_seqlen_q=hint)


def test_mask_strides(writable_backend):
    """Bool and packed masks of any stride (negative and zero ones where the library can hold
    them)."""
    rng = np.random.default_rng(4)
    args = make_probe([(40, 50), (33, 40)], head_dim=64, heads=(2, 1), page=8)
    bits = rng.random((73, 40)) < 0.5
    words = pack_mask(bits, rng)
    big = rng.random((146, 123)) < 0.5
    big[::2, 1:121:3] = bits
    big_words = rng.integers(0, 2**32, (146, 5), dtype=np.uint32)
    big_words[::2, 1::3][:, :2] = words
    forms = [
        big[::2, 1:121:3],
        np.asfortranarray(bits),
        big_words[::2, 1::3][:, :2],
        np.asfortranarray(words),
    ]
    if writable_backend.negative_strides:
        forms += [bits[::-1, ::-1].copy()[::-1, ::-1], words[::-1, ::-1].copy()[::-1, ::-1]]
    want = check(writable_backend, args, draft_mask=bits)
    for form in forms:
        assert check(writable_backend, args, draft_mask=form).same_bits(want)
    if writable_backend.device == "cuda":
        return
    same = np.broadcast_to(bits[0], (73, 40))  # zero row stride
    check(writable_backend, args, draft_mask=same)
    one = np.broadcast_to(np.array([[True]]), (73, 40))
    check(writable_backend, args, draft_mask=one)
    check(writable_backend, args, draft_mask=np.broadcast_to(words[:1], (73, 2)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_positions(writable_backend, dtype):
    rng = np.random.default_rng(5)
    args = make_probe([(5, 20), (3, 9), (4, 2)])
    positions = rng.integers(0, 25, 12).astype(dtype)
    wide = np.full(36, -(10**6), dtype)
    wide[1::3] = positions
    forms = [positions, wide[1::3]]
    if writable_backend.negative_strides:
        forms.append(positions[::-1].copy()[::-1])
    for window, form in itertools.product((0, 2, 7), forms):
        check(writable_backend, args, positions=form, window_left=window)
    check(writable_backend, args, positions=positions + dtype(2**30), window_left=2)
    if writable_backend.device == "cpu":
        check(writable_backend, args, positions=np.broadcast_to(dtype(7), 12), window_left=1)


@pytest.mark.parametrize("window", [0, 1, 5, 30])
def test_window_slides_over_tiles(device_backend, window):
    """Every length round a few tiles, ragged m; n up to the probe's 256 columns."""
    for start in range(1, 250, 41):
        lens = [(1 + (n % 4), n) for n in range(start, min(start + 41, 251), 5)]
        args = make_probe(lens, head_dim=256, heads=(1, 1), page=16, window_left=window)
        for splits in (None, 3):
            check(device_backend, args, num_splits=splits)


@pytest.mark.parametrize("causal", [True, False])
def test_every_short_length(device_backend, causal):
    """All (m, n) up to 6 x 10, pages of 1, 3 and 4."""
    lens = [(m, n) for m in range(7) for n in range(11)]
    for page in (1, 3, 4):
        check(device_backend, make_probe(lens, head_dim=16, page=page, causal=causal))


@pytest.mark.parametrize("dtype", [F16, BF16, F32])
@pytest.mark.parametrize("cache", [None, E4M3, I8])
def test_probe_types(numpy_backend, dtype, cache):
    args = make_probe([(3, 37), (4, 2)], q_dtype=dtype, k_dtype=cache, window_left=11)
    check(numpy_backend, args)


@pytest.mark.parametrize(
    "options",
    [
        dict(softcap=1.0),
        dict(window_left=4),
        dict(softcap=2.0, window_left=6, num_splits=2),
        dict(softmax_scale=-3.0),
        dict(batch_invariant=True, window_left=3),
    ],
    ids=str,
)
@pytest.mark.parametrize("mask", [None, "tree", "random-packed"])
def test_masks_with_options(device_backend, mask, options):
    """Options that leave equal logits equal must leave the visible set alone (masked after the
    cap)."""
    args = make_probe([(5, 21), (3, 9), (4, 4), (2, 40)], mask=mask)
    check(device_backend, args, **options)


def test_chain_mask_equals_causal(backend):
    args = make_case(np.random.default_rng(8), lens=((5, 21), (3, 9), (4, 4)))
    causal = check_call(backend, args)
    chain = np.concatenate([np.tri(5, 5, dtype=bool)[:m] for m in (5, 3, 4)])
    masked = check_call(backend, args, draft_mask=chain)
    assert np.abs(causal.out.astype(float) - masked.out.astype(float)).max() < 4e-3


def test_empty_rows_with_sinks(backend):
    """A row that sees nothing: out 0 and LSE -inf, or the sink itself."""
    args = make_case(np.random.default_rng(8), lens=((4, 2), (2, 0), (1, 3)), sinks=True)
    result = check_call(backend, args)
    for row in (0, 1, 4, 5):
        assert (result.out[row] == 0).all() and np.abs(result.lse[row] - args["sinks"]).max() < 1e-6


def test_options_change_the_result(device_backend):
    """No option is accepted and ignored: each moves the result away from the plain call's."""
    lens, rng = ((3, 37), (4, 60)), np.random.default_rng(1)
    plain = make_case(rng, lens=lens, poisoned=False)
    base = run(device_backend, plain)
    changes = {
        "softcap": dict(softcap=0.5),
        "window_left": dict(window_left=3),
        "alibi_slopes": dict(alibi_slopes=np.full(6, 0.3, F32)),
        "sinks": dict(sinks=np.ones(6, F32)),
        "draft_mask": dict(draft_mask=np.zeros((7, 4), bool)),
        "softmax_scale": dict(softmax_scale=0.3),
        "k_scale": dict(k_scale=0.5),
        "v_scale": dict(v_scale=np.full(2, 0.5, F32)),
        "causal": dict(causal=False),
        "lse_base": dict(lse_base="2"),
    }
    for name, change in changes.items():
        for path in (dict(), dict(num_splits=2), dict(batch_invariant=True)):
            got = check_call(device_backend, plain, **change, **path)
            away = np.abs(got.lse - base.lse).max() + np.abs(got.out.astype(float) - base.out).max()
            assert away > 0.01, f"{name} had no effect with {path}"
