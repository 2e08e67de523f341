# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Decode problems for tests: `make_case` builds one in NumPy, `CASES` is the standing list.

Everything that must not matter is poisoned: slots at or past n, unused pages and keys that no row
sees hold NaN or Inf (int8: 127 or -128), table entries past ceil(n / P) are -1 or huge, padding
bits of packed masks are random. Page ids are shuffled, lengths ragged.
"""

import itertools
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from reference import Pages, RopeSpec, by_slot, sequences

F16, BF16, F32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
I8 = np.dtype(np.int8)
Q_DTYPES = (F16, BF16, F32)
CACHE_DTYPES = (F16, BF16, F32, E4M3, E5M2, I8)
ONE_BYTE = (E4M3, E5M2, I8)

# (m, n) of each sequence: lengths 0, 1, P - 1, P, P + 1 of page 16, no rows, more rows than keys.
LENS = ((3, 37), (1, 16), (4, 17), (0, 5), (2, 0), (1, 1), (5, 2), (3, 15), (8, 60))

TOLERANCE = {F32: 1e-5, F16: 2e-3, BF16: 1.2e-2}  # of out, relative to max|V|
LSE_TOLERANCE = {F32: 1e-4, F16: 1e-3, BF16: 1e-3}
ROPE_LSE_TOLERANCE = {F32: 1e-4, F16: 4e-3, BF16: 3e-2}


@dataclass(frozen=True)
class Case:
    """A named set of `make_case` options. `cuda`: one that the CUDA backend takes too."""

    name: str
    options: dict = field(default_factory=dict)
    seed: int = 0

    def build(self):
        return make_case(np.random.default_rng(self.seed), **self.options)

    @property
    def cuda(self):
        q = np.dtype(self.options.get("q_dtype", F16))
        k = self.options.get("k_dtype") or q
        caches = (k, self.options.get("v_dtype") or k)
        return q != F32 and all(np.dtype(c) in (q, *ONE_BYTE) for c in caches)

    def __str__(self):
        return self.name


def poison(rng, shape, dtype):
    """Bits that spoil a result when they are used: NaN and Inf where the type has them."""
    dtype = np.dtype(dtype)
    if dtype == I8:
        bad = np.array([127, -128], dtype)
    elif dtype == E4M3:
        bad = np.array([0x7F, 0xFF, 0x7E], np.uint8).view(E4M3)
    else:
        bad = np.array([np.nan, np.inf, -np.inf, -np.nan], np.float32).astype(dtype)
    return bad[rng.integers(0, len(bad), shape)]


def quantised(rng, shape, dtype, scale):
    """Real values of unit size, stored as `dtype`: real = stored * scale ([heads] or a float)."""
    real = rng.standard_normal(shape) / np.asarray(scale, np.float64).reshape(-1, 1)
    if np.dtype(dtype) == I8:
        real = np.rint(np.clip(real, -127, 127))
    return real.astype(np.float32).astype(dtype)


def tree_mask(rng, m):
    """A random draft tree: (bool [m, m], depth [m]). Each node sees its ancestors and itself."""
    mask, depth = np.zeros((m, m), bool), np.zeros(m, np.int64)
    for i in range(m):
        if i:
            parent = int(rng.integers(0, i))
            mask[i], depth[i] = mask[parent], depth[parent] + 1
        mask[i, i] = True
    return mask, depth


def pack_mask(mask, rng=None):
    """bool [T, width] as uint32 [T, ceil(width / 32)]; padding bits are random, given an rng."""
    total, width = mask.shape
    words = -(-width // 32)
    bits = np.zeros((total, words * 32), bool)
    if rng is not None:
        bits[:, width:] = rng.random((total, words * 32 - width)) < 0.5
    bits[:, :width] = mask
    weight = np.uint64(1) << np.arange(32, dtype=np.uint64)
    return (bits.reshape(total, words, 32) * weight).sum(-1).astype(np.uint32)


def place_pages(rng, lens, page, spare=3):
    """(page ids of each sequence, number of pages): every page used once, ids shuffled."""
    need = [-(-n // page) for _, n in lens]
    count = sum(need) + spare
    order = rng.permutation(count)
    edges = np.cumsum([0, *need])
    return [order[a:b] for a, b in itertools.pairwise(edges)], count


def make_table(rng, pages, form, dtype, extra):
    """The pages as "table" [B, longest + extra] (padding -1 or huge) or as "csr" `Pages`."""
    if form == "csr":
        indptr = np.cumsum([0, *(len(p) for p in pages)]).astype(dtype)
        tail = np.array([-1, np.iinfo(np.int32).max])  # past indptr[-1]
        return Pages(indptr, np.concatenate([*pages, tail]).astype(dtype))
    width = max((len(p) for p in pages), default=0) + extra
    huge = np.array([-1, np.iinfo(dtype).max, np.iinfo(dtype).min, 2**30])
    table = huge[rng.integers(0, 4, (len(pages), width))].astype(dtype)
    for b, ids in enumerate(pages):
        table[b, : len(ids)] = ids
    return table


def empty_caches(count, page, hkv, d, k_dtype, v_dtype, layout, storage):
    """Two uninitialised caches. `storage`: "plain", "interleaved" (K and V of one tensor), "padded"
    pages, or "transposed" (the memory of the other layout)."""
    shape = (page, hkv, d) if layout == "NHD" else (hkv, page, d)
    if storage == "interleaved":
        both = np.empty((count, 2, *shape), k_dtype)
        return both[:, 0], both[:, 1]
    if storage == "padded":
        wide = (count, shape[0] + 3, *shape[1:])
        return tuple(np.empty(wide, t)[:, : shape[0]] for t in (k_dtype, v_dtype))
    if storage == "transposed":
        other = (count, shape[1], shape[0], d)
        return tuple(np.empty(other, t).transpose(0, 2, 1, 3) for t in (k_dtype, v_dtype))
    return tuple(np.empty((count, *shape), t) for t in (k_dtype, v_dtype))


def make_scale(rng, kind, dtype, hkv):
    """A scale argument of `kind`: None, "float", "one" (float32 [1]) or "heads" (float32 [Hkv])."""
    if kind is None:
        return None
    unit = {I8: 1 / 32, E4M3: 0.25, E5M2: 0.5}.get(np.dtype(dtype), 0.75)
    if kind == "float":
        return float(unit)
    spread = rng.uniform(0.5, 2.0, 1 if kind == "one" else hkv)
    return (unit * spread).astype(np.float32)


def make_draft_mask(rng, kind, lens, width, lengths):
    """(draft_mask, position [T]) of kind "tree" or "random", bool [T, width] or "-packed"."""
    rows, depths = [], []
    for m, n in lens:
        bits = rng.random((m, width)) < 0.5
        depth = np.arange(m)
        if kind.startswith("tree"):
            bits[:, :m], depth = tree_mask(rng, m)
        rows.append(bits)
        depths.append(np.maximum(lengths(m, n), 0) + depth)
    mask = np.concatenate(rows) if rows else np.zeros((0, width), bool)
    depth = np.concatenate(depths) if depths else np.zeros(0)
    return (pack_mask(mask, rng) if kind.endswith("packed") else mask), depth.astype(np.int64)


def make_case(
    rng,
    *,
    lens=LENS,
    heads=(2, 3),  # (Hkv, group)
    head_dim=64,
    page=16,
    q_dtype=F16,
    k_dtype=None,
    v_dtype=None,
    layout="NHD",
    storage="plain",
    table="table",
    extra=2,  # table columns past the longest sequence
    index_dtype=np.int32,
    ragged=True,
    extra_rows=0,  # rows of q past cu_seqlens_q[B]
    hint=False,  # give max_seqlen_q
    mask=None,  # None, "tree", "random", "tree-packed", "random-packed"
    tree_positions=True,  # positions of a tree's depth
    k_scale=None,
    v_scale=None,
    alibi=False,
    sinks=False,
    rope=None,  # None, True or RopeSpec
    poisoned=True,
    **options,
):
    """decode's arguments by name, as NumPy arrays; other options are passed on as they are."""
    hkv, group = heads
    hq = hkv * group
    q_dtype = np.dtype(q_dtype)
    k_dtype, v_dtype = np.dtype(k_dtype or q_dtype), np.dtype(v_dtype or k_dtype or q_dtype)
    lens = [(int(m), int(n)) for m, n in lens]
    longest = max((m for m, _ in lens), default=0)
    total = sum(m for m, _ in lens)
    args = dict(options)
    pages, count = place_pages(rng, lens, page)
    args["block_table"] = make_table(rng, pages, table, index_dtype, extra)
    args["seq_lens"] = np.array([n for _, n in lens], index_dtype)
    q = rng.standard_normal((total + extra_rows, hq, head_dim)).astype(q_dtype)
    if ragged:
        args["cu_seqlens_q"] = np.cumsum([0, *(m for m, _ in lens)]).astype(index_dtype)
    else:
        q = q.reshape(len(lens), longest, hq, head_dim)
    if hint:
        args["max_seqlen_q"] = longest
    if mask is not None:
        bits, depth = make_draft_mask(rng, mask, lens, longest, lambda m, n: n - m)
        pad = np.zeros((extra_rows, bits.shape[1]), bits.dtype)
        args["draft_mask"] = np.concatenate([bits, pad])
        if mask.startswith("tree") and tree_positions:
            args["positions"] = np.concatenate([depth, np.zeros(extra_rows)]).astype(index_dtype)
    args["k_scale"] = make_scale(rng, k_scale, k_dtype, hkv)
    args["v_scale"] = make_scale(rng, v_scale, v_dtype, hkv)
    if alibi:
        args["alibi_slopes"] = rng.uniform(0.02, 0.5, hq).astype(np.float32)
    if sinks:
        args["sinks"] = rng.standard_normal(hq).astype(np.float32)
    if rope is not None:
        args["rope"] = RopeSpec() if rope is True else rope
    k_cache, v_cache = empty_caches(count, page, hkv, head_dim, k_dtype, v_dtype, layout, storage)
    for cache, scale in ((k_cache, args["k_scale"]), (v_cache, args["v_scale"])):
        unit = 1.0 if scale is None else np.asarray(scale)
        shape = (count, page, hkv, head_dim)
        by_slot(cache, layout)[...] = quantised(rng, shape, cache.dtype, unit)
    args.update(q=q, k_cache=k_cache, v_cache=v_cache, kv_layout=layout)
    if poisoned:
        poison_unseen(rng, args)
    return {name: value for name, value in args.items() if value is not None}


