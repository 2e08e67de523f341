# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""pagedecode itself, as a serving engine calls it: ragged form, outputs given."""

from __future__ import annotations

import torch

import pagedecode

from ..problem import Problem
from ..timing import Run


def provide(problem: Problem) -> dict[str, Run]:
    case = problem.case
    out = torch.empty_like(problem.instances[0].q)

    def run(i: int) -> torch.Tensor:
        instance = problem.instances[i]
        pagedecode.decode(
            instance.q,
            problem.k,
            problem.v,
            instance.block_table,
            problem.seq_lens,
            cu_seqlens_q=problem.cu_seqlens_q,
            max_seqlen_q=case.q,
            kv_layout=case.layout,
            out=out,
        )
        return out

    return {"pagedecode": run}
