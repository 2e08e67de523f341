# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What the bug-case tests share: paged caches with poison in every unused slot, the uniform probe,
and calls whose outputs lie between sentinels.

The uniform probe (q = 0, K = 1, V of key j = unit vector j) shows the exact set of keys that each
row sees, in any type and for any mask: column j is 1 / (visible keys) if key j is visible, else 0.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest

import pagedecode
from backends import convert
from reference import Pages

FP8 = ("float8_e4m3fn", "float8_e5m2")
GUARD = 64  # sentinels on each side of an output: keeps its 16-byte alignment for every type
HUGE = 2**31 - 1  # a table entry that no pool can hold
# Relative to max|V| (contract, "Types and shapes").
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.2e-2}


def np_type(name) -> np.dtype:
    """NumPy's type for a name, the types of ml_dtypes included."""
    name = str(name)
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def is_cuda(backend) -> bool:
    return backend.device == "cuda"


def q_types(backend) -> tuple[str, ...]:
    """The types of q that a backend takes (contract, "Types and shapes"); CuPy has no bfloat16."""
    if backend.name.startswith("cupy"):
        return ("float16",)
    return ("float16", "bfloat16") if is_cuda(backend) else ("float16", "bfloat16", "float32")


def bits(array: np.ndarray) -> np.ndarray:
    """The bytes of an array: NaNs compare too."""
    array = np.ascontiguousarray(array)
    return array.reshape(-1).view(np.uint8)


