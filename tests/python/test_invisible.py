# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Rule 7: what a row does not see never changes its bits, whatever it holds."""

import numpy as np
import pytest

from backends import run
from cases import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    I8,
    Case,
    make_case,
    pack_mask,
    plan_of,
    poison_unseen,
    seen_slots,
)
from reference import Pages, by_slot

LENS = ((3, 37), (1, 16), (4, 17), (0, 5), (5, 2), (1, 0), (3, 130))

OPTIONS = {
    "causal": {},
    "not-causal": dict(causal=False),
    "window": dict(window_left=5),
    "window-0": dict(window_left=0),
    "window-not-causal": dict(window_left=3, causal=False),
    "tree": dict(mask="tree"),
    "tree-packed-window": dict(mask="tree-packed", window_left=4),
    "softcap-alibi": dict(softcap=1.0, alibi=True, window_left=8),
    "sinks": dict(sinks=True, window_left=2),
    "rope": dict(rope=True, window_left=7),
    "splits": dict(num_splits=5, window_left=40),
    "splits-tree": dict(num_splits=3, mask="tree"),
    "invariant": dict(batch_invariant=True, window_left=40),
    "hnd": dict(layout="HND", window_left=5),
    "scales": dict(k_scale="heads", v_scale="heads"),
}
TYPES = [(F16, F16), (BF16, BF16), (F32, F32), (F16, E4M3), (BF16, E4M3), (F16, BF16), (BF16, F32)]
SHAPES = [(64, 8), (128, 16)]  # (head dim, page)
FILLS = (0x00, 0xFF, 0x7F, 0x7C, 0x80)  # 0x7C7C.. is Inf or NaN in every float type here or large


def refill(args, byte, names=("k_cache", "v_cache")):
    """Copies of the caches whose unseen slots hold `byte` everywhere."""
    changed = {}
    hidden = ~seen_slots(args)
    for name in names:
        cache = args[name].copy()
        pages = by_slot(cache, args["kv_layout"])
        raw = np.full((int(hidden.sum()), *pages.shape[2:]), byte, np.uint8)
        raw = np.repeat(raw, pages.itemsize, axis=-1).view(pages.dtype)
        pages[hidden.reshape(pages.shape[:2])] = raw
        changed[name] = cache
    return changed


