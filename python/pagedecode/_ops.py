# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What stands beside `decode`: writing and moving cache slots, merging attention states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core  # type: ignore[attr-defined]
from ._arrays import library_of, on_host
from ._counts import count_of
from ._types import Array, PageList


def append(
    k: Array,
    v: Array,
    k_cache: Array,
    v_cache: Array,
    slots: Array,
    *,
    kv_layout: str = "NHD",
    k_scale: float | Array | None = None,
    v_scale: float | Array | None = None,
    kv_dtype: str | tuple[str | None, str | None] | None = None,
    stream: int | None = None,
) -> None:
    """Writes new tokens' K and V into cache slots, as ``x / scale`` in the cache's type.

    Rounds to nearest even; float8_e4m3fn saturates at 448, float8_e5m2 at 57344, int8 at 127. NaN
    stays NaN in float types. Of equal slots either token wins.

    Parameters
    ----------
    k, v : float16, bfloat16 or float32 [T, Hkv, D]
    k_cache, v_cache : as in `decode`
        Written; of types that `decode` reads, uint8 with `kv_dtype`. They may not overlap, though
        `decode` may read one array as both.
    slots : int32 or int64 [T]
        page * P + offset of each token; negative: skip.
    kv_layout, k_scale, v_scale, kv_dtype, stream : as in `decode`

    Raises
    ------
    ValueError, TypeError
        An argument that is not as above, named; TypeError for caches that can never be written
        (JAX). A slot past the pool: ValueError on the CPU, before anything is written; skipped on
        CUDA.
    Unsupported
        A cache type that CUDA does not write.
    """
    _core.append(k, v, k_cache, v_cache, slots, kv_layout, k_scale, v_scale, kv_dtype, stream)


def slots(
    block_table: Array | PageList,
    seq_lens: Array,
    cu_seqlens_q: Array,
    *,
    page_size: int,
    total_q: int | None = None,
    out: Array | None = None,
    stream: int | None = None,
) -> Array:
    """The slot of each query row's own key n - m + i: where `append` puts its K and V.

    Parameters
    ----------
    block_table, seq_lens, cu_seqlens_q : as in `decode`
    page_size : int
        P.
    total_q : int, optional
        Length of the result; default ``cu_seqlens_q[B]``. On CUDA, where nothing is read back,
        this or `out` is needed.
    out : int64 [total_q], optional
        Written and returned.
    stream : as in `decode`

    Returns
    -------
    int64 [total_q]
        Of block_table's library; -1 where n - m + i is negative, and past ``cu_seqlens_q[B]``.

    Raises
    ------
    ValueError, TypeError
        An argument that is not as above, named; on the CPU also lengths and offsets out of range.
    """
    if total_q is not None:
        total_q = count_of(total_q, "total_q")
    table, indptr, indices = block_table, None, None
    like = block_table
    if isinstance(block_table, PageList):
        table, (indptr, indices) = None, block_table
        like = indices
    result = out
    library = None
    if out is None:
        library = library_of(like, "block_table")
        rows = _last_offset(cu_seqlens_q) if total_q is None else total_q
        result = library.empty(like, (rows,), "int64")
    elif total_q is not None and tuple(out.shape) != (total_q,):
        raise ValueError(f"out: got shape {list(out.shape)}, want [total_q = {total_q}]")
    _core.slots(table, indptr, indices, seq_lens, cu_seqlens_q, page_size, result, stream)
    if library is not None and library.hand_over is not None:
        result = library.hand_over(result, like)
    return result


def _last_offset(cu_seqlens_q: Array) -> int:
    if not on_host(cu_seqlens_q, "cu_seqlens_q"):
        raise ValueError("total_q: got None on CUDA, want the length of the result, or out=")
    if len(cu_seqlens_q.shape) != 1 or cu_seqlens_q.shape[0] == 0:
        raise ValueError(f"cu_seqlens_q: got shape {list(cu_seqlens_q.shape)}, want [B + 1]")
    return count_of(cu_seqlens_q[-1].item(), "cu_seqlens_q[-1]")


