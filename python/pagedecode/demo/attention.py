# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Attention of the model: through pagedecode over the paged cache, and plainly for the proof.

PagedAttention is the demo's heart. For each layer it stores the new keys and values of all rows
with one `append`, then computes all rows of all sequences with one ragged multi-query `decode`.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

import pagedecode

from .arrays import Arrays
from .pages import Moves, Pages
from .weights import Config

# Bytes that a scaled cache type can hold, and the room left above the first call's largest value.
LARGEST_STORED = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0, "int8": 127.0}
HEADROOM = 1.25


class PagedAttention:
    """Keys and values of all layers in pages, [num_pages, page, Hkv, D] for each of K and V."""

    def __init__(self, config: Config, arrays: Arrays, pages: Pages, kv_dtype: str, q_dtype: str):
        self.kv_dtype = kv_dtype
        self.q_dtype = q_dtype
        self.seconds = 0.0  # in append, decode and move
        self._arrays = arrays
        self._pages = pages
        shape = (pages.num_pages, pages.page_size, config.kv_heads, config.head_dim)
        self._caches: list[tuple[Any, Any]] = []
        self._named: str | None = None
        for _ in range(config.layers):
            (k_cache, self._named), (v_cache, _) = (arrays.cache(shape, kv_dtype) for _ in "kv")
            self._caches.append((k_cache, v_cache))
        self._scales: list[tuple[np.ndarray, np.ndarray] | None] = [None] * config.layers
        self._device_scales: list[dict[str, Any]] = [{} for _ in range(config.layers)]
        self._step: dict[str, Any] = {}
        self._slots: Any = None

    def begin(self, seqs: Sequence[Hashable], counts: Sequence[int]) -> None:
        """Names the sequences of the next call and their rows, which Pages counts already."""
        up = self._arrays.upload
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        table, lens = up(self._pages.block_table(seqs)), up(self._pages.seq_lens(seqs))
        cu_seqlens_q, page_size = up(offsets), self._pages.page_size
        self._slots = pagedecode.slots(
            table, lens, cu_seqlens_q, page_size=page_size, total_q=int(offsets[-1])
        )
        self._step = {
            "block_table": table,
            "seq_lens": lens,
            "cu_seqlens_q": cu_seqlens_q,
            "max_seqlen_q": max(counts),
        }

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Stores k and v [T, Hkv, D] in this layer's pages, answers attention of q [T, Hq, D]."""
        if self.kv_dtype in LARGEST_STORED and self._scales[layer] is None:
            self._set_scales(layer, k, v)
        k_cache, v_cache = self._caches[layer]
        how = {"kv_dtype": self._named, **self._device_scales[layer]}
        q = self._arrays.cast(q, self.q_dtype)
        out = self._arrays.empty(q.shape)
        started = self._clock()
        pagedecode.append(k, v, k_cache, v_cache, self._slots, **how)
        pagedecode.decode(q, k_cache, v_cache, **self._step, **how, out=out)
        self.seconds += self._clock() - started
        return out

    def move(self, moves: Sequence[Moves]) -> None:
        """Copies slots in every layer: shared pages before they are written, kept tree branches."""
        source, destination = (np.concatenate(side) for side in zip(*moves, strict=True))
        if not source.size:
            return
        started = self._clock()
        source, destination = self._arrays.upload(source), self._arrays.upload(destination)
        for k_cache, v_cache in self._caches:
            pagedecode.move(k_cache, v_cache, source, destination)
        self.seconds += self._clock() - started

    def stored(self, layer: int, seq: Hashable) -> tuple[np.ndarray, np.ndarray]:
        """A sequence's keys and values as attention sees them: float32 [n, Hkv, D], dequantised."""
        table, length = self._pages.block_table([seq])[0], int(self._pages.seq_lens([seq])[0])
        live = self._arrays.upload(table[: -(-length // self._pages.page_size)])
        found = []
        for cache, scale in zip(self._caches[layer], self.scales(layer), strict=True):
            pages = self._arrays.gather(cache, live, self.kv_dtype)
            tokens = pages.reshape(-1, *pages.shape[2:])[:length]
            found.append(tokens * scale[:, None])
        return found[0], found[1]

    def scales(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """k_scale and v_scale, float32 [Hkv] each; 1 where the cache type needs none."""
        ones = np.ones(self._caches[layer][0].shape[2], dtype=np.float32)
        return self._scales[layer] or (ones, ones)

    def _set_scales(self, layer: int, k: Any, v: Any) -> None:
        room = HEADROOM / LARGEST_STORED[self.kv_dtype]
        sizes = (self._arrays.largest(k), self._arrays.largest(v))
        k_scale, v_scale = (np.maximum(size * room, 1e-6).astype(np.float32) for size in sizes)
        self._scales[layer] = k_scale, v_scale
        up = self._arrays.upload
        self._device_scales[layer] = {"k_scale": up(k_scale), "v_scale": up(v_scale)}

    def _clock(self) -> float:
        self._arrays.wait()
        return time.perf_counter()


def plain_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal attention of the last m of n tokens, float32 throughout, every logit formed.

    q [m, Hq, D], k and v [n, Hkv, D]; bottom-right aligned: row i sees keys 0 .. n - m + i.
    """
    m, q_heads, d = q.shape
    n, kv_heads, _ = k.shape
    group = q_heads // kv_heads
    rows = q.reshape(m, kv_heads, group, d).transpose(1, 2, 0, 3).reshape(kv_heads, group * m, d)
    logits = rows @ k.transpose(1, 2, 0) * np.float32(d**-0.5)  # [Hkv, group m, n]
    hidden = np.arange(n) > (n - m + np.arange(m))[:, None]  # [m, n]
    logits = np.where(np.tile(hidden, (group, 1)), np.float32(-np.inf), logits)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    out = (weights / weights.sum(axis=-1, keepdims=True)) @ v.transpose(1, 0, 2)
    out = out.reshape(kv_heads, group, m, d).transpose(2, 0, 1, 3)
    return np.asarray(out.reshape(m, q_heads, d))
