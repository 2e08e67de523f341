# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Calls with nothing to do, and arrays that hold nonsense: clamped, never a fault, nothing written
but `out` and `lse`."""

import numpy as np
import pytest

from backends import BACKENDS, GPU, SENTINEL, run
from cases import BF16, E4M3, F16, make_case

pytestmark = pytest.mark.gpu
BACKEND = BACKENDS["torch-cuda"]
FAR = np.iinfo(np.int64)
TYPES = [(F16, F16, 64), (BF16, BF16, 128), (F16, E4M3, 128)]
OPTIONS = {
    "plain": {},
    "splits": dict(num_splits=3),
    "invariant": dict(batch_invariant=True),
    "sinks": dict(sinks=True),
    "window": dict(window_left=4),
    "tree": dict(mask="tree"),
}


@pytest.mark.parametrize("name", GPU)
def test_no_sequences_and_no_rows(name):
    backend = BACKENDS[name]
    if not backend.holds(F16):
        return
    args = make_case(np.random.default_rng(0), lens=((2, 20), (1, 5)), extra_rows=2, head_dim=128)
    nobody = dict(
        args,
        block_table=args["block_table"][:0],
        seq_lens=args["seq_lens"][:0],
        cu_seqlens_q=args["cu_seqlens_q"][:1],
    )
    for rows in (5, 0):  # rows that belong to no sequence are not written
        result = run(backend, dict(nobody, q=args["q"][:rows]))
        assert (result.out == SENTINEL).all() and (result.lse == SENTINEL).all()
    nothing = np.zeros(3, np.int32)  # sequences without rows
    for rows in (5, 0):
        for options in ({}, dict(num_splits=3), dict(batch_invariant=True), dict(max_seqlen_q=0)):
            result = run(backend, dict(args, q=args["q"][:rows], cu_seqlens_q=nothing), **options)
            assert (result.out == SENTINEL).all() and (result.lse == SENTINEL).all()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("q_dtype, k_dtype, dim", TYPES, ids=str)
def test_no_keys(kernel, q_dtype, k_dtype, dim, options):
    """Lengths of 0, below 0 and below m: rows that see nothing are 0 and -inf, or their sink."""
    lens = ((1, 0), (3, 0), (2, 1), (1, 40), (4, 2), (1, 0))
    args = make_case(
        np.random.default_rng(0),
        lens=lens,
        head_dim=dim,
        q_dtype=q_dtype,
        k_dtype=k_dtype,
        **OPTIONS[options],
    )
    want = run(BACKEND, args)
    empty = np.array([0, 1, 2, 3, 4, 7, 8, 11])
    assert (want.out[empty] == 0).all()
    lse = args["sinks"] if "sinks" in args else np.full(args["q"].shape[1], -np.inf)
    assert np.allclose(want.lse[empty], np.broadcast_to(lse, (8, len(lse))), atol=1e-6)
    assert np.isfinite(np.delete(want.lse, empty, axis=0)).all()
    below = args["seq_lens"].astype(np.int64)
    below[[0, 1, 5]] = -1, FAR.min, -(2**40)
    assert run(BACKEND, args, seq_lens=below).same_bits(want)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("q_dtype, k_dtype, dim", TYPES, ids=str)
def test_lengths_and_offsets_out_of_range(kernel, q_dtype, k_dtype, dim, options):
    """Lengths are clamped to what the table holds, offsets to the rows of q; page ids anything."""
    given = dict(OPTIONS[options], head_dim=dim, q_dtype=q_dtype, k_dtype=k_dtype, hint=True)
    given.update(lens=((2, 64), (1, 64), (3, 64)), extra=0, poisoned=False)
    args = make_case(np.random.default_rng(0), **given)
    want = run(BACKEND, args)
    for huge in (65, 2**31 - 1, 2**31, 2**40, FAR.max):
        assert run(BACKEND, args, seq_lens=np.full(3, huge, np.int64)).same_bits(want)
    rng = np.random.default_rng(1)
    for _ in range(20):
        cu = rng.choice([0, 1, 2, 5, 6, 7, -1, FAR.min, FAR.max, 2**31, 2**32 + 3], 4)
        lens = rng.choice([0, 1, 63, 64, 65, -7, FAR.min, FAR.max, 2**32 + 1], 3)
        run(BACKEND, args, cu_seqlens_q=cu, seq_lens=lens)
        table = rng.choice([0, 1, 2, -1, FAR.min, FAR.max, 2**31, 2**32, 10**6], (3, 4))
        bad = run(BACKEND, args, block_table=table)
        wrong = (table < 0) | (table >= len(args["k_cache"]))
        if options not in ("window", "tree"):  # there every row sees every page
            for b, rows in enumerate((slice(0, 2), slice(2, 3), slice(3, 6))):
                assert (np.isnan(bad.lse[rows]) == wrong[b].any()).all()
                assert (np.isnan(bad.out[rows].astype(float)) == wrong[b].any()).all()
    assert run(BACKEND, args).same_bits(want), "nothing is left behind"


def test_operations_with_nothing_to_do():
    import torch

    import pagedecode

    cache = torch.full((3, 16, 2, 64), 5.0, dtype=torch.float16, device="cuda")
    none = torch.zeros(0, dtype=torch.int64, device="cuda")
    new = torch.zeros(0, 2, 64, dtype=torch.float16, device="cuda")
    pagedecode.append(new, new, cache, cache.clone(), none)
    pagedecode.move(cache, cache.clone(), none, none)
    out, lse = pagedecode.merge_states([new, new], [new[..., 0].float(), new[..., 0].float()])
    assert out.shape == (0, 2, 64) and lse.shape == (0, 2)
    far = torch.tensor([-1, FAR.min, 48, FAR.max, 2**40], device="cuda")
    new = torch.zeros(5, 2, 64, dtype=torch.float16, device="cuda")
    pagedecode.append(new, new, cache, cache.clone(), far)
    pagedecode.move(cache, cache.clone(), far, torch.zeros_like(far))
    pagedecode.move(cache, cache.clone(), torch.zeros_like(far), far)
    assert (cache == 5).all(), "slots outside the pool are skipped"
