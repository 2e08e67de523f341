# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""A case made concrete: shuffled pages, several instances whose caches together exceed the last
cache level, so that a timed call always reads from memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

from .cases import Case

# Bytes that the rotating instances must exceed: the H200's L2 holds 60 MB; a CPU's last level
# can be several hundred, but is shared with other tenants.
COLD_BYTES = {"cuda": 256e6, "cpu": 400e6}
MAX_SETS = {"cuda": 64, "cpu": 16}
TORCH_DTYPES = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
CHECKED_VALUES = 1 << 27  # of K, in float64, for each sequence that is checked: bounds the memory


@dataclass
class Instance:
    q: torch.Tensor  # [B * m, Hq, D]
    block_table: torch.Tensor  # int32 [B, max_pages]
    page_indices: torch.Tensor  # int32 [sum of pages]


class Problem:
    def __init__(self, case: Case, device: str, seed: int = 1) -> None:
        self.case, self.device = case, device
        gen = torch.Generator().manual_seed(seed)
        self.lens = _lengths(case, gen)
        self.num_pages = (self.lens + case.page - 1) // case.page
        dtype = TORCH_DTYPES[case.kv_dtype]
        self.bytes = int(self.lens.sum()) * case.hkv * case.d * 2 * dtype.itemsize
        self.sets = max(2, min(MAX_SETS[device], math.ceil(COLD_BYTES[device] / self.bytes)))
        total = int(self.num_pages.sum()) * self.sets
        inner = (case.page, case.hkv) if case.layout == "NHD" else (case.hkv, case.page)
        self.k = _random((total, *inner, case.d), device, seed, dtype)
        self.v = _random((total, *inner, case.d), device, seed + 1, dtype)
        self.seq_lens = self.lens.to(device)
        self.cu_seqlens_q = (torch.arange(case.batch + 1, dtype=torch.int32) * case.q).to(device)
        self.scale = case.d**-0.5
        order = torch.Generator(device).manual_seed(seed)
        pages = (
            torch.randperm(total, generator=order, device=device).int().split(total // self.sets)
        )
        self.instances = [self._instance(p, seed + 2 + i) for i, p in enumerate(pages)]

    def _instance(self, pages: torch.Tensor, seed: int) -> Instance:
        case = self.case
        width = int(self.num_pages.max())
        used = (torch.arange(width) < self.num_pages[:, None]).to(self.device)
        table = torch.zeros(case.batch, width, dtype=torch.int32, device=self.device)
        table[used] = pages
        shape = (case.batch * case.q, case.hq, case.d)
        q = _random(shape, self.device, seed, torch.bfloat16)
        return Instance(q, table, pages)

    def _gathered(self, b: int, heads: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        """K or V of one sequence of instance 0 as float64 [n, heads, D]."""
        x = cache[self.instances[0].block_table[b, : int(self.num_pages[b])].long()]
        if self.case.layout == "HND":
            x = x.transpose(1, 2)
        x = x.reshape(-1, self.case.hkv, self.case.d)[: int(self.lens[b])]
        return x[:, heads].float().double()

    @functools.cached_property
    def checked(self) -> list[tuple[slice, torch.Tensor, torch.Tensor]]:
        """(rows, query heads, float64 output) on the stored cache of the first, the last, the
        shortest and the longest sequence of instance 0; of some KV heads where n x D is large."""
        case, result = self.case, []
        for b in {0, case.batch - 1, int(self.lens.argmin()), int(self.lens.argmax())}:
            n = int(self.lens[b])
            count = max(1, min(case.hkv, CHECKED_VALUES // (n * case.d)))
            heads = torch.linspace(0, case.hkv - 1, count).long().to(self.device)
            rows = slice(b * case.q, (b + 1) * case.q)
            q = self.instances[0].q[rows].double().view(case.q, case.hkv, case.group, case.d)
            k, v = self._gathered(b, heads, self.k), self._gathered(b, heads, self.v)
            s = torch.einsum("qhgd,khd->hgqk", q[:, heads], k) * self.scale
            key = torch.arange(n, device=self.device)
            limit = torch.arange(case.q, device=self.device)[:, None] + n - case.q
            s = s.masked_fill(key > limit, float("-inf"))
            out = torch.einsum("hgqk,khd->qhgd", s.softmax(-1), v)
            result.append((rows, heads, out))
        return result

    def error(self, out: torch.Tensor) -> float:
        """Relative error ||out - ref|| / ||ref|| of what instance 0 gave, over the checked rows."""
        case = self.case
        num = den = 0.0
        for rows, heads, ref in self.checked:
            got = out.reshape(-1, case.hkv, case.group, case.d)[rows][:, heads].double()
            num, den = num + float(((got - ref) ** 2).sum()), den + float((ref**2).sum())
        return math.sqrt(num / den)


def _lengths(case: Case, gen: torch.Generator) -> torch.Tensor:
    if not case.skew:
        return torch.full((case.batch,), case.kv, dtype=torch.int32)
    x = torch.exp(torch.randn(case.batch, generator=gen) * 1.2)
    return (x / x.mean() * case.kv).int().clamp(case.q + 1, 131072)


def _random(shape: tuple[int, ...], device: str, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal values, rounded to bfloat16 and then to dtype."""
    gen = torch.Generator(device).manual_seed(seed)
    out = torch.empty(shape, dtype=dtype, device=device)
    for chunk in out.view(-1).split(1 << 26):  # bounds the generator's own scratch
        chunk.copy_(torch.randn(chunk.numel(), generator=gen, device=device).bfloat16())
    return out