MASK_OPTIONS = ("cu_seqlens_q", "causal", "draft_mask", "positions", "window_left")


def plan_of(args):
    """The `sequences` of a case."""
    pages = by_slot(args["k_cache"], args.get("kv_layout", "NHD"))
    options = {name: args[name] for name in MASK_OPTIONS if name in args}
    return sequences(args["q"], pages.shape[1], args["block_table"], args["seq_lens"], **options)


def seen_slots(args):
    """bool [num_pages * P]: the slots that at least one row of the call sees."""
    pages = by_slot(args["k_cache"], args.get("kv_layout", "NHD"))
    seen = np.zeros(pages.shape[0] * pages.shape[1], bool)
    for seq in plan_of(args):
        seen[seq.slots[seq.visible.any(axis=0)]] = True
    return seen


def poison_unseen(rng, args):
    """Overwrite, in place, every slot that no row sees."""
    layout = args.get("kv_layout", "NHD")
    hidden = ~seen_slots(args)
    for name in ("k_cache", "v_cache"):
        pages = by_slot(args[name], layout)
        where = hidden.reshape(pages.shape[:2])
        pages[where] = poison(rng, (int(where.sum()), *pages.shape[2:]), pages.dtype)


def max_value(args):
    """max|V| over the live, real values: what tolerances of `out` are relative to."""
    pages = by_slot(args["v_cache"], args.get("kv_layout", "NHD"))
    live = pages.reshape(-1, *pages.shape[2:])[seen_slots(args)].astype(np.float64)
    scale = args.get("v_scale")
    if scale is not None:
        live = (
            live
            * np.broadcast_to(np.asarray(scale, np.float64).reshape(-1), (live.shape[1],))[:, None]
        )
    return float(np.abs(live).max()) if live.size else 1.0


