# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3 (module flash_attn_interface): metadata precomputed, and for an fp8 cache Q cast
to fp8, both outside the timed call."""

from __future__ import annotations

import torch

from ..problem import Problem
from ..timing import Run
from . import Unavailable


def provide(problem: Problem) -> dict[str, Run]:
    try:
        import flash_attn_interface as fa
    except Exception as e:
        raise Unavailable(f"fa3: {e}") from e
    case = problem.case
    k, v = (x.transpose(1, 2) if case.layout == "HND" else x for x in (problem.k, problem.v))
    queries = [x.q.view(case.batch, case.q, case.hq, case.d) for x in problem.instances]
    scales = {}
    if case.kv_dtype != "bf16":
        one = torch.ones(case.batch, case.hkv, device="cuda")
        queries = [q.to(problem.k.dtype) for q in queries]
        scales = {"q_descale": one, "k_descale": one, "v_descale": one}
    metadata = fa.get_scheduler_metadata(
        case.batch,
        case.q,
        int(problem.lens.max()),
        case.hq,
        case.hkv,
        case.d,
        problem.seq_lens,
        qkv_dtype=queries[0].dtype,
        page_size=case.page,
        causal=True,
    )

    def run(i: int) -> torch.Tensor:
        return fa.flash_attn_with_kvcache(
            queries[i],
            k,
            v,
            cache_seqlens=problem.seq_lens,
            page_table=problem.instances[i].block_table,
            causal=True,
            scheduler_metadata=metadata,
            **scales,
        ).view(-1, case.hq, case.d)

    return {"fa3": run}
