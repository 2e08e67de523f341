# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""torch: gather the pages into a contiguous cache, then scaled_dot_product_attention.

The query heads of a group are folded into query rows, or, on the CPU, also left to enable_gqa, and
the better one counts (on CUDA a mask sends enable_gqa to unfused products). An fp8 cache is
gathered as it is and then converted to bfloat16."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..problem import Problem
from ..timing import Run
from . import Unavailable


def provide(problem: Problem) -> dict[str, Run]:
    case = problem.case
    if case.skew:
        raise Unavailable("torch-sdpa: one dense call needs uniform lengths")
    b, m, n, hq, hkv, d = case.batch, case.q, case.kv, case.hq, case.hkv, case.d
    mask = None
    if m > 1:
        key = torch.arange(n, device=problem.device)
        mask = key[None, :] <= torch.arange(m, device=problem.device)[:, None] + n - m

    def gather(i: int, cache: torch.Tensor) -> torch.Tensor:  # [B, Hkv, n, D]
        x = cache[problem.instances[i].block_table]
        if case.layout == "HND":
            x = x.transpose(2, 3)
        x = x.reshape(b, -1, hkv, d)[:, :n]
        return (x if x.dtype == torch.bfloat16 else x.to(torch.bfloat16)).transpose(1, 2)

    def with_gqa(i: int) -> torch.Tensor:
        q = problem.instances[i].q.view(b, m, hq, d).transpose(1, 2)
        k, v = gather(i, problem.k), gather(i, problem.v)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        return out.transpose(1, 2).reshape(b * m, hq, d)

    def folded(i: int) -> torch.Tensor:
        q = problem.instances[i].q.view(b, m, hkv, case.group, d).permute(0, 2, 3, 1, 4)
        q = q.reshape(b, hkv, case.group * m, d)
        k, v = gather(i, problem.k), gather(i, problem.v)
        rows = None if mask is None else mask.repeat(case.group, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=rows)
        out = out.view(b, hkv, case.group, m, d).permute(0, 3, 1, 2, 4)
        return out.reshape(b * m, hq, d)

    runs: dict[str, Run] = {"torch-sdpa:folded": folded}
    return runs if problem.device == "cuda" else {"torch-sdpa:gqa": with_gqa, **runs}
