# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""How a call is timed. Median of repeats; instances rotate so that the caches read are cold; the
providers of a case take turns, so that a change of the machine's state hurts all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Run = Callable[[int], object]


def median(times: list[float]) -> float:
    return sorted(times)[len(times) // 2]


def time_cpu(
    runs: Mapping[str, Run], sets: int, budget_s: float = 0.5, rounds: int = 3
) -> dict[str, float]:
    """Microseconds a call of each, by its best round (by the median): other tenants disturb it."""
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
            us = median(times) * 1e6
            best[name] = min(best.get(name, us), us)
    return best


@dataclass(frozen=True)
class Repeats:
    """Of a CUDA graph: as many replays as fit `budget_s`, within limits."""

    least: int
    most: int
    budget_s: float

    def of(self, replay_us: float) -> int:
        return max(self.least, min(self.most, int(self.budget_s * 1e6 / replay_us)))


def capture(run: Run, sets: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of at least eight calls, and how many they are. Raises what the run raises."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(sets):
            run(i)
    torch.cuda.synchronize()
    loops = max(1, 8 // sets)
    graph = torch.cuda.CUDAGraph()
    # Not torch.cuda.graph(): that gives all cached memory back first, which takes longer than this.
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            for _ in range(loops):
                for i in range(sets):
                    run(i)
        finally:
            graph.capture_end()
    return graph, sets * loops


def _replay_us(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def time_cuda(
    graphs: Mapping[str, tuple[torch.cuda.CUDAGraph, int]], repeats: Repeats
) -> dict[str, float]:
    """Microseconds a call of each: the median of the replays."""
    left: dict[str, int] = {}
    for label, (graph, _) in graphs.items():
        for _ in range(2):
            us = _replay_us(graph)
        left[label] = repeats.of(us)
    times: dict[str, list[float]] = {label: [] for label in graphs}
    for turn in range(max(left.values(), default=0)):
        for label, (graph, calls) in graphs.items():
            if turn < left[label]:
                times[label].append(_replay_us(graph) / calls)
    return {label: median(x) for label, x in times.items()}


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
