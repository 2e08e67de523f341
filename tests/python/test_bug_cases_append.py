# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of append, slots and PagedCache: padding slots, page crossings, full pools (B41)."""

import numpy as np
import pytest

import pagedecode
from backends import convert
from probes import FP8, HUGE, call, close, is_cuda, normal, np_type, offsets, refused, same_bits
from reference import append_reference, decode_reference, slots_reference

POOL = (3, 4, 2, 64)  # pages, page, heads, dim


def pattern(dtype=np.float16, layout="NHD"):
    """A known value in each place of a pool."""
    pages, page, heads, _dim = POOL
    x = np.arange(pages * page * heads, dtype=np.float32).reshape(pages, page, heads, 1) / 2
    pool = np.broadcast_to(x, POOL).astype(dtype)
    return np.ascontiguousarray(pool.swapaxes(1, 2)) if layout == "HND" else pool.copy()


def tokens(count, dtype=np.float16, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((count, 2, 64), np.float32).astype(dtype) for _ in range(2)]


def check_append(backend, k, v, slots, *, layout="NHD", cache_type=np.float16, **options):
    """append on the backend equals the reference over the whole pool, bit for bit."""
    pools = [pattern(cache_type, layout), pattern(cache_type, layout)]
    want = append_reference(k, v, *pools, slots, kv_layout=layout, **options)
    given = convert(backend, {"k_cache": pools[0], "v_cache": pools[1], **options})
    result = pagedecode.append(
        backend.to(k), backend.to(v), slots=backend.to(slots), kv_layout=layout, **given
    )
    assert result is None
    backend.sync()
    for name, expected in zip(("k_cache", "v_cache"), want, strict=True):
        got = np.asarray(backend.back(given[name])).view(expected.dtype)
        changed = (got.view(np.uint8) != expected.view(np.uint8)).any()
        assert not changed, f"{name} differs from the reference"
    return want


@pytest.mark.parametrize("index_type", (np.int32, np.int64))
@pytest.mark.parametrize("layout", ("NHD", "HND"))
def test_b41_a_page_crossing_changes_three_slots(writable_backend, layout, index_type):
    # Length 3 on pages 2, 0: tokens 3, 4, 5 are (page 2, slot 3), (page 0, slots 0 and 1).
    backend = writable_backend
    table = np.array([[2, 0, HUGE]], index_type)
    given = [backend.to(x) for x in (table, np.array([6], index_type), offsets([3], index_type))]
    slots = backend.back(pagedecode.slots(*given, page_size=4, total_q=3))
    np.testing.assert_array_equal(slots, [11, 0, 1])
    k, v = tokens(3)
    want = check_append(backend, k, v, slots.astype(index_type), layout=layout)
    before = pattern(layout=layout)
    flat = (want[0] != before).swapaxes(1, 2) if layout == "HND" else want[0] != before
    np.testing.assert_array_equal(np.flatnonzero(flat.reshape(12, -1).any(1)), [0, 1, 11])


def test_b41_negative_slots_are_skipped(writable_backend):
    k, v = tokens(3)
    for slots in ([-1, 5, -1], [-1, -1, -1], [-(2**40), 11, -7], [5, -12, -13]):
        check_append(writable_backend, k, v, np.array(slots, np.int64))
    check_append(writable_backend, k, v, np.array([-1, 5, -(2**31)], np.int32))


@pytest.mark.parametrize("bad", (12, 13, 2**31, 2**40, 2**62))
def test_b41_slots_past_the_pool(writable_backend, bad):
    backend = writable_backend
    k, v = (backend.to(x) for x in tokens(3))
    pools = [backend.to(pattern()), backend.to(pattern())]
    slots = backend.to(np.array([2, bad, 7], np.int64))
    if is_cuda(backend):  # that token is skipped
        pagedecode.append(k, v, *pools, slots)
        np_k, np_v = tokens(3)
        want = append_reference(np_k, np_v, pattern(), pattern(), np.array([2, -1, 7]))
    else:  # refused before anything is written
        with refused("slots"):
            pagedecode.append(k, v, *pools, slots)
        want = (pattern(), pattern())
    assert same_bits(tuple(backend.back(p) for p in pools), want)