def merge_states(
    outs: Sequence[Array],
    lses: Sequence[Array],
    *,
    out: Array | None = None,
    lse: Array | None = None,
    lse_base: str = "e",
    stream: int | None = None,
) -> tuple[Array, Array]:
    """Merges attention states of the same rows over disjoint keys into one.

    ``lse = log(sum_i exp(lse_i))``, ``out = sum_i exp(lse_i - lse) out_i`` (cascade inference: Ye
    et al., 2024). A state without keys (its lse -inf, its out never read) changes nothing; two of
    them give (0, -inf). Associative within rounding.

    Parameters
    ----------
    outs : sequence of float32, float16 or bfloat16 [rows, Hq, D]
        One or more, any strides.
    lses : sequence of float32 [rows, Hq]
        One for each of `outs`, any strides.
    out : [rows, Hq, D], optional
        Written and returned; may be one of `outs`. Default: of the type and library of outs[0].
    lse : float32 [rows, Hq], optional
        Written and returned; may be one of `lses`.
    lse_base : {"e", "2"}
        Base of the logarithm of `lses` and of the result.
    stream : as in `decode`

    Returns
    -------
    (out, lse)

    Raises
    ------
    ValueError, TypeError
        An argument that is not as above, named.
    """
    outs, lses = _as_list(outs, "outs"), _as_list(lses, "lses")
    result, result_lse = out, lse
    library = None
    if out is None or lse is None:
        if not outs:
            raise ValueError("outs: got no states, want one or more")
        library = library_of(outs[0], "outs[0]")
        shape = tuple(outs[0].shape)
        if out is None:
            result = library.empty(outs[0], shape, None)
        if lse is None:
            result_lse = library.empty(outs[0], shape[:2], "float32")
    _core.merge_states(outs, lses, result, result_lse, lse_base, stream)
    if library is not None and library.hand_over is not None:
        if out is None:
            result = library.hand_over(result, outs[0])
        if lse is None:
            result_lse = library.hand_over(result_lse, outs[0])
    return result, result_lse


def _as_list(arrays: Any, name: str) -> list[Array]:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name}: got a {type(arrays).__name__}, want a list or tuple of arrays")
    return list(arrays)


def move(
    k_cache: Array,
    v_cache: Array,
    src_slots: Array,
    dst_slots: Array,
    *,
    kv_layout: str = "NHD",
    stream: int | None = None,
) -> None:
    """Copies cache slots, bit for bit; all sources are read before any destination is written.

    Parameters
    ----------
    k_cache, v_cache : as in `decode`
        Read and written; of any type that `decode` reads, or uint8. One array may be both;
        otherwise they may not overlap.
    src_slots, dst_slots : int32 or int64 [T]
        page * P + offset; a pair with a negative member is skipped.
    kv_layout, stream : as in `decode`

    Raises
    ------
    ValueError, TypeError
        An argument that is not as above, named; TypeError for caches that can never be written
        (JAX). A slot past the pool: ValueError on the CPU, before anything is written; skipped on
        CUDA.
    """
    _core.move(k_cache, v_cache, src_slots, dst_slots, kv_layout, stream)


def backends() -> dict[str, dict[str, Any]]:
    """What this build has and what runs here.

    Returns
    -------
    dict
        For "cpu" and "cuda": "built" (bool), "runs" (bool), "why" (str, empty if it runs).
    """
    result: dict[str, dict[str, Any]] = _core.backends()
    return result


def set_num_threads(n: int) -> None:
    """Threads of the CPU backend, the calling one included; also PAGEDECODE_NUM_THREADS.

    Raises
    ------
    ValueError
        If n is less than 1 or more than 1024.
    """
    _core.set_num_threads(n)


def num_threads() -> int:
    """Threads that the CPU backend uses."""
    return int(_core.num_threads())
