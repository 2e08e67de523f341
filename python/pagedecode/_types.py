# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Small values that the functions take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

# An array of any library that speaks DLPack: NumPy (ml_dtypes too), torch, JAX, CuPy.
Array: TypeAlias = Any


class PageList(NamedTuple):
    """The pages of each sequence in CSR form: those of b are ``indices[indptr[b]:indptr[b + 1]]``.

    Attributes
    ----------
    indptr : int32 or int64 [B + 1]
        Offsets into `indices`: they start at 0 and never fall.
    indices : int32 or int64 [num_indices]
        Page ids.
    """

    indptr: Array
    indices: Array


@dataclass(frozen=True)
class Rope:
    """Rotary embedding (Su et al., 2021), put on q and k while they are read.

    Pair t of D / 2 is rotated by ``position / scale * theta ** (-2 t / D)`` radians.

    Attributes
    ----------
    theta : float
        Base of the frequencies, above 0.
    scale : float
        Positions are divided by it (linear scaling), above 0.
    interleaved : bool
        Pairs are (2 t, 2 t + 1), as in GPT-J; otherwise (t, t + D / 2), as in Llama.
    """

    theta: float = 10000.0
    scale: float = 1.0
    interleaved: bool = False


@dataclass(frozen=True)
class Explanation:
    """What a call of `decode` would run, and why.

    Attributes
    ----------
    backend : str
        "cpu" or "cuda".
    kernel : str
        Name of the kernel.
    tiles : tuple of int
        Query rows and keys that are worked on at a time.
    splits : int
        The most parts that the keys of one sequence are cut into.
    why : str
        What decided it, in words.
    """

    backend: str
    kernel: str
    tiles: tuple[int, int]
    splits: int
    why: str
