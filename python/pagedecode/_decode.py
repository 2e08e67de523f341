# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""`decode`, and the calls that take its arguments."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from . import _core  # type: ignore[attr-defined]
from ._arrays import library_of
from ._types import Array, Explanation, PageList, Rope


def decode(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    block_table: Array | PageList,
    seq_lens: Array,
    *,
    cu_seqlens_q: Array | None = None,
    max_seqlen_q: int | None = None,
    kv_layout: str = "NHD",
    kv_dtype: str | tuple[str | None, str | None] | None = None,
    softmax_scale: float | None = None,
    causal: bool = True,
    draft_mask: Array | None = None,
    positions: Array | None = None,
    window_left: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
    rope: Rope | None = None,
    k_scale: float | Array | None = None,
    v_scale: float | Array | None = None,
    out: Array | None = None,
    lse: Array | None = None,
    return_lse: bool = False,
    lse_base: str = "e",
    num_splits: int | None = None,
    batch_invariant: bool = False,
    workspace: Array | None = None,
    stream: int | None = None,
) -> Any:
    """Attention of a few query rows of each sequence over its paged KV cache.

    Symbols: B sequences, Hq query heads, Hkv KV heads, D head dim, P page size; m query rows and n
    keys of one sequence. For query row i, key j has logit
    ``s = softmax_scale * <q_i, k_j * k_scale>``, then ``softcap * tanh(s / softcap)``, then
    ``+ alibi_slope * (pos(j) - pos(i))``, then the mask; then softmax over the visible keys with
    ``exp(sink)`` added to the denominator; ``out_i = sum_j p_j * v_j * v_scale``. (Flash-decoding:
    Dao et al., 2023; the paged cache: Kwon et al., 2023.)

    Arrays come from any library that speaks DLPack and live on one device; NumPy arrays (bfloat16
    and float8 as ml_dtypes) run on the CPU backend.

    Limits: sums of ``p_j * v_j`` are float32 before they are normalised and scaled, so values of V
    within a factor n of float32's maximum may give inf; to ALiBi, positions beyond 2**61 in size
    are 2**61.

    Parameters
    ----------
    q : float16, bfloat16 or (CPU) float32 [total_q, Hq, D] or [B, m, Hq, D]
        Query rows: the first form with `cu_seqlens_q`, the second without. Hq is a multiple of
        Hkv, at most 128 times it; D a multiple of 8 up to 256.
    k_cache, v_cache : [num_pages, P, Hkv, D] ("NHD") or [num_pages, Hkv, P, D] ("HND")
        On the CPU float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8, each its own; on
        CUDA q's type, float8_e4m3fn, float8_e5m2 or int8. uint8 with `kv_dtype`.
    block_table : int32 or int64 [B, max_pages], or PageList
        Page ids of each sequence. Entries past ceil(n / P) are never followed.
    seq_lens : int32 or int64 [B]
        n: the keys in the cache, those of the m rows included.
    cu_seqlens_q : int32 or int64 [B + 1], optional
        Rows of sequence b are ``cu_seqlens_q[b]`` up to ``cu_seqlens_q[b + 1]``; m may be 0.
    max_seqlen_q : int, optional
        Upper bound of m. On CUDA it saves the kernel from assuming total_q.
    kv_layout : {"NHD", "HND"}
        Order of the caches' dimensions.
    kv_dtype : str or pair of str, optional
        What uint8 caches hold: "float8_e4m3fn" or "float8_e5m2"; a pair for K and V.
    softmax_scale : float, optional
        Default ``D ** -0.5``.
    causal : bool
        Bottom-right aligned: row i sees keys 0 .. n - m + i.
    draft_mask : bool [total_q, width] or uint32 [total_q, ceil(width / 32)], optional
        Takes the place of `causal` inside the draft block: key n - m + j is visible to row i where
        bit (i, j) is set; bit j of word w is column 32 w + j. The width is the largest m of the
        call (`max_seqlen_q` where given), or that rounded up to a multiple of 32. A row without a
        key of its own (i < m - n) sees nothing, whatever its bits.
    positions : int32 or int64 [total_q], optional
        Position of each row, and of its own key; default n - m + i.
    window_left : int
        Key j is visible to row i if ``pos(j) >= pos(i) - window_left``; -1: all.
    softcap : float
        0 is off.
    alibi_slopes, sinks : float32 [Hq], optional
        Slopes of the position bias; logits in the softmax denominator only.
    rope : Rope, optional
        Rotates q and k while reading.
    k_scale, v_scale : float or float32 [1] or [Hkv], optional
        ``real = stored * scale``, for every cache type. A number must be finite and above 0; what
        an array holds is not looked at.
    out : q's type, float32, float16 or bfloat16, q's shape, optional
        Written and returned. May be strided, may overlap no other argument.
    lse : float32 [total_q, Hq], optional
        Written; given, the pair is returned, as with `return_lse`.
    return_lse : bool
        Return the pair (out, lse).
    lse_base : {"e", "2"}
        Base of the logarithm in `lse`.
    num_splits : int, optional
        Parts that the keys of a sequence are cut into; default: the library decides.
    batch_invariant : bool
        A row's bits depend on its own sequence alone: not on the rest of the batch, on m, on page
        ids or on threads. Not together with `num_splits`.
    workspace : uint8 [workspace_size(...)] or longer, optional
        Zeroed once before its first use, contiguous, aligned to 16 bytes; default: the library's
        own. It may not be used by two calls at a time. On CUDA, the call's stream has to wait for
        the zeros: a call that finds other values there may give wrong rows, or wait for ever.
    stream : int, optional
        Raw CUDA stream; default: the current one of q's library. On the CPU only None.

    Returns
    -------
    out : array of q's library, q's shape and type
        Rows that see no key are 0; rows at or past ``cu_seqlens_q[B]`` are not written.
    lse : float32 [total_q, Hq]
        Only with `return_lse` or `lse`: the log of the denominator; -inf where a row sees no key
        (its sink where there is one).

    Raises
    ------
    ValueError, TypeError
        An argument that no backend takes; the message begins with its name. On the CPU also
        lengths, offsets and live page ids out of range (on CUDA: `check`).
    Unsupported
        What the backend of the arrays' device cannot do.
    """
    if return_lse is not True and return_lse is not False:
        return_lse = _bool_of(return_lse, "return_lse")
    result, result_lse = out, lse
    library = None
    if out is None:
        library = library_of(q, "q")
        result = library.empty(q, q.shape, None)
    if return_lse and lse is None:
        library = library or library_of(q, "q")
        result_lse = library.empty(q, _lse_shape(q), "float32")
    table, indptr, indices = block_table, None, None
    if isinstance(block_table, PageList):
        table, (indptr, indices) = None, block_table
    _core.decode(
        q,
        k_cache,
        v_cache,
        table,
        indptr,
        indices,
        seq_lens,
        cu_seqlens_q,
        max_seqlen_q,
        kv_layout,
        kv_dtype,
        softmax_scale,
        causal,
        draft_mask,
        positions,
        window_left,
        softcap,
        alibi_slopes,
        sinks,
        rope,
        k_scale,
        v_scale,
        result,
        result_lse,
        lse_base,
        num_splits,
        batch_invariant,
        workspace,
        stream,
    )
    if library is not None and library.hand_over is not None:
        if out is None:
            result = library.hand_over(result, q)
        if lse is None and result_lse is not None:
            result_lse = library.hand_over(result_lse, q)
    return result if result_lse is None else (result, result_lse)