def same_bits(a, b) -> bool:
    """Equal shape, type and bits, for arrays or tuples of them."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same_bits(x, y) for x, y in zip(a, b, strict=True))
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(bits(a), bits(b))


def close(actual, want, tolerance, scale=1.0) -> None:
    """Compares Inf and NaN masks first, then the finite values (both in float64)."""
    actual, want = np.asarray(actual, np.float64), np.asarray(want, np.float64)
    assert actual.shape == want.shape
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(want), err_msg="NaN at other places")
    infinite = np.isinf(want)
    np.testing.assert_array_equal(np.isinf(actual), infinite, err_msg="Inf at other places")
    np.testing.assert_array_equal(actual[infinite], want[infinite])
    finite = np.isfinite(want)
    if finite.any():
        error = np.abs(actual[finite] - want[finite]).max()
        assert error <= tolerance * scale, f"error {error:.3g}, allowed {tolerance * scale:.3g}"


@contextlib.contextmanager
def refused(*names: str):
    """A ValueError or TypeError (Unsupported is one) whose message holds one of the names."""
    with pytest.raises((ValueError, TypeError)) as info:
        yield
    text = str(info.value)
    assert any(name in text for name in names), f"{text!r} names none of {names}"


# Paged caches -------------------------------------------------------------------------------------


def poisoned(shape, dtype, dead) -> np.ndarray:
    """An array full of `dead`: a number, or "ff" for bytes 0xFF."""
    if dead == "ff":
        return (
            np.full(int(np.prod(shape)) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)
        )
    if dtype == np.int8:
        return np.full(shape, 127 if not np.isfinite(dead) else dead, dtype)
    return np.full(shape, dead, np.float32).astype(dtype)


def pack(
    keys,
    values,
    *,
    page=4,
    layout="NHD",
    dead=np.nan,
    dead_k=None,
    dead_v=None,
    spare=3,
    width=None,
    fill=HUGE,
    index_type=np.int32,
    seed=0,
) -> dict:
    """Lists of [n, Hkv, D] -> k_cache, v_cache, block_table, seq_lens on shuffled page ids, every
    slot that holds no key full of `dead`, every unused table entry `fill`."""
    rng = np.random.default_rng(seed)
    lengths = np.array([len(k) for k in keys], index_type)
    counts = [-(-len(k) // page) for k in keys]
    heads, dim = keys[0].shape[1:] if keys else (2, 64)
    pool = sum(counts) + spare
    ids = rng.permutation(pool)
    width = max(counts, default=0) if width is None else width
    table = np.full((len(keys), width), fill, index_type)
    caches = []
    for rows, dead_one in ((keys, dead_k), (values, dead_v)):
        dtype = rows[0].dtype if rows else np.dtype(np.float16)
        cache = poisoned((pool, page, heads, dim), dtype, dead if dead_one is None else dead_one)
        at = 0
        for b, row in enumerate(rows):
            pages = ids[at : at + counts[b]]
            table[b, : counts[b]] = pages
            slots = (pages[:, None] * page + np.arange(page)).reshape(-1)[: len(row)]
            cache.reshape(pool * page, heads, dim)[slots] = row
            at += counts[b]
        caches.append(np.ascontiguousarray(cache.swapaxes(1, 2)) if layout == "HND" else cache)
    extra = {"kv_layout": layout} if layout != "NHD" else {}
    return dict(k_cache=caches[0], v_cache=caches[1], block_table=table, seq_lens=lengths, **extra)


def offsets(rows, index_type=np.int32) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(rows)]).astype(index_type)


def csr(args: dict, page: int) -> dict:
    """The same call with pagedecode.PageList in place of the table."""
    counts = [-(-int(n) // page) for n in args["seq_lens"]]
    table = args["block_table"]
    indices = [table[b, :c] for b, c in enumerate(counts)]
    flat = np.concatenate(indices) if indices else np.zeros(0, table.dtype)
    return {**args, "block_table": Pages(offsets(counts, table.dtype), flat.astype(table.dtype))}


# What a row sees ----------------------------------------------------------------------------------


def visible(m, n, *, causal=True, window_left=-1, mask=None, positions=None) -> np.ndarray:
    """Boolean [m, n] by rules 1 to 4 of the contract; mask is [m, >= m], positions [m]."""
    row, key = np.arange(m)[:, None], np.arange(n)[None, :]
    row_position = np.arange(n - m, n) if positions is None else np.asarray(positions)
    key_position = np.arange(n)
    first = n - m  # the draft block starts here; keys before 0 do not exist
    key_position[max(first, 0) :] = row_position[max(-first, 0) :]
    if mask is not None:
        seen = np.broadcast_to(key < first, (m, n)).copy()
        seen[:, max(first, 0) :] = np.asarray(mask)[:m, max(-first, 0) : m]
        seen[: max(-first, 0)] = False  # rows without a key of their own
    elif causal:
        seen = key <= first + row
    else:
        seen = np.ones((m, n), bool)
    if window_left >= 0:
        seen = seen & (key_position[None, :] >= row_position[:, None] - window_left)
    return seen


def pack_mask(mask: np.ndarray, rng=None) -> np.ndarray:
    """bool [rows, width] -> uint32 [rows, ceil(width / 32)]; the bits past width are random."""
    rows, width = mask.shape
    words = -(-width // 32)
    wide = np.zeros((rows, words * 32), bool)
    if rng is not None:
        wide[:] = rng.random(wide.shape) < 0.5
    wide[:, :width] = mask
    weights = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (wide.reshape(rows, words, 32) * weights).sum(-1, dtype=np.uint32)


@dataclass
class Probe:
    """A call with q = 0: every visible key weighs the same, so the result is an average."""

    args: dict
    values: list
    rows: list
    group: int
    scale: float = 1.0
    lengths: list = field(default_factory=list)

    def want(self, masks=None, **rules):
        """out [total, Hq, D] and lse [total, Hq] in float64; masks: one [m, m] a sequence."""
        outs, lses = [], []
        for b, (m, v) in enumerate(zip(self.rows, self.values, strict=True)):
            seen = visible(m, len(v), mask=None if masks is None else masks[b], **rules)
            count = seen.sum(1)
            with np.errstate(divide="ignore"):
                lse = np.log(count.astype(np.float64))
            total = np.einsum("mn,nhd->mhd", seen.astype(np.float64), v.astype(np.float64))
            mean = total / np.maximum(count, 1)[:, None, None]
            outs.append(np.repeat(mean, self.group, axis=1))
            lses.append(np.repeat(lse[:, None], outs[-1].shape[1], axis=1))
        return np.concatenate(outs), np.concatenate(lses)

    def check(self, out, lse, masks=None, **rules) -> None:
        want_out, want_lse = self.want(masks, **rules)
        close(lse, want_lse, 1e-3)
        out64 = out.astype(np.float64)
        close(out64.reshape(want_out.shape), want_out, TOLERANCE[str(out.dtype)], self.scale)
        np.testing.assert_array_equal(out64.reshape(want_out.shape)[want_out == 0], 0)


def uniform(
    lengths, rows, *, dim=64, heads=2, group=2, dtype="float16", kv=None, values=None, **options
) -> Probe:
    """The uniform probe for sequences of the given lengths and query rows. values: None for unit
    vectors (dim >= length), "random", or a function b -> number that fills V of sequence b."""
    kv_type, q_type = np_type(kv or dtype), np_type(dtype)
    rng = np.random.default_rng(1)
    keys, vals = [], []
    for b, n in enumerate(lengths):
        keys.append(np.ones((n, heads, dim), np.float32).astype(kv_type))
        if values is None:
            assert dim >= n
            v = np.broadcast_to(np.eye(n, dim, dtype=np.float32)[:, None], (n, heads, dim))
        elif values == "random":
            v = rng.uniform(-1, 1, (n, heads, dim)).astype(np.float32)
        else:
            v = np.full((n, heads, dim), values(b), np.float32)
        vals.append(v.astype(kv_type))
    args = {"q": np.zeros((sum(rows), heads * group, dim), q_type)}
    args.update(pack(keys, vals, **options))
    args["cu_seqlens_q"] = offsets(rows, options.get("index_type", np.int32))
    return Probe(args, vals, list(rows), group, lengths=list(lengths))


def normal(
    lengths,
    rows,
    *,
    dim=64,
    heads=2,
    group=2,
    dtype="float16",
    k_type=None,
    v_type=None,
    seed=0,
    **o,
) -> dict:
    """A call on random data, as `uniform` is on plain data."""
    rng = np.random.default_rng(seed)

    def draw(shape, dtype):
        x = rng.standard_normal(shape, np.float32)
        return (
            (x * 30).round().clip(-127, 127).astype(np.int8)
            if dtype == np.int8
            else x.astype(dtype)
        )

    k_type, v_type = np_type(k_type or dtype), np_type(v_type or k_type or dtype)
    keys = [draw((n, heads, dim), k_type) for n in lengths]
    vals = [draw((n, heads, dim), v_type) for n in lengths]
    args = {"q": draw((sum(rows), heads * group, dim), np_type(dtype))}
    args.update(pack(keys, vals, seed=seed, **o))
    args["cu_seqlens_q"] = offsets(rows, o.get("index_type", np.int32))
    return args


# Calls --------------------------------------------------------------------------------------------


class Guarded:
    """An output between sentinels; `read` checks that they still stand."""

    def __init__(self, backend, shape, dtype, fill=123.0):
        self.backend, self.shape, self.size = backend, shape, int(np.prod(shape))
        whole = np.full(self.size + 2 * GUARD, fill, np.float32).astype(np_type(dtype))
        self.before = whole.copy()
        self.whole = backend.to(whole)
        self.array = self.whole[GUARD : GUARD + self.size].reshape(shape)

    def read(self) -> np.ndarray:
        whole = np.asarray(self.backend.back(self.whole))
        for part in (slice(0, GUARD), slice(GUARD + self.size, None)):
            assert same_bits(whole[part], self.before[part]), "a sentinel beside the output changed"
        return whole[GUARD : GUARD + self.size].reshape(self.shape).copy()


def call(backend, args, *, fill=123.0, out_type=None, **options):
    """decode on a backend, outputs pre-filled and guarded -> NumPy (out, lse)."""
    given = convert(backend, {**args, **options})
    if not backend.writable:  # immutable arrays: the library makes its own
        out, lse = pagedecode.decode(**given, return_lse=True)
        return np.asarray(backend.back(out)), np.asarray(backend.back(lse))
    q = given["q"]
    shape = tuple(q.shape)
    q_type = out_type or np.asarray(backend.back(q)).dtype
    out = Guarded(backend, shape, q_type, fill)
    lse = Guarded(backend, (int(np.prod(shape[:-2])), shape[-2]), "float32", fill)
    got = pagedecode.decode(**given, out=out.array, lse=lse.array)
    assert got[0] is out.array and got[1] is lse.array, "out= and lse= are what is returned"
    return out.read(), lse.read()


def slice_call(args, b, **options) -> dict:
    """The call of sequence b of a ragged table call alone."""
    at = args["cu_seqlens_q"]
    rows = slice(int(at[b]), int(at[b + 1]))
    one = {**args, **options}
    one["q"] = args["q"][rows].copy()
    one["block_table"] = args["block_table"][b : b + 1]
    one["seq_lens"] = args["seq_lens"][b : b + 1]
    one["cu_seqlens_q"] = offsets([rows.stop - rows.start], at.dtype)
    for name in ("positions", "draft_mask"):
        if one.get(name) is not None:
            one[name] = one[name][rows]
    return one
