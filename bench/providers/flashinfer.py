# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""FlashInfer: the fa2 paged wrapper (its plan() is outside the timed call) and XQA.

Without a network and a compiler's minutes: modules compiled ahead under flashinfer/data/aot, with
FLASHINFER_CUDA_ARCH_LIST=9.0a, FLASHINFER_DISABLE_JIT=1 and LD_PRELOAD=libcuda.so.1."""

from __future__ import annotations

from typing import Any

import torch

from ..problem import Problem
from ..timing import Run
from . import Unavailable

WORKSPACE_BYTES = 256 << 20


def _module() -> Any:
    try:
        import flashinfer
    except Exception as e:
        raise Unavailable(f"flashinfer: {e}") from e
    return flashinfer


def provide_fa2(problem: Problem) -> dict[str, Run]:
    flashinfer = _module()
    import flashinfer.prefill as prefill

    # Modules compiled ahead are the plain ones only; the factory that probes for others needs nvcc.
    prefill._gen_batch_prefill_primary_module = prefill.gen_batch_prefill_module
    case = problem.case
    buffer = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(buffer, case.layout, backend="fa2")
    indptr = torch.zeros(case.batch + 1, dtype=torch.int32)
    indptr[1:] = problem.num_pages.cumsum(0)
    last = (problem.lens - 1) % case.page + 1
    # One plan a problem: page counts are the same for every instance, page ids are not.
    wrapper.plan(
        problem.cu_seqlens_q.cpu(),
        indptr,
        problem.instances[0].page_indices,
        last,
        case.hq,
        case.hkv,
        case.d,
        case.page,
        causal=True,
        q_data_type=torch.bfloat16,
        kv_data_type=problem.k.dtype,
    )

    def run(i: int) -> torch.Tensor:
        wrapper._paged_kv_indices_buf = problem.instances[i].page_indices
        return wrapper.run(problem.instances[i].q, (problem.k, problem.v))

    return {"fi-fa2": run}


def provide_xqa(problem: Problem) -> dict[str, Run]:
    flashinfer = _module()
    case = problem.case
    if case.layout != "NHD":
        raise Unavailable("fi-xqa: NHD only here")
    workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    mask = _packed_causal(case.batch, case.q).cuda() if case.q > 1 else None
    lens = problem.seq_lens.view(torch.uint32)
    longest = int(problem.num_pages.max()) * case.page

    def run(i: int) -> torch.Tensor:
        return flashinfer.decode.xqa_batch_decode_with_kv_cache(
            problem.instances[i].q,
            (problem.k, problem.v),
            workspace,
            problem.instances[i].block_table,
            lens,
            longest,
            bmm1_scale=problem.scale,
            bmm2_scale=1.0,
            q_len_per_req=case.q,
            mask=mask,
        ).view(-1, case.hq, case.d)

    return {"fi-xqa": run}


def _packed_causal(batch: int, q: int) -> torch.Tensor:
    """uint16 [batch, q, words]: bit j of row r is set where j <= r."""
    words = (q + 31) // 32 * 2
    mask = torch.zeros(batch, q, words, dtype=torch.int32)
    for r in range(q):
        bits = (1 << (r + 1)) - 1
        for w in range(words):
            mask[:, r, w] = (bits >> (16 * w)) & 0xFFFF
    return mask.to(torch.uint16)