def tolerances(args, out_dtype=None):
    """The absolute tolerances of out and of lse that the contract allows for a case."""
    q_dtype = args["q"].dtype
    out_dtype = np.dtype(out_dtype or q_dtype)
    out = max(TOLERANCE[q_dtype], TOLERANCE[out_dtype]) * max_value(args)
    table = ROPE_LSE_TOLERANCE if args.get("rope") is not None else LSE_TOLERANCE
    return out, table[q_dtype] * (1 / np.log(2) if args.get("lse_base") == "2" else 1)


def _cases():
    two = ((3, 37), (2, 20))  # a small batch, where the option is the point
    long = ((1, 700), (4, 1029), (0, 3), (9, 33), (2, 0))
    square = ((4, 9), (4, 33), (4, 0), (4, 3))  # equal m, for 4-d q
    yield Case("plain")
    yield Case("float32", dict(q_dtype=F32))
    yield Case("bfloat16", dict(q_dtype=BF16))
    yield Case("one-row-each", dict(lens=((1, 1), (1, 15), (1, 16), (1, 17), (1, 0), (1, 130))))
    yield Case("batch-of-equal-m", dict(lens=square, ragged=False))
    yield Case("batch-of-equal-m-f32", dict(lens=square, ragged=False, q_dtype=F32, hint=True))
    yield Case("long", dict(lens=long, q_dtype=BF16))
    yield Case("long-f32", dict(lens=long, q_dtype=F32, heads=(2, 1)))
    yield Case("max-seqlen-q", dict(hint=True))
    yield Case("padding-rows", dict(extra_rows=5, hint=True))
    yield Case("all-empty", dict(lens=((1, 0), (3, 0), (0, 0))))
    yield Case("all-empty-sinks", dict(lens=((1, 0), (3, 0), (0, 0)), sinks=True))
    yield Case("csr", dict(table="csr"))
    yield Case("csr-int64", dict(table="csr", index_dtype=np.int64, q_dtype=F32))
    yield Case("int64-indices", dict(index_dtype=np.int64))
    yield Case("hnd", dict(layout="HND"))
    yield Case("hnd-csr-bf16", dict(layout="HND", table="csr", q_dtype=BF16))
    for storage in ("interleaved", "padded", "transposed"):
        yield Case(f"{storage}-nhd", dict(storage=storage))
        yield Case(f"{storage}-hnd", dict(storage=storage, layout="HND", q_dtype=BF16))
    for page in (1, 2, 3, 7, 32, 100, 256):
        yield Case(
            f"page-{page}",
            dict(page=page, lens=((2, page), (3, page + 1), (1, 2 * page - 1), (4, 40))),
        )
    for dim in (8, 24, 40, 80, 96, 120, 128, 160, 192, 248, 256):
        yield Case(f"dim-{dim}", dict(head_dim=dim, lens=two))
    yield Case("dim-136-f32", dict(head_dim=136, lens=two, q_dtype=F32))
    yield Case(
        "dim-72-fp8", dict(head_dim=72, lens=two, k_dtype=E4M3, k_scale="float", v_scale="float")
    )
    for heads in ((1, 1), (3, 1), (2, 5), (2, 6), (2, 7), (1, 8), (2, 16), (1, 33), (1, 128)):
        yield Case(f"heads-{heads[0]}x{heads[1]}", dict(heads=heads, lens=((1, 19), (3, 33))))
    yield Case("many-rows", dict(lens=((40, 70), (70, 70), (65, 40)), heads=(2, 4)))
    # Masks.
    yield Case("not-causal", dict(causal=False))
    yield Case("not-causal-f32", dict(causal=False, q_dtype=F32))
    for window in (0, 1, 3, 16, 1000):
        yield Case(f"window-{window}", dict(window_left=window))
    yield Case("window-not-causal", dict(window_left=2, causal=False))
    yield Case("window-long", dict(window_left=129, lens=long, q_dtype=BF16))
    for mask in ("tree", "random", "tree-packed", "random-packed"):
        yield Case(f"mask-{mask}", dict(mask=mask))
    yield Case("mask-tree-not-causal", dict(mask="tree", causal=False))
    yield Case("mask-tree-no-positions", dict(mask="tree", tree_positions=False))
    wide = ((40, 77), (33, 33), (5, 300), (65, 70), (2, 1))
    yield Case("mask-wide", dict(mask="tree", lens=wide))
    yield Case("mask-wide-hint", dict(mask="tree", lens=wide, hint=True, extra_rows=2))
    yield Case("mask-wide-packed", dict(mask="random-packed", lens=wide, q_dtype=BF16))
    yield Case("mask-window", dict(mask="tree", window_left=3, hint=True))
    yield Case(
        "mask-window-alibi", dict(mask="tree-packed", window_left=9, alibi=True, q_dtype=BF16)
    )
    yield Case("mask-4d", dict(mask="tree", lens=square, ragged=False))
    yield Case("mask-padding-rows", dict(mask="tree-packed", extra_rows=3))
    # Options.
    yield Case("scale", dict(softmax_scale=0.3))
    yield Case("scale-negative", dict(softmax_scale=-0.1))
    yield Case("scale-zero", dict(softmax_scale=0.0))
    yield Case("softcap", dict(softcap=1.5))
    yield Case("alibi", dict(alibi=True))
    yield Case("sinks", dict(sinks=True))
    yield Case("sinks-window-softcap", dict(sinks=True, window_left=5, softcap=2.0, q_dtype=BF16))
    yield Case("lse-base-2", dict(lse_base="2", sinks=True))
    yield Case("rope", dict(rope=True))
    yield Case("rope-f32", dict(rope=True, q_dtype=F32))
    yield Case("rope-interleaved", dict(rope=RopeSpec(5e5, 4.0, True), q_dtype=BF16))
    yield Case("rope-tree", dict(rope=RopeSpec(1e4, 2.0, False), mask="tree", window_left=20))
    yield Case("rope-fp8", dict(rope=True, k_dtype=E4M3, k_scale="heads", v_scale="one"))
    everything = dict(
        mask="tree-packed", window_left=30, softcap=3.0, alibi=True, sinks=True, rope=True
    )
    yield Case("everything", dict(everything, lse_base="2"))
    yield Case("everything-f32", dict(everything, q_dtype=F32, num_splits=3))
    fp8_all = dict(everything, k_dtype=E4M3, v_dtype=E5M2, k_scale="heads", v_scale="heads")
    yield Case("everything-fp8", dict(fp8_all, q_dtype=BF16, layout="HND", table="csr"))
    for splits in (1, 2, 7, 100):
        yield Case(f"splits-{splits}", dict(num_splits=splits, lens=long, sinks=True))
    yield Case("splits-tree", dict(num_splits=4, mask="tree", lens=wide))
    yield Case("invariant", dict(batch_invariant=True))
    yield Case("invariant-long", dict(batch_invariant=True, lens=long, q_dtype=BF16, sinks=True))
    yield Case("invariant-tree-fp8", dict(batch_invariant=True, mask="tree", k_dtype=E4M3))
    # Types: each cache type with each scale form; the whole product is in test_types.py.
    for dtype, name in ((E4M3, "e4m3"), (E5M2, "e5m2"), (I8, "int8")):
        for scale in ("float", "one", "heads"):
            types = dict(k_dtype=dtype, v_dtype=dtype, k_scale=scale, v_scale=scale)
            yield Case(
                f"{name}-scale-{scale}", dict(types, q_dtype=BF16 if scale == "one" else F16)
            )
    yield Case("e4m3-no-scale", dict(k_dtype=E4M3))
    yield Case("mixed-f16-e4m3", dict(k_dtype=F16, v_dtype=E4M3, v_scale="float"))
    yield Case("mixed-int8-bf16", dict(q_dtype=BF16, k_dtype=I8, v_dtype=BF16, k_scale="heads"))
    yield Case("mixed-e5m2-int8", dict(k_dtype=E5M2, v_dtype=I8, k_scale="one", v_scale="heads"))
    yield Case("scaled-16-bit", dict(k_scale="heads", v_scale="float"))
    yield Case("bf16-q-f32-cache", dict(q_dtype=BF16, k_dtype=F32))
    yield Case("f32-q-bf16-cache", dict(q_dtype=F32, k_dtype=BF16))
    yield Case("f32-q-f16-int8-cache", dict(q_dtype=F32, k_dtype=F16, v_dtype=I8, v_scale="heads"))


