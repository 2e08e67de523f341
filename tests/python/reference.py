# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""One naive float64 reference of the contract, in NumPy; it imports nothing of pagedecode.

Per sequence: gather the n live keys through the page table, then for all m rows at once
    logits  [m, Hq, n] -> soft-cap -> ALiBi -> mask -> softmax with the sink in the denominator.
Loops run over sequences; rows, heads and keys are NumPy axes.

Legend: B sequences, T = total_q query rows, Hq and Hkv heads, D head dim, P page size, m rows and n
keys of one sequence.
"""

from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np

FLOAT8 = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


class Pages(NamedTuple):
    """The CSR form of a block table: pages of sequence b are indices[indptr[b]:indptr[b + 1]]."""

    indptr: np.ndarray
    indices: np.ndarray


class RopeSpec(NamedTuple):
    theta: float = 10000.0
    scale: float = 1.0
    interleaved: bool = False


@dataclass
class Sequence:
    """What one sequence of a call is, before any arithmetic."""

    rows: slice  # of the [T, Hq, D] view of q
    m: int
    n: int
    slots: np.ndarray  # [n] slot = page * P + offset of each key
    row_pos: np.ndarray  # [m]
    key_pos: np.ndarray  # [n]
    visible: np.ndarray  # bool [m, n]


def flat_rows(q):
    """q as [T, Hq, D], whichever of its two ranks it has."""
    q = np.asarray(q)
    return q if q.ndim == 3 else q.reshape(q.shape[0] * q.shape[1], *q.shape[2:])


def row_offsets(q, seq_lens, cu_seqlens_q=None):
    """cu_seqlens_q as int64 [B + 1], for 4-d q as well."""
    if cu_seqlens_q is not None:
        return np.asarray(cu_seqlens_q).astype(np.int64)
    return np.arange(len(seq_lens) + 1, dtype=np.int64) * np.shape(q)[1]


def page_ids(block_table, b, count):
    """The first `count` page ids of sequence b."""
    if hasattr(block_table, "indptr"):
        start = int(np.asarray(block_table.indptr)[b])
        return np.asarray(block_table.indices)[start : start + count].astype(np.int64)
    return np.asarray(block_table)[b, :count].astype(np.int64)


def mask_bits(draft_mask, rows, m):
    """bool [m, m] of one sequence, from a bool or a packed uint32 mask."""
    mask = np.asarray(draft_mask)[rows]
    if mask.dtype == np.uint32:
        column = np.arange(m)
        return (mask[:, column // 32] >> (column % 32).astype(np.uint32) & np.uint32(1)) != 0
    return mask[:, :m].astype(bool)


def sequences(
    q,
    page_size,
    block_table,
    seq_lens,
    *,
    cu_seqlens_q=None,
    causal=True,
    draft_mask=None,
    positions=None,
    window_left=-1,
):
    """The list of `Sequence` of a call: rules 1 to 4 of the contract and nothing else."""
    found = []
    offsets = row_offsets(q, seq_lens, cu_seqlens_q)
    for b, n in enumerate(int(x) for x in np.asarray(seq_lens)):
        rows = slice(int(offsets[b]), int(offsets[b + 1]))
        m = rows.stop - rows.start
        key = np.arange(n)
        pages = page_ids(block_table, b, -(-n // page_size))
        slots = pages[key // page_size] * page_size + key % page_size
        row_index = n - m + np.arange(m)  # index of each row's own key
        row_pos = row_index.astype(np.float64)
        if positions is not None:
            row_pos = np.asarray(positions)[rows].astype(np.float64)
        draft = key - (n - m)  # draft column of each key, negative for the prefix
        key_pos = (
            np.where(draft >= 0, row_pos[np.maximum(draft, 0)], key) if m else key.astype(float)
        )
        if draft_mask is not None:
            bits = mask_bits(draft_mask, rows, m)
            visible = np.ones((m, n), bool)
            visible[:, draft >= 0] = bits[:, draft[draft >= 0]]
            visible[row_index < 0] = False  # bits of rows without a key of their own
        elif causal:
            visible = key[None, :] <= row_index[:, None]
        else:
            visible = np.ones((m, n), bool)
        if window_left >= 0:
            visible = visible & (key_pos[None, :] >= row_pos[:, None] - window_left)
        found.append(Sequence(rows, m, n, slots, row_pos, key_pos, visible))
    return found


def as_stored(cache, kv_dtype):
    """A uint8 cache as the type that `kv_dtype` names; any other cache as it is."""
    cache = np.asarray(cache)
    return cache.view(FLOAT8[kv_dtype]) if cache.dtype == np.uint8 else cache


def pair(kv_dtype):
    return kv_dtype if isinstance(kv_dtype, tuple) else (kv_dtype, kv_dtype)


def by_slot(cache, kv_layout):
    """A cache as [num_pages, P, Hkv, D] (a view), whatever its layout."""
    cache = np.asarray(cache)
    return cache if kv_layout == "NHD" else cache.transpose(0, 2, 1, 3)


def head_scale(scale, heads):
    """A scale argument as float64 [Hkv]."""
    if scale is None:
        return np.ones(heads)
    return np.broadcast_to(np.asarray(scale, dtype=np.float64).reshape(-1), (heads,))


def rotate(x, pos, rope):
    """x float64 [T, H, D] rotated at positions [T]."""
    d = x.shape[-1]
    angle = pos[:, None] / rope.scale * rope.theta ** (-2.0 * np.arange(d // 2) / d)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    if rope.interleaved:
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x[..., : d // 2], x[..., d // 2 :]
    out = np.empty_like(x)
    if rope.interleaved:
        out[..., 0::2], out[..., 1::2] = first * cos - second * sin, second * cos + first * sin
    else:
        out[..., : d // 2] = first * cos - second * sin
        out[..., d // 2 :] = second * cos + first * sin
    return out


def softmax(logits, visible, sinks):
    """Probabilities [m, Hq, n] and natural LSE [m, Hq]; hidden keys have probability exactly 0.

    logits [m, Hq, n] float64, visible bool [m, n], sinks float64 [Hq] or None.
    """
    hidden = np.broadcast_to(~visible[:, None, :], logits.shape)
    logits = np.where(hidden, -np.inf, logits)
    top = np.max(logits, axis=-1, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[None, :])
    safe = np.where(np.isneginf(top), 0.0, top)
    weight = np.where(hidden, 0.0, np.exp(logits - safe[..., None]))
    total = weight.sum(axis=-1)
    if sinks is not None:
        total = total + np.exp(sinks[None, :] - safe)
    lse = np.where(total == 0, -np.inf, np.log(np.where(total == 0, 1.0, total)) + safe)
    return weight / np.where(total == 0, 1.0, total)[..., None], lse


def decode_reference(
    q,
    k_cache,
    v_cache,
    block_table,
    seq_lens,
    *,
    cu_seqlens_q=None,
    kv_layout="NHD",
    kv_dtype=None,
    softmax_scale=None,
    causal=True,
    draft_mask=None,
    positions=None,
    window_left=-1,
    softcap=0.0,
    alibi_slopes=None,
    sinks=None,
    rope=None,
    k_scale=None,
    v_scale=None,
    lse_base="e",
    **options,
):
    """(out float64 of q's shape, lse float64 [T, Hq]); rows that belong to no sequence are NaN.

    Takes decode's arguments as NumPy arrays; those that cannot change the result are `options`.
    """
    del options
    rows_q = flat_rows(q)
    total, hq, d = rows_q.shape
    k_dtype, v_dtype = pair(kv_dtype)
    keys = by_slot(as_stored(k_cache, k_dtype), kv_layout)
    values = by_slot(as_stored(v_cache, v_dtype), kv_layout)
    page, hkv = keys.shape[1:3]
    group = hq // hkv
    scale = d**-0.5 if softmax_scale is None else float(softmax_scale)
    sinks = None if sinks is None else np.asarray(sinks, np.float64)
    out = np.full((total, hq, d), np.nan)
    lse = np.full((total, hq), np.nan)
    plan = sequences(
        q,
        page,
        block_table,
        seq_lens,
        cu_seqlens_q=cu_seqlens_q,
        causal=causal,
        draft_mask=draft_mask,
        positions=positions,
        window_left=window_left,
    )
    for seq in plan:
        at = (seq.slots // page, seq.slots % page)
        seen = seq.visible.any(axis=0)  # what no row sees is never read
        k = np.where(seen[:, None, None], keys[at].astype(np.float64), 0.0)
        v = np.where(seen[:, None, None], values[at].astype(np.float64), 0.0)
        k = k * head_scale(k_scale, hkv)[:, None]  # (n, Hkv, D)
        v = v * head_scale(v_scale, hkv)[:, None]
        x = rows_q[seq.rows].astype(np.float64)  # (m, Hq, D)
        if rope is not None:
            x, k = rotate(x, seq.row_pos, rope), rotate(k, seq.key_pos, rope)
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)  # (n, Hq, D)
        with np.errstate(invalid="ignore", over="ignore"):
            logits = scale * np.matmul(x.transpose(1, 0, 2), k.transpose(1, 2, 0))  # (Hq, m, n)
            logits = logits.transpose(1, 0, 2)
            if softcap > 0:
                logits = softcap * np.tanh(logits / softcap)
            if alibi_slopes is not None:
                away = seq.key_pos[None, :] - seq.row_pos[:, None]
                slopes = np.asarray(alibi_slopes, np.float64)
                logits = logits + slopes[None, :, None] * away[:, None, :]
            prob, row_lse = softmax(logits, seq.visible, sinks)
            # A visible value times probability 0 must count, a hidden one (NaN, Inf) must not.
            if np.isfinite(v).all():
                out[seq.rows] = np.matmul(prob.transpose(1, 0, 2), v.transpose(1, 0, 2)).transpose(
                    1, 0, 2
                )
            else:
                for i in range(seq.m):
                    see = seq.visible[i]
                    out[seq.rows.start + i] = np.einsum("hn,nhd->hd", prob[i][:, see], v[see])
        lse[seq.rows] = row_lse
    return out.reshape(np.shape(q)), lse / np.log(2.0) if lse_base == "2" else lse


LIMIT = {
    np.dtype(ml_dtypes.float8_e4m3fn): 448.0,
    np.dtype(ml_dtypes.float8_e5m2): 57344.0,
    np.dtype(np.int8): 127.0,
}


def quantise(x, scale, dtype):
    """x / scale stored as `dtype`: nearest even, saturating 1-byte types, NaN kept in float types.

    The quotient is taken in float32, as every backend does: a float64 quotient can round to the
    other neighbour once in a while.
    """
    dtype = np.dtype(dtype)
    with np.errstate(all="ignore"):
        y = np.asarray(x).astype(np.float32) / np.asarray(scale, np.float32)
        if dtype in LIMIT:
            y = np.where(np.isnan(y), y, np.clip(y, -LIMIT[dtype], LIMIT[dtype]))
        if dtype == np.int8:
            y = np.rint(np.where(np.isnan(y), 0.0, y))
        return y.astype(dtype)


def append_reference(
    k, v, k_cache, v_cache, slots, *, kv_layout="NHD", k_scale=None, v_scale=None, kv_dtype=None
):
    """The two caches after `append`, as new arrays."""
    results = []
    for x, cache, scale, name in zip(
        (k, v), (k_cache, v_cache), (k_scale, v_scale), pair(kv_dtype), strict=True
    ):
        cache = np.array(cache)
        pages = by_slot(as_stored(cache, name), kv_layout)
        page, hkv = pages.shape[1:3]
        stored = quantise(x, head_scale(scale, hkv)[:, None], pages.dtype)
        for token, slot in enumerate(int(s) for s in np.asarray(slots)):
            if slot >= 0:
                pages[slot // page, slot % page] = stored[token]
        results.append(cache)
    return tuple(results)


def slots_reference(block_table, seq_lens, cu_seqlens_q, *, page_size, total_q=None):
    """int64 [total_q]: the slot of each row's own key; -1 where it has none."""
    offsets = np.asarray(cu_seqlens_q).astype(np.int64)
    found = np.full(int(offsets[-1]) if total_q is None else total_q, -1, np.int64)
    for b, n in enumerate(int(x) for x in np.asarray(seq_lens)):
        m = int(offsets[b + 1] - offsets[b])
        pages = page_ids(block_table, b, -(-n // page_size))
        for i in range(m):
            j = n - m + i
            if j >= 0:
                found[offsets[b] + i] = pages[j // page_size] * page_size + j % page_size
    return found


def merge_reference(outs, lses, *, lse_base="e"):
    """(out float64 [rows, Hq, D], lse float64 [rows, Hq]); outs of empty states are not read."""
    unit = np.log(2.0) if lse_base == "2" else 1.0
    part_lse = np.stack([np.asarray(x, np.float64) for x in lses]) * unit
    part_out = np.stack([np.asarray(x).astype(np.float64) for x in outs])
    part_out = np.where(np.isneginf(part_lse)[..., None], 0.0, part_out)
    top = part_lse.max(axis=0)
    safe = np.where(np.isneginf(top), 0.0, top)
    weight = np.exp(part_lse - safe)
    total = weight.sum(axis=0)
    full = np.where(total == 0, 1.0, total)
    out = (weight[..., None] * part_out).sum(axis=0) / full[..., None]
    return out, np.where(total == 0, -np.inf, (np.log(full) + safe)) / unit


def move_reference(k_cache, v_cache, src_slots, dst_slots, *, kv_layout="NHD"):
    """The two caches after `move`, as new arrays: all sources read first; a negative slot skips."""
    results = []
    for cache in (k_cache, v_cache):
        before, cache = np.array(cache), np.array(cache)
        old, new = by_slot(before, kv_layout), by_slot(cache, kv_layout)
        page = new.shape[1]
        for src, dst in zip(
            np.asarray(src_slots).tolist(), np.asarray(dst_slots).tolist(), strict=True
        ):
            if src >= 0 and dst >= 0:
                new[dst // page, dst % page] = old[src // page, src % page]
        results.append(cache)
    return tuple(results)
