# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What the CUDA kernels must reach in the 28 rows of the table, as data and as a verdict for a row.

Rows (q x group) up to 32: 1.05 x the ceiling + 2.5 us. 64 rows: 1.12 x, or 1.5 x over an e4m3
cache. 128 rows: 1.3 x, or, over an e4m3 cache, 1.5 times as fast as the best peer that keeps 16
bits (fp8 matrix rates are out of reach of 16-bit arithmetic there). Everywhere but in that last
corner: never slower than the best peer, those that round Q to fp8 included. Everywhere: relative
error at most 3e-3."""

from __future__ import annotations

import math
from dataclasses import dataclass

from . import published
from .cases import Case, table
from .compare import Comparison, Row, geometric_mean

MAX_ERROR = 3e-3
FEW_ROWS, FEW_ROWS_SHARE, FEW_ROWS_US = 32, 1.05, 2.5
SHARES = {(64, "bf16"): 1.12, (64, "e4m3"): 1.5, (128, "bf16"): 1.3}  # of the ceiling, by rows
SPEEDUP_128_E4M3 = 1.5  # over the best 16-bit peer
# Geometric means of the speed-up, by the cache's type: over the best peer, the best 16-bit peer.
MEANS = {"bf16": 1.10, "e4m3": 1.22}
MEAN_16_BIT_E4M3 = 2.2


@dataclass(frozen=True)
class Verdict:
    limit_us: float  # the smallest of the limits; NaN where none could be computed
    missed: tuple[str, ...]  # of "ceiling", "peer", "16-bit peer", "error"

    def __str__(self) -> str:
        return "no: " + ", ".join(self.missed) if self.missed else "yes"


TABLE = frozenset(table())


def applies(row: Row) -> bool:
    """To the cases of the table, on the GPU that they were drawn up for."""
    return row.get("gpu") == published.GPU and Case(**row["case"]) in TABLE


def verdict(c: Comparison) -> Verdict:
    limits: dict[str, float] = {}
    hard_corner = c.case.rows > 64 and c.case.kv_dtype != "bf16"
    if c.case.rows <= FEW_ROWS:
        limits["ceiling"] = FEW_ROWS_SHARE * c.read + FEW_ROWS_US
    elif not hard_corner:
        limits["ceiling"] = SHARES[64 if c.case.rows <= 64 else 128, c.case.kv_dtype] * c.read
    elif c.best_16_bit:
        limits["16-bit peer"] = c.best_16_bit.us / SPEEDUP_128_E4M3
    if c.best and not hard_corner:
        limits["peer"] = c.best.us
    limits = {name: us for name, us in limits.items() if not math.isnan(us)}
    missed = [name for name, us in limits.items() if not c.ours <= us]
    if not c.error <= MAX_ERROR:
        missed.append("error")
    return Verdict(min(limits.values(), default=math.nan), tuple(missed))


def means(rows: list[Comparison]) -> list[tuple[str, float, float]]:
    """(what, reached, wanted) of the geometric means, for the cache types that the rows have."""
    result = []
    for dtype, wanted in MEANS.items():
        mine = [c for c in rows if c.case.kv_dtype == dtype]
        result.append(
            (f"{dtype}: over the best peer", geometric_mean(c.speedup for c in mine), wanted)
        )
        if dtype != "bf16":
            mean = geometric_mean(c.speedup_16_bit for c in mine)
            result.append((f"{dtype}: over the best 16-bit peer", mean, MEAN_16_BIT_E4M3))
    return [x for x in result if not math.isnan(x[1])]