CASES = list(_cases())
CASE = {case.name: case for case in CASES}
assert len(CASE) == len(CASES)


def uniform_probe(rng, *, poisoned=True, **options):
    """A case whose output shows the exact set of visible keys: q = 0, K = 1, V of key j = unit
    vector j.

    Column j of a row is 1 / (visible keys) where key j is visible and 0 where not; LSE is
    ln(visible keys).
    """
    args = make_case(rng, poisoned=False, **options)
    layout = args["kv_layout"]
    args["q"][...] = 0
    keys, values = by_slot(args["k_cache"], layout), by_slot(args["v_cache"], layout)
    keys[...], values[...] = 1, 0
    page = keys.shape[1]
    for seq in plan_of(args):
        values[seq.slots // page, seq.slots % page, :, np.arange(seq.n)] = 1
    if poisoned:
        poison_unseen(rng, args)
    return args


def check_probe(args, out, lse, visible):
    """Assert that a probe's `out` and `lse` show `visible`: for each row of the call, a list of
    keys or bool [n]."""
    out = np.asarray(out).reshape(-1, *out.shape[-2:])
    step = float(ml_dtypes.finfo(out.dtype).eps) if out.dtype != F32 else 1e-6
    out = out.astype(np.float64)
    for row, see in enumerate(visible):
        see = np.asarray(see)
        keys = np.flatnonzero(see) if see.dtype == bool else see.astype(int)
        want = np.zeros(out.shape[-1])
        want[keys] = 1 / max(len(keys), 1)
        shown = [np.flatnonzero(head).tolist() for head in out[row]]
        assert all(keys.tolist() == s for s in shown), f"row {row} sees {shown[0]}, not {keys}"
        assert np.abs(out[row] - want).max() <= step, f"row {row}: weights are not equal"
        if len(keys):
            assert np.abs(lse[row] - np.log(len(keys))).max() <= 1e-4, f"row {row}: lse"
        else:
            assert np.isneginf(lse[row]).all(), f"row {row}: lse of an empty row"
