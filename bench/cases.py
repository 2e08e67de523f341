# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Named cases. A case is plain data; a set of cases is a function that yields them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One call to time. Lengths are uniform, or log-normal (sigma 1.2) around kv if skewed."""

    kv_dtype: str  # "bf16" or "e4m3"
    q: int  # query rows of each sequence
    batch: int
    kv: int  # keys of each sequence, the query rows' own included
    hq: int = 64
    hkv: int = 8
    d: int = 128
    page: int = 64
    layout: str = "NHD"
    skew: bool = False

    @property
    def group(self) -> int:
        return self.hq // self.hkv

    @property
    def rows(self) -> int:
        """Query rows that share one read of a KV head."""
        return self.q * self.group

    @property
    def name(self) -> str:
        shape = f"h{self.hq}/{self.hkv}-d{self.d}-p{self.page}-{self.layout}"
        skew = "-skewed" if self.skew else ""
        return f"{self.kv_dtype}-q{self.q}-b{self.batch}-kv{self.kv}{skew}-{shape}"


def cpu() -> Iterator[Case]:
    """What the CPU backend is judged by: about 64 to 130 MB of bf16 cache a call."""
    for kv_dtype in ("bf16", "e4m3"):
        for group in (4, 8):
            for q in (1, 4, 8):
                for batch, kv in ((16, 1024), (4, 8192), (1, 32768)):
                    yield Case(kv_dtype, q, batch, kv, hq=8 * group)


def cpu_smoke() -> Iterator[Case]:
    for kv_dtype in ("bf16", "e4m3"):
        for q in (1, 4):
            yield Case(kv_dtype, q, 2, 1024, hq=32)


def table() -> Iterator[Case]:
    """The 28 rows that the field is compared on: 64 query heads over 8 KV heads, D 128."""
    for kv_dtype in ("bf16", "e4m3"):
        for q in (1, 4):
            for batch, kv in ((1, 8192), (1, 131072), (16, 4096), (64, 1024), (64, 8192)):
                yield Case(kv_dtype, q, batch, kv)
            yield Case(kv_dtype, q, 32, 8192, skew=True)
        for q in (8, 16):
            yield Case(kv_dtype, q, 16, 8192)


def smoke() -> Iterator[Case]:
    for kv_dtype in ("bf16", "e4m3"):
        for q in (1, 4):
            yield Case(kv_dtype, q, 4, 1000)
