# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's fork of FlashAttention-3, out of an unpacked vllm wheel (0.33.0 was tried) without
importing the rest of it. Metadata precomputed, and for an fp8 cache Q cast to fp8, outside the
timed call."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import torch

from ..problem import Problem
from ..timing import Run
from . import Unavailable

LIBRARY = "vllm_flash_attn/_vllm_fa3_C.abi3.so"


def _ops() -> Any:
    spec = importlib.util.find_spec("vllm")
    found = [pathlib.Path(x) / LIBRARY for x in (spec and spec.submodule_search_locations) or ()]
    try:
        torch.ops.load_library(str(next(x for x in found if x.exists())))
    except StopIteration:
        raise Unavailable(f"vllm-fa3: no vllm with {LIBRARY} here") from None
    except Exception as e:
        raise Unavailable(f"vllm-fa3: {e}") from e
    return torch.ops._vllm_fa3_C


def provide(problem: Problem) -> dict[str, Run]:
    ops, case = _ops(), problem.case
    queries, scales = [x.q for x in problem.instances], (None, None, None)
    if case.kv_dtype != "bf16":
        queries = [q.to(problem.k.dtype) for q in queries]
        scales = (torch.ones(case.batch, case.hkv, device="cuda"),) * 3
    k, v = (x.transpose(1, 2) if case.layout == "HND" else x for x in (problem.k, problem.v))
    out = torch.empty_like(problem.instances[0].q)
    cu_seqlens_q, lens, longest = problem.cu_seqlens_q, problem.seq_lens, int(problem.lens.max())
    metadata = ops.get_scheduler_metadata(
        *(case.batch, case.q, longest, case.hq, case.hkv, case.d, case.d, queries[0].dtype),
        *(lens, cu_seqlens_q, None, None, None, None, case.page, 0),
        *(True, -1, -1, False, 0, None, 0),  # causal, window, softcap, splits, pack_gqa, margin
    )

    def run(i: int) -> torch.Tensor:
        return ops.fwd(
            *(queries[i], k, v, None, None, None, out, cu_seqlens_q, None, None, None, lens),
            *(case.q, longest, problem.instances[i].block_table, None, None, None, None, None),
            *scales,
            *(problem.scale, True, -1, -1, 0.0, True, metadata, 0, None, 0, None, 1, 0, None),
        )[0]

    return {"vllm-fa3": run}
