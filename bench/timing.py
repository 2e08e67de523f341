# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""How a call is timed. Median of repeats; instances rotate so that the caches read are cold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

Run = Callable[[int], object]


def time_cpu(
    runs: Mapping[str, Run], sets: int, budget_s: float = 0.5, rounds: int = 3
) -> dict[str, float]:
    """Microseconds a call of each. The runs take turns, several rounds, and each one's best round
    (by its median) counts: another tenant of the machine then hurts all alike."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            run(0)
            times: list[float] = []
            start = time.perf_counter()
            while len(times) < 3 or time.perf_counter() - start < budget_s / rounds:
                t0 = time.perf_counter()
                run((len(times) + 1) % sets)
                times.append(time.perf_counter() - t0)
            median = sorted(times)[len(times) // 2] * 1e6
            best[name] = min(best.get(name, median), median)
    return best


def time_cuda_graph(run: Run, sets: int, repeats: int = 30) -> float:
    """Microseconds a call, replayed in a CUDA graph of at least eight calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(sets):
            run(i)
    torch.cuda.synchronize()
    loops = max(1, 8 // sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(loops):
            for i in range(sets):
                run(i)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / (sets * loops))
    return sorted(times)[len(times) // 2]


def time_host(run: Run, calls: int = 2000) -> float:
    """Host microseconds of one eager call, nothing awaited but every 100 calls."""
    best = float("inf")
    for _ in range(calls // 100):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        t0 = time.perf_counter()
        for _ in range(100):
            run(0)
        best = min(best, (time.perf_counter() - t0) / 100 * 1e6)
    return best
