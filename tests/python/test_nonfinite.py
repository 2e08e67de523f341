# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""NaN and infinities that a row does see: of V each in its own column, of K in the whole row; and
never in a row that does not see them, also where both rows share a tile."""

import numpy as np
import pytest

from backends import compare, run
from cases import BF16, E4M3, E5M2, F16, F32, Case, make_case, plan_of, tolerances
from reference import by_slot, decode_reference

LENS = ((3, 37), (1, 16), (4, 17), (5, 130), (2, 300), (9, 40), (2, 1))
MASKS = {
    "causal": {},
    "not-causal": dict(causal=False),
    "window": dict(window_left=20),
    "tree": dict(mask="tree"),
    "random-packed": dict(mask="random-packed", window_left=100),
    "splits": dict(num_splits=3, window_left=60),
    "invariant": dict(batch_invariant=True),
    # No ALiBi: an infinity whose weight rounds to 0 in 16 bits becomes NaN.
    "options": dict(softcap=2.0, sinks=True),
}
TYPES = [(F16, F16), (BF16, BF16), (F32, F32), (F16, E4M3), (BF16, E5M2), (F16, E5M2)]


def spoil(rng, args, name, places):
    """Puts NaN (in V infinities, too) where some row sees it; returns the slots."""
    page = by_slot(args[name], args["kv_layout"])
    kinds = np.array([np.nan, np.inf, -np.inf], np.float32).astype(page.dtype)
    kinds = kinds[: 1 if name == "k_cache" else 3]
    spoilt = []
    for _ in range(places):
        seq = rng.choice([s for s in plan_of(args) if s.visible.any()])
        key = rng.choice(np.flatnonzero(seq.visible.any(axis=0)))
        if rng.random() < 0.7:  # near the end, where rows see different keys
            key = np.flatnonzero(seq.visible.any(axis=0))[-1 - rng.integers(0, seq.m) % key.size]
        at = seq.slots[key] // page.shape[1], seq.slots[key] % page.shape[1]
        page[(*at, rng.integers(page.shape[2]), rng.integers(page.shape[3]))] = rng.choice(kinds)
        spoilt.append(seq.slots[key])
    return spoilt


def check_spoilt(backend, rng, args, of_k, of_v):
    """With so many elements of K and V spoilt: what is right, and in each row that sees none of
    them the bits of before."""
    clean, allowed = run(backend, args), tolerances(args)
    slots = spoil(rng, args, "k_cache", of_k) + spoil(rng, args, "v_cache", of_v)
    got = run(backend, args)
    compare(got, decode_reference(**args), *allowed)
    for seq in plan_of(args):
        blind = ~seq.visible[:, np.isin(seq.slots, slots)].any(axis=1)
        rows = np.arange(seq.rows.start, seq.rows.stop)[blind]
        assert got.rows(rows).same_bits(clean.rows(rows))


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("q_dtype, dtype", TYPES, ids=str)
def test_each_in_its_column(each_kernel, q_dtype, dtype, mask, dim):
    options = dict(q_dtype=q_dtype, k_dtype=dtype, head_dim=dim, lens=LENS, heads=(2, 4))
    on_cuda = each_kernel.device == "cuda"
    if not each_kernel.takes(Case("", options)) or (dim == 128 and not on_cuda):
        return
    for seed, (of_k, of_v) in enumerate(((1, 12), (0, 1), (0, 200))[: 3 if on_cuda else 1]):
        rng = np.random.default_rng(seed)
        args = make_case(rng, **options, **MASKS[mask])
        check_spoilt(each_kernel, rng, args, of_k, of_v)
