# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""`PagedCache`: which page of a pool belongs to which sequence. NumPy only, no device memory.

A sequence is a length and a list of pages. Pages are counted: forks share them, and whoever would
write into a shared page gets a copy of its own first (copy-on-write), told as pairs to `move`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ._counts import count_of, int_of, shown

Slots = npt.NDArray[np.int64]
Pairs = tuple[Slots, Slots]
Indices = npt.NDArray[np.int32]


@dataclass
class _Sequence:
    length: int = 0
    pages: list[int] = field(default_factory=list)


class PagedCache:
    """Host-side page bookkeeping; sequences are any hashable.

    It owns no K or V: it says where tokens go (`append` the function writes them) and which slots
    to `move`. A slot is page * page_size + offset. Calls may come from several threads; moves and
    writes follow in the order of the calls, since pages change hands at once. A call that raises
    changes nothing. Copies (`copy`, `pickle`) are caches of their own with the same state.

    Parameters
    ----------
    num_pages : int
        Pages of the pool.
    page_size : int
        Tokens of a page, P.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = count_of(num_pages, "num_pages")
        self.page_size = count_of(page_size, "page_size", low=1)
        self._free = list(range(self.num_pages - 1, -1, -1))
        self._uses = np.zeros(self.num_pages, np.int64)
        self._sequences: dict[Hashable, _Sequence] = {}
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return (
            f"PagedCache(num_pages={self.num_pages}, page_size={self.page_size}): "
            f"{len(self._sequences)} sequences, {self.num_free} pages free"
        )

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = dict(self.__dict__)
            del state["_lock"]
            state["_free"] = list(self._free)
            state["_uses"] = self._uses.copy()
            state["_sequences"] = {
                seq: _Sequence(s.length, list(s.pages)) for seq, s in self._sequences.items()
            }
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    @property
    def num_free(self) -> int:
        """Pages that belong to no sequence."""
        return len(self._free)

    def append(self, seq: Hashable, count: int) -> tuple[Slots, Pairs]:
        """Makes room for `count` new tokens of a sequence, which begins here if it is unknown.

        Returns
        -------
        slots : int64 [count]
            Where the new tokens go.
        (src_slots, dst_slots) : int64 [c], int64 [c]
            Pairs to `move` before the tokens are written: the last page was partial and shared,
            and is now a copy. Empty otherwise.

        Raises
        ------
        MemoryError
            Out of pages.
        ValueError, TypeError
            count is negative or no int, seq cannot be hashed; named.
        """
        count = int_of(count, "count")
        if count < 0:
            raise ValueError(f"count: got {shown(count)}, want 0 or more")
        with self._lock:
            s = self._get(seq, "seq") or _Sequence()
            tail = s.length % self.page_size
            copied = count > 0 and tail > 0 and self._uses[s.pages[-1]] > 1
            total = -(-(s.length + count) // self.page_size)
            fresh = self._take(total - len(s.pages) + int(copied))
            shared = s.pages[-1:] if copied else []
            pages = s.pages[: len(s.pages) - len(shared)] + fresh
            try:
                new = self._slots(pages, np.arange(s.length, s.length + count))
                pairs = self._same_offsets(shared[0], fresh[0], tail) if copied else _pairs([], [])
            except MemoryError:  # the host's, for the arrays
                self._drop(fresh)
                raise

            self._drop(shared)
            s.pages = pages
            s.length += count
            self._sequences[seq] = s
            return new, pairs

    def keep(self, seq: Hashable, count: int, accepted: Iterable[int]) -> Pairs:
        """Of the last `count` tokens (a draft) keeps `accepted`, in that order; drops the rest.

        Parameters
        ----------
        count : int
            Tokens of the draft, at most the sequence's length.
        accepted : int [a]
            Distinct indices into the draft, 0 .. count - 1.

        Returns
        -------
        (src_slots, dst_slots) : int64 [c], int64 [c]
            Pairs to `move` before anything is appended: tokens that change place, and what a page
            shared with a fork holds, where it would be written and is now a copy.

        Raises
        ------
        KeyError
            Unknown sequence.
        ValueError
            count is beyond the length, or an index is out of range or there twice.
        MemoryError
            Out of pages for a copy.
        """
        count = int_of(count, "count")
        indices = [
            int_of(index, f"accepted[{i}]")
            for i, index in enumerate(_items(accepted, "accepted", "indices into the draft"))
        ]
        with self._lock:
            s = self._find(seq)
            if not 0 <= count <= s.length:
                raise ValueError(f"count: got {shown(count)}, want 0 to the length, {s.length}")
            for i, index in enumerate(indices):
                if not 0 <= index < count:
                    raise ValueError(
                        f"accepted[{i}]: got {shown(index)}, want an index below count = {count}"
                    )
            chosen = np.array(indices, np.int64)
            if np.unique(chosen).size != chosen.size:
                raise ValueError(f"accepted: got {chosen.tolist()}, want each index once")

            # origin[i]: the position that the token at base + i comes from.
            base = s.length - count
            length = base + chosen.size
            origin = base + chosen
            target = np.arange(base, length)
            moved = np.unique(target[origin != target] // self.page_size)
            shared = [int(j) for j in moved if self._uses[s.pages[j]] > 1]

            # Copies go to pages that this call drops, where it can: in a full pool, too, a draft is
            # rejected. (`move` reads such a page's tokens before it writes there.)
            kept_pages = -(-length // self.page_size)
            dropped = s.pages[kept_pages:]
            own = [page for page in dropped if self._uses[page] == 1][: len(shared)]
            copies = own + self._take(len(shared) - len(own))

            old_pages = list(s.pages)
            for j, page in zip(shared, copies, strict=True):
                s.pages[j] = page
            # Every surviving token of a copied page, and every other that changes place.
            first = min([base, *(j * self.page_size for j in shared)])
            position = np.arange(first, length)
            came_from = np.concatenate([np.arange(first, base), origin])
            src = self._slots(old_pages, came_from)
            dst = self._slots(s.pages, position)
            self._drop([old_pages[j] for j in shared] + [p for p in dropped if p not in own])
            del s.pages[kept_pages:]
            s.length = length
            return src[src != dst], dst[src != dst]

    def truncate(self, seq: Hashable, length: int) -> None:
        """Drops the tokens at and past `length`.

        Raises
        ------
        KeyError
            Unknown sequence.
        ValueError
            length is negative or beyond the sequence's.
        """
        length = int_of(length, "length")
        with self._lock:
            s = self._find(seq)
            if not 0 <= length <= s.length:
                raise ValueError(f"length: got {shown(length)}, want 0 to the length, {s.length}")
            kept = -(-length // self.page_size)
            self._drop(s.pages[kept:])
            del s.pages[kept:]
            s.length = length

    def fork(self, seq: Hashable, new_seq: Hashable) -> None:
        """Begins `new_seq` as a copy of `seq` that shares its pages.

        Raises
        ------
        KeyError
            Unknown sequence.
        ValueError
            new_seq is there already.
        """
        with self._lock:
            s = self._find(seq)
            if self._get(new_seq, "new_seq") is not None:
                raise ValueError(f"new_seq: got {new_seq!r}, which is there, want a new one")
            self._sequences[new_seq] = _Sequence(s.length, list(s.pages))
            self._uses[s.pages] += 1

    def free(self, seq: Hashable) -> None:
        """Ends a sequence and gives back the pages that no fork shares.

        Raises
        ------
        KeyError
            Unknown sequence.
        """
        with self._lock:
            self._drop(self._find(seq).pages)
            del self._sequences[seq]

    def block_table(self, seqs: Iterable[Hashable], width: int | None = None) -> Indices:
        """Page ids of sequences, padded with -1.

        Parameters
        ----------
        width : int, optional
            Columns of the table; default: the most pages that one of `seqs` has.

        Returns
        -------
        int32 [len(seqs), width]

        Raises
        ------
        KeyError
            Unknown sequence.
        ValueError
            width is less than the pages of a sequence.
        """
        with self._lock:
            pages = [self._find(seq).pages for seq in _sequences(seqs)]
            needed = max(map(len, pages), default=0)
            width = needed if width is None else count_of(width, "width", low=needed)
            table = np.full((len(pages), width), -1, np.int32)
            for row, ids in zip(table, pages, strict=True):
                row[: len(ids)] = ids
            return table

    def seq_lens(self, seqs: Iterable[Hashable]) -> Indices:
        """Lengths of sequences, int32 [len(seqs)].

        Raises
        ------
        KeyError
            Unknown sequence.
        """
        with self._lock:
            return np.array([self._find(seq).length for seq in _sequences(seqs)], np.int32)

    def _get(self, seq: Hashable, name: str) -> _Sequence | None:
        try:
            return self._sequences.get(seq)
        except TypeError:
            raise TypeError(f"{name}: got a {type(seq).__name__}, want a hashable") from None

    def _find(self, seq: Hashable) -> _Sequence:
        found = self._get(seq, "seq")
        if found is None:
            raise KeyError(f"seq: got {seq!r}, want a sequence that was appended to or forked")
        return found

    def _take(self, count: int) -> list[int]:
        """`count` free pages, now used once."""
        if count > len(self._free):
            raise MemoryError(
                f"out of pages: {shown(count)} wanted, {len(self._free)} of {self.num_pages} free"
            )
        pages = [self._free.pop() for _ in range(count)]
        self._uses[pages] = 1
        return pages

    def _drop(self, pages: list[int]) -> None:
        """One use less of each; pages without any are free again."""
        for page in reversed(pages):
            self._uses[page] -= 1
            if self._uses[page] == 0:
                self._free.append(page)

    def _slots(self, pages: list[int], positions: npt.NDArray[np.int64]) -> Slots:
        ids = np.array(pages, np.int64)
        return ids[positions // self.page_size] * self.page_size + positions % self.page_size

    def _same_offsets(self, old: int, new: int, count: int) -> Pairs:
        offsets = np.arange(count, dtype=np.int64)
        return old * self.page_size + offsets, new * self.page_size + offsets


def _pairs(src: list[int], dst: list[int]) -> Pairs:
    return np.array(src, np.int64), np.array(dst, np.int64)


def _items(values: Any, name: str, what: str) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise TypeError(
            f"{name}: got a {type(values).__name__}, want a list or other iterable of {what}"
        ) from None


def _sequences(seqs: Any) -> list[Hashable]:
    if isinstance(seqs, (str, bytes)):
        raise TypeError(f"seqs: got {seqs!r}, want a list of sequences, [{seqs!r}] for this one")
    return _items(seqs, "seqs", "sequences")
