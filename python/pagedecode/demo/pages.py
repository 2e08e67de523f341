# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Host-side pages: `pagedecode.PagedCache` with physical page ids shuffled by a seed.

A fresh cache hands out its pages in order, which would hide errors of paging. Here page i of the
book-keeping is page `order[i]` of the pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

import pagedecode

Moves = tuple[np.ndarray, np.ndarray]  # source and destination slots


class Pages:
    """PagedCache's calls, with shuffled page ids in every answer."""

    def __init__(self, num_pages: int, page_size: int, seed: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._cache = pagedecode.PagedCache(num_pages, page_size)
        self._order = np.random.default_rng(seed).permutation(num_pages)

    def append(self, seq: Hashable, count: int) -> Moves:
        """Makes room for `count` tokens; answers the copies to make first (copy on write)."""
        _, (source, destination) = self._cache.append(seq, count)
        return self._shuffle(source), self._shuffle(destination)

    def keep(self, seq: Hashable, count: int, accepted: Sequence[int]) -> Moves:
        """Of the last `count` tokens keeps those accepted; answers the slots to move."""
        source, destination = self._cache.keep(seq, count, accepted)
        return self._shuffle(source), self._shuffle(destination)

    def fork(self, seq: Hashable, new_seq: Hashable) -> None:
        """A second sequence on the same pages."""
        self._cache.fork(seq, new_seq)

    def free(self, seq: Hashable) -> None:
        """Gives a sequence's pages back."""
        self._cache.free(seq)

    def block_table(self, seqs: Sequence[Hashable]) -> np.ndarray:
        """Page ids, int32 [B, max_pages]; unused entries are negative."""
        table = np.asarray(self._cache.block_table(seqs))
        live = (table >= 0) & (table < self.num_pages)
        return np.where(live, self._order[np.where(live, table, 0)], -1).astype(np.int32)

    def seq_lens(self, seqs: Sequence[Hashable]) -> np.ndarray:
        """Tokens of each sequence, int32 [B]."""
        return np.asarray(self._cache.seq_lens(seqs)).astype(np.int32)

    def _shuffle(self, slots: np.ndarray) -> np.ndarray:
        page, offset = np.divmod(np.asarray(slots, dtype=np.int64), self.page_size)
        return np.asarray(self._order[page] * self.page_size + offset)