def test_b41_of_equal_slots_one_wins(writable_backend):
    backend = writable_backend
    k, v = tokens(3)
    pools = [backend.to(pattern()), backend.to(pattern())]
    pagedecode.append(backend.to(k), backend.to(v), *pools, backend.to(np.array([5, 5, 2])))
    for pool, new in zip(pools, (k, v), strict=True):
        got, want = backend.back(pool).reshape(12, 2, 64), pattern().reshape(12, 2, 64)
        assert same_bits(got[5], new[0]) or same_bits(got[5], new[1])
        want[2], want[5] = new[2], got[5]
        assert same_bits(got, want)


@pytest.mark.parametrize("x_type", ("float16", "bfloat16", "float32"))
@pytest.mark.parametrize("cache_type", ("float16", "bfloat16", "float32", *FP8, "int8"))
def test_b41_append_in_every_type(writable_backend, x_type, cache_type):
    backend = writable_backend
    if backend.name.startswith("cupy"):  # no bfloat16 there
        x_type, cache_type = (t.replace("bfloat16", "float16") for t in (x_type, cache_type))
    k, v = (np_type(x_type).type(3) * t for t in tokens(4, np_type(x_type)))
    slots = np.array([5, -1, 0, 11])
    if is_cuda(backend) and cache_type == "float32":
        with pytest.raises(pagedecode.Unsupported, match="k_cache"):
            check_append(backend, k, v, slots, cache_type=np.float32)
        return
    scales = {"k_scale": 0.125, "v_scale": np.array([0.25, 2.0], np.float32)}
    for layout in ("NHD", "HND"):
        for options in ({}, scales):
            kind = np_type(cache_type)
            check_append(backend, k, v, slots, layout=layout, cache_type=kind, **options)


def test_b41_strided_tokens_and_caches(writable_backend):
    backend = writable_backend
    k, v = tokens(3)
    qkv = np.concatenate([np.zeros((3, 4, 64), np.float16), k, v], axis=1)
    fused = backend.to(qkv)
    whole = np.stack([pattern(), pattern()], axis=1)  # [pages, 2, page, heads, dim]
    given = backend.to(whole)
    slots = np.array([11, 0, 4])
    pagedecode.append(fused[:, 4:6], fused[:, 6:8], given[:, 0], given[:, 1], backend.to(slots))
    want = append_reference(k, v, pattern(), pattern(), slots)
    got = backend.back(given)
    assert same_bits(tuple(got[:, i].copy() for i in (0, 1)), want)


def test_b41_wrong_shapes_and_types_are_refused(writable_backend):
    backend = writable_backend
    k, v = (backend.to(x) for x in tokens(3))
    pools = [backend.to(pattern()), backend.to(pattern())]
    slots = backend.to(np.arange(3))
    bad = [
        ((k[:2], v, *pools, slots), ("k", "v", "slots")),
        ((k[:, :1], v, *pools, slots), ("k",)),
        ((k, v[..., :56], *pools, slots), ("v",)),
        ((k, v, pools[0][0], pools[1], slots), ("k_cache",)),
        ((k, v, pools[0], pools[1][:, :3], slots), ("v_cache",)),
        ((k, v, pools[0], backend.to(pattern().astype(np.float64)), slots), ("v_cache",)),
        ((backend.to(np.zeros((3, 2, 64), np.int8)), v, *pools, slots), ("k",)),
        ((backend.to(np.zeros((3, 2, 64))), v, *pools, slots), ("k",)),
        ((k, v, backend.to(np.zeros(POOL, np.uint8)), pools[1], slots), ("k_cache", "kv_dtype")),
    ]
    for arguments, names in bad:
        with refused(*names):
            pagedecode.append(*arguments)
    for pool in pools:
        assert same_bits(backend.back(pool), pattern())