def _bool_of(value: Any, name: str) -> bool:
    """A bool; one of NumPy, too."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name}: got a {type(value).__name__}, want True or False")


def _lse_shape(q: Array) -> tuple[int, ...]:
    """[total_q, Hq]; anything for a q that will be refused for its rank."""
    shape = tuple(q.shape)
    if len(shape) == 4:
        return (shape[0] * shape[1], shape[2])
    return shape[:2]


_SIGNATURE = inspect.signature(decode)


def _pack(args: tuple[Any, ...], kw: dict[str, Any]) -> list[Any]:
    """decode's arguments in the order of `_core`; `out` and `lse` only where they were given."""
    bound = _SIGNATURE.bind(*args, **kw)
    bound.apply_defaults()
    values = dict(bound.arguments)
    _bool_of(values.pop("return_lse"), "return_lse")
    table = values.pop("block_table")
    pages = (None, *table) if isinstance(table, PageList) else (table, None, None)
    q, k_cache, v_cache, *rest = values.values()
    return [q, k_cache, v_cache, *pages, *rest]


def check(*args: Any, **kw: Any) -> None:
    """Every check of a call of `decode`, contents included; the arguments are decode's.

    On CUDA it reads lengths, offsets and page ids back, and waits for them.

    Raises
    ------
    ValueError, TypeError, Unsupported
        As `decode` does.
    """
    _core.check(*_pack(args, kw))


def workspace_size(*args: Any, **kw: Any) -> int:
    """Bytes that `workspace` must have for a call of `decode`; the arguments are decode's.

    It depends on shapes and options, never on what arrays hold.
    """
    return int(_core.workspace_size(*_pack(args, kw)))


def explain(*args: Any, **kw: Any) -> Explanation:
    """What a call of `decode` would run, and why; the arguments are decode's. Nothing is run."""
    backend, kernel, rows, keys, splits, why = _core.explain(*_pack(args, kw))
    return Explanation(backend, kernel, (rows, keys), splits, why)
