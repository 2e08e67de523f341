# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""A case made concrete: shuffled pages, several instances whose caches together exceed the last
cache level, so that a timed call always reads from memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .cases import Case

# Bytes that the rotating instances must exceed: the H200's L2 holds 60 MB; a CPU's last level
# can be several hundred, but is shared with other tenants.
COLD_BYTES = {"cuda": 256e6, "cpu": 400e6}
TORCH_DTYPES = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}


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
        self.sets = max(2, min(16, math.ceil(COLD_BYTES[device] / self.bytes)))
        total = int(self.num_pages.sum()) * self.sets
        inner = (case.page, case.hkv) if case.layout == "NHD" else (case.hkv, case.page)
        self.k = _random((total, *inner, case.d), device, seed).to(dtype)
        self.v = _random((total, *inner, case.d), device, seed + 1).to(dtype)
        self.seq_lens = self.lens.to(device)
        self.cu_seqlens_q = (torch.arange(case.batch + 1, dtype=torch.int32) * case.q).to(device)
        self.scale = case.d**-0.5
        pages = torch.randperm(total, generator=gen).int().split(int(self.num_pages.sum()))
        self.instances = [self._instance(p, gen) for p in pages]

    def _instance(self, pages: torch.Tensor, gen: torch.Generator) -> Instance:
        case = self.case
        table = torch.zeros(case.batch, int(self.num_pages.max()), dtype=torch.int32)
        for b, ids in enumerate(pages.split(self.num_pages.tolist())):
            table[b, : len(ids)] = ids
        q = torch.randn(case.batch * case.q, case.hq, case.d, generator=gen).bfloat16()
        return Instance(q.to(self.device), table.to(self.device), pages.to(self.device))

    def gathered(self, i: int, b: int, cache: torch.Tensor) -> torch.Tensor:
        """K or V of one sequence as float64 [n, Hkv, D]."""
        n = int(self.lens[b])
        ids = self.instances[i].block_table[b, : int(self.num_pages[b])].long()
        x = cache[ids]
        if self.case.layout == "HND":
            x = x.transpose(1, 2)
        return x.float().double().reshape(-1, self.case.hkv, self.case.d)[:n]

    def error(self, i: int, out: torch.Tensor, sequences: int = 2) -> float:
        """Relative error ||out - ref|| / ||ref|| of the first sequences, in float64."""
        case = self.case
        num = den = 0.0
        for b in range(min(sequences, case.batch)):
            n = int(self.lens[b])
            rows = slice(b * case.q, (b + 1) * case.q)
            q = self.instances[i].q[rows].double().view(case.q, case.hkv, case.group, case.d)
            k, v = self.gathered(i, b, self.k), self.gathered(i, b, self.v)
            s = torch.einsum("qhgd,khd->hgqk", q, k) * self.scale
            key = torch.arange(n, device=self.device)
            limit = torch.arange(case.q, device=self.device)[:, None] + n - case.q
            s = s.masked_fill(key > limit, float("-inf"))
            ref = torch.einsum("hgqk,khd->qhgd", s.softmax(-1), v).reshape(case.q, case.hq, case.d)
            diff = out.view(-1, case.hq, case.d)[rows].double() - ref
            num, den = num + float((diff**2).sum()), den + float((ref**2).sum())
        return (num / den) ** 0.5


def _lengths(case: Case, gen: torch.Generator) -> torch.Tensor:
    if not case.skew:
        return torch.full((case.batch,), case.kv, dtype=torch.int32)
    x = torch.exp(torch.randn(case.batch, generator=gen) * 1.2)
    return (x / x.mean() * case.kv).int().clamp(case.q + 1, 131072)


def _random(shape: tuple[int, ...], device: str, seed: int) -> torch.Tensor:
    gen = torch.Generator(device).manual_seed(seed)
    out = torch.empty(shape, dtype=torch.bfloat16, device=device)
    for chunk in out.view(-1).split(1 << 26):  # bounds the generator's own scratch
        chunk.copy_(torch.randn(chunk.numel(), generator=gen, device=device))
    return out