@pytest.mark.parametrize("kv", (None, *FP8, "int8"))
@pytest.mark.parametrize("layout", ("NHD", "HND"))
def test_b41_verify_right_after_append(writable_backend, kv, layout):
    backend = writable_backend
    lengths, rows = [7, 4, 13], [3, 4, 2]
    args = normal(lengths, rows, k_type=kv, layout=layout, dead="ff" if kv != "int8" else 1.0)
    given = convert(backend, args)
    scales = {"k_scale": 0.05, "v_scale": 0.05} if kv else {}
    slots = pagedecode.slots(
        given["block_table"], given["seq_lens"], given["cu_seqlens_q"], page_size=4, total_q=9
    )
    want_slots = slots_reference(
        args["block_table"], args["seq_lens"], args["cu_seqlens_q"], page_size=4
    )
    np.testing.assert_array_equal(backend.back(slots), want_slots)
    k, v = tokens(9, seed=5)
    names = {n: given[n] for n in ("k_cache", "v_cache", "kv_layout", "kv_dtype") if n in given}
    pagedecode.append(backend.to(k), backend.to(v), slots=slots, **names, **scales)
    caches = append_reference(
        k, v, args["k_cache"], args["v_cache"], want_slots, kv_layout=layout, **scales
    )
    after = {**args, "k_cache": caches[0], "v_cache": caches[1]}
    want = decode_reference(**after, **scales)
    out, lse = call(backend, given, **scales)
    close(out, want[0], 2e-3, 6.4)
    close(lse, want[1], 1e-3)


# PagedCache: the same faults on the side of the bookkeeping ---------------------------------------


def test_b41_a_full_pool_changes_nothing():
    cache = pagedecode.PagedCache(3, 4)
    first, _ = cache.append("a", 6)
    assert len(set(first.tolist())) == 6 and cache.num_free == 1
    cache.append("b", 3)
    before = (cache.block_table(["a", "b"]).tolist(), cache.seq_lens(["a", "b"]).tolist())
    for seq, count in (("a", 3), ("b", 2), ("c", 1), ("a", 100)):
        with pytest.raises(MemoryError):
            cache.append(seq, count)
        now = (cache.block_table(["a", "b"]).tolist(), cache.seq_lens(["a", "b"]).tolist())
        assert now == before and cache.num_free == 0
    cache.append("a", 2)  # what its last page still holds
    with pytest.raises(KeyError):
        cache.seq_lens(["c"])
    cache.free("b")
    slots, _ = cache.append("a", 4)
    assert cache.num_free == 0 and len(slots) == 4


def test_b41_slots_of_the_bookkeeping_and_of_the_table_agree():
    rng = np.random.default_rng(2)
    cache = pagedecode.PagedCache(40, 4)
    names = ["a", "b", "c"]
    for _ in range(12):
        counts = [int(rng.integers(0, 5)) for _ in names]
        made = [cache.append(n, c)[0] for n, c in zip(names, counts, strict=True)]
        table, lengths = cache.block_table(names), cache.seq_lens(names)
        got = pagedecode.slots(table, lengths, offsets(counts), page_size=4, total_q=sum(counts))
        np.testing.assert_array_equal(got, np.concatenate(made))
        live = [int(table[b, j]) for b in range(3) for j in range(-(-int(lengths[b]) // 4))]
        assert len(set(live)) == len(live) and all(0 <= page < 40 for page in live)


def test_b41_a_table_too_narrow_is_an_error():
    cache = pagedecode.PagedCache(8, 4)
    cache.append("a", 9)
    assert cache.block_table(["a"], width=5).shape == (1, 5)
    with pytest.raises(ValueError):
        cache.block_table(["a"], width=2)
    for call_it in (
        lambda: cache.truncate("a", 10),
        lambda: cache.truncate("a", -1),
        lambda: cache.keep("a", 10, []),
        lambda: cache.append("a", -1),
        lambda: cache.keep("a", 3, [3]),
    ):
        with pytest.raises(ValueError):
            call_it()
    assert int(cache.seq_lens(["a"])[0]) == 9 and cache.num_free == 5
