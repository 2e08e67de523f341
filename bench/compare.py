# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What a row says: our time beside the ceiling, the best peer, and the best peer that keeps 16
bits.

A row of results is plain data: {"case": {...}, "name", "gpu", "bytes", "us": {label: time},
"error": {label: relative error against float64}, "why": {label: reason it did not run}, "kernel":
which one of ours ran}. A label is a provider's name, or "name:variant"; the best variant counts.
"read" is the ceiling."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import published
from .cases import Case

OURS = "pagedecode"
CEILING = "read"
# Relative errors lie near 2e-3 where Q and the probabilities keep 16 bits, near 3.6e-2 where they
# are rounded to fp8; far above that a result is wrong, and its time means nothing.
MAX_16_BIT_ERROR = 1e-2
MAX_ERROR = 0.1

Row = dict[str, Any]
Value = Callable[["Comparison"], float]


@dataclass(frozen=True)
class Peer:
    name: str  # with a star if published, not measured in this run
    us: float
    error: float  # NaN where it was not checked; of a published peer, what is typical

    @property
    def is_published(self) -> bool:
        return self.name.endswith("*")

    @property
    def keeps_16_bits(self) -> bool:
        return self.error <= MAX_16_BIT_ERROR


@dataclass(frozen=True)
class Comparison:
    case: Case
    ours: float  # microseconds; NaN where it did not run
    read: float
    error: float
    peers: tuple[Peer, ...]
    kernel: str = ""  # which one of ours ran

    @property
    def over_read(self) -> float:
        return self.ours / self.read

    @property
    def best(self) -> Peer | None:
        return min(self.peers, key=lambda p: p.us, default=None)

    @property
    def best_16_bit(self) -> Peer | None:
        return min((p for p in self.peers if p.keeps_16_bits), key=lambda p: p.us, default=None)

    @property
    def speedup(self) -> float:
        """Over the best peer; NaN without one."""
        return self.best.us / self.ours if self.best else math.nan

    @property
    def speedup_16_bit(self) -> float:
        return self.best_16_bit.us / self.ours if self.best_16_bit else math.nan


def compare(row: Row) -> Comparison:
    case = Case(**row["case"])
    best: dict[str, Peer] = {}
    for label, us in row["us"].items():
        name = label.split(":")[0]
        if name not in best or us < best[name].us:
            best[name] = Peer(name, us, row["error"].get(label, math.nan))
    if row.get("gpu") == published.GPU:
        for name, us in published.published_us(case).items():
            if name not in best:
                best[name] = Peer(name + "*", us, published.ERROR[case.kv_dtype])
    nothing = Peer("", math.nan, math.nan)
    ours, read = best.pop(OURS, nothing), best.pop(CEILING, nothing)
    peers = tuple(p for p in best.values() if not p.error > MAX_ERROR)
    return Comparison(case, ours.us, read.us, ours.error, peers, row.get("kernel", ""))


def some_round(rows: Iterable[Comparison]) -> bool:
    """Whether any peer rounds Q or the probabilities to fp8, so that two kinds are told apart."""
    return any(p.error > MAX_16_BIT_ERROR for c in rows for p in c.peers)


def geometric_mean(values: Iterable[float]) -> float:
    """Of the values that are numbers; NaN where there is none."""
    logs = [math.log(x) for x in values if not math.isnan(x)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def worst(rows: Iterable[Comparison], value: Value, count: int = 10) -> list[Comparison]:
    """The rows of the smallest values, the smallest first; rows without a value left out."""
    return sorted((r for r in rows if not math.isnan(value(r))), key=value)[:count]
