# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""pagedecode itself, as a serving engine calls it: ragged form, outputs given."""

from __future__ import annotations

from typing import Any

import torch

import pagedecode

from ..problem import Problem
from ..timing import Run


def provide(problem: Problem) -> dict[str, Run]:
    out = torch.empty_like(problem.instances[0].q)
    calls = [_arguments(problem, i) for i in range(problem.sets)]

    def run(i: int) -> torch.Tensor:
        positional, named = calls[i]
        pagedecode.decode(*positional, **named, out=out)
        return out

    return {"pagedecode": run}


def kernel(problem: Problem) -> str:
    """Which kernel a call runs."""
    positional, named = _arguments(problem, 0)
    return str(pagedecode.explain(*positional, **named).kernel)


def _arguments(problem: Problem, i: int) -> tuple[list[torch.Tensor], dict[str, Any]]:
    case, x = problem.case, problem.instances[i]
    return [x.q, problem.k, problem.v, x.block_table, problem.seq_lens], dict(
        cu_seqlens_q=problem.cu_seqlens_q, max_seqlen_q=case.q, kv_layout=case.layout
    )
