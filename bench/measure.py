# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""One case, all providers: a row of results (see compare.py)."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence

import torch

from .compare import OURS, Row
from .problem import Problem
from .providers import PROVIDERS, Unavailable, ours
from .timing import Repeats, Run, capture, time_cpu, time_cuda

MAX_CACHED_BYTES = 40 << 30  # by torch, between cases: the rest is for who allocates on his own


def measure(problem: Problem, providers: Sequence[str], repeats: Repeats) -> Row:
    """A provider that fails on a case is a result with its reason, not the end of the run."""
    case = problem.case
    row: Row = {
        "name": case.name,
        "case": dataclasses.asdict(case),
        "gpu": torch.cuda.get_device_name() if problem.device == "cuda" else None,
        "bytes": problem.bytes,
        "sets": problem.sets,
        "us": {},
        "error": {},
        "why": {},
    }
    runs: dict[str, Run] = {}
    graphs: dict[str, tuple[torch.cuda.CUDAGraph, int]] = {}
    for name in providers:
        try:
            for label, run in PROVIDERS[name](problem).items():
                out = run(0)
                if isinstance(out, torch.Tensor):
                    row["error"][label] = problem.error(out)
                if problem.device == "cuda":
                    graphs[label] = capture(run, problem.sets)
                runs[label] = run
            if name == OURS:
                row["kernel"] = ours.kernel(problem)
        except Unavailable as e:
            row["why"][name] = str(e)
        except Exception as e:
            row["why"][name] = f"{name}: {' '.join(repr(e).split())[:300]}"
    if problem.device == "cpu":
        row["us"] = time_cpu(runs, problem.sets)
    else:
        row["us"] = time_cuda(graphs, repeats)
    return row


def release() -> None:
    """Frees what the last problem and its graphs held. What lives on, mostly the peers' modules, is
    not looked through again: that took 0.2 s a case, also in each capture of a graph."""
    gc.collect()
    gc.freeze()
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > MAX_CACHED_BYTES:
        torch.cuda.empty_cache()