@pytest.mark.parametrize("dim", [32, 128])
@pytest.mark.parametrize("dtype", [F16, BF16, F32, E4M3, E5M2, I8], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_slots_that_no_row_sees(device_backend, name, dtype, dim):
    q_dtype = dtype if dtype in (F16, BF16, F32) else F16
    options = dict(OPTIONS[name], lens=LENS, q_dtype=q_dtype, k_dtype=dtype, head_dim=dim)
    if not device_backend.takes(Case("", options)):
        return
    args = make_case(np.random.default_rng(41), poisoned=False, heads=(2, 3), **options)
    clean = run(device_backend, {**args, **refill(args, 0)})
    assert np.isfinite(clean.out.astype(float)).all()
    for byte in FILLS:
        assert run(device_backend, {**args, **refill(args, byte)}).same_bits(clean), hex(byte)
    for only in ("k_cache", "v_cache"):
        half = {**args, **refill(args, 0), **refill(args, 0xFF, (only,))}
        assert run(device_backend, half).same_bits(clean), only
    poison_unseen(np.random.default_rng(1), args)
    assert run(device_backend, args).same_bits(clean)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("csr", [False, True])
def test_table_entries_past_the_length(backend, dtype, csr):
    """Entries past ceil(n / P) are never followed: -1, huge, or ids of poisoned pages."""
    lens = ((1, 9), (2, 4), (3, 0), (1, 12), (2, 13))
    args = make_case(np.random.default_rng(2), lens=lens, page=4, index_dtype=dtype, extra=5)
    table, want = args["block_table"], None
    for bad in (0, -1, 2**31 - 1, np.iinfo(dtype).min, np.iinfo(dtype).max, len(args["k_cache"])):
        changed = table.copy()
        for b, (_, n) in enumerate(lens):
            changed[b, -(-n // 4) :] = bad
        if csr:
            width = table.shape[1]
            indptr = np.arange(0, len(lens) * width + 1, width, dtype=dtype)
            changed = Pages(indptr, changed.ravel())
        got = run(backend, args, block_table=changed)
        want = want or got
        assert got.same_bits(want), bad


@pytest.mark.parametrize("dim, page", SHAPES)
def test_prefix_keys_outside_one_rows_window(each_kernel, dim, page):
    """A key that the first row still sees and the next does not: NaN there touches the first
    only."""
    for q_dtype, dtype in TYPES:
        options = dict(q_dtype=q_dtype, k_dtype=dtype, heads=(2, 6), window_left=6, page=page)
        options["head_dim"] = dim
        if not each_kernel.takes(Case("", options)):
            continue
        args = make_case(np.random.default_rng(3), lens=((4, 40), (3, 50)), **options)
        clean = run(each_kernel, args)
        seq = plan_of(args)[0]
        key = 36 - 6  # the window start of row 0 of sequence 0
        assert seq.visible[:, key].tolist() == [True, False, False, False]
        for name in ("k_cache", "v_cache"):
            cache = args[name].copy()
            cache[seq.slots[key] // page, seq.slots[key] % page] = np.nan
            got = run(each_kernel, args, **{name: cache})
            assert np.isnan(got.out[0].astype(float)).all()
            assert got.rows(slice(1, None)).same_bits(clean.rows(slice(1, None)))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("splits", [None, 3])
@pytest.mark.parametrize("dim, page", SHAPES)
def test_draft_keys_of_siblings(each_kernel, packed, splits, dim, page):
    """A draft key may hold NaN and Inf for those rows that do not see it."""
    mask = np.eye(5, dtype=bool)
    mask[:, 0] = True
    for q_dtype, dtype in TYPES:
        options = dict(q_dtype=q_dtype, k_dtype=dtype, heads=(2, 8), page=page, head_dim=dim)
        if not each_kernel.takes(Case("", options)):
            continue
        args = make_case(np.random.default_rng(3), lens=((5, 21), (5, 5)), **options)
        args["draft_mask"] = np.concatenate([mask, mask])
        if packed:
            args["draft_mask"] = pack_mask(args["draft_mask"], np.random.default_rng(0))
        clean = run(each_kernel, args, num_splits=splits)
        seq = plan_of(args)[0]
        for name, bad in (("k_cache", np.nan), ("v_cache", np.nan), ("v_cache", np.inf)):
            if dtype == E4M3 and bad == np.inf:
                continue
            cache = args[name].copy()
            at = seq.slots[16 + 2]
            cache[at // page, at % page] = bad
            got = run(each_kernel, args, num_splits=splits, **{name: cache})
            assert not np.isfinite(got.out[2].astype(float)).any()
            for row in (0, 1, 3, 4, *range(5, 10)):
                assert got.rows(slice(row, row + 1)).same_bits(clean.rows(slice(row, row + 1)))


def test_finite_draft_keys_of_siblings(device_backend):
    """On every device: any finite bits of a draft key that only other rows see."""
    mask = np.eye(5, dtype=bool)
    mask[:, 0] = True
    for dtype in (F16, E4M3, I8):
        args = make_case(np.random.default_rng(3), lens=((5, 21), (5, 5)), page=8, k_dtype=dtype)
        args["draft_mask"] = np.concatenate([mask, mask])
        clean = run(device_backend, args)
        at = plan_of(args)[0].slots[16 + 2]
        others = np.array([0, 1, 3, 4, *range(5, 10)])
        for name in ("k_cache", "v_cache"):
            cache = args[name].copy()
            cache[at // 8, at % 8] = {F16: 65504, E4M3: 448, I8: 127}[dtype]
            got = run(device_backend, args, **{name: cache})
            assert got.rows(others).same_bits(clean.rows(others))


@pytest.mark.parametrize("dim, page", SHAPES)
def test_causal_future_keys(each_kernel, dim, page):
    """Draft keys after a row's own, NaN: rows before them are bit-equal."""
    for q_dtype, dtype in TYPES:
        options = dict(q_dtype=q_dtype, k_dtype=dtype, heads=(2, 4), page=page, head_dim=dim)
        if not each_kernel.takes(Case("", options)):
            continue
        args = make_case(np.random.default_rng(3), lens=((4, 24), (4, 4), (40, 90)), **options)
        clean = run(each_kernel, args)
        for b, key, row in ((0, 22, 2), (1, 1, 5), (2, 60, 18)):
            at = plan_of(args)[b].slots[key]
            blind = np.r_[0:row, 4 * (b + 1) if b < 2 else 48 : 48]
            for name in ("k_cache", "v_cache"):
                cache = args[name].copy()
                cache[at // page, at % page] = np.nan
                got = run(each_kernel, args, **{name: cache})
                assert np.isnan(got.out[row].astype(float)).all()
                assert got.rows(blind).same_bits(clean.rows(blind))


def test_other_sequences(device_backend):
    """NaN in one sequence's keys and queries stays in that sequence."""
    args = make_case(np.random.default_rng(3), lens=((2, 20), (3, 20), (2, 33)), page=16)
    clean = run(device_backend, args)
    k, v, q = args["k_cache"].copy(), args["v_cache"].copy(), args["q"].copy()
    for page in args["block_table"][1, :2]:
        k[page], v[page] = np.nan, np.inf
    q[2:5] = np.nan
    got = run(device_backend, args, k_cache=k, v_cache=v, q=q)
    others = np.array([0, 1, 5, 6])
    assert got.rows(others).same_bits(clean.rows(others))
    assert np.isnan(got.out[2:5].astype(float)).all()


def test_positions_of_rows_in_other_sequences(device_backend):
    args = make_case(np.random.default_rng(3), lens=((2, 20), (3, 20)), rope=True, window_left=30)
    positions = np.array([18, 19, 17, 18, 19], np.int32)
    clean = run(device_backend, args, positions=positions)
    got = run(device_backend, args, positions=np.array([18, 19, 2**30, 5, 6], np.int32))
    assert got.rows(slice(0, 2)).same_bits(clean.rows(slice(0, 2)))


@pytest.mark.parametrize("packed", [False, True])
def test_mask_bits_that_mean_nothing(device_backend, packed):
    """Columns past a sequence's m, and padding bits up to the multiple of 32."""
    args = make_case(np.random.default_rng(3), lens=((7, 30), (2, 20), (1, 1), (4, 9)))
    rng, want = np.random.default_rng(4), None
    keep = [(rng.random((m, m)) < 0.5) for m in (7, 2, 1, 4)]
    for trial in range(3):
        mask = rng.random((14, 32 if trial else 7)) < 0.5
        row = 0
        for bits in keep:
            mask[row : row + len(bits), : len(bits)] = bits
            row += len(bits)
        got = run(device_backend, args, draft_mask=pack_mask(mask, rng) if packed else mask)
        want = want or got
        assert got.same_bits(want)


def test_rows_past_the_last_offset(writable_backend):
    """They are not written, and what they hold (NaN) changes nothing."""
    args = make_case(np.random.default_rng(3), extra_rows=4, hint=True)
    clean = run(writable_backend, args)
    q = args["q"].copy()
    q[-4:] = np.nan
    got = run(writable_backend, args, q=q)
    assert got.same_bits(clean)
    assert (got.out[-4:] == 123).all() and (got.lse[-4:] == 123).all()
