# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""move: all sources are read before any destination is written, bit for bit."""

import numpy as np
import pytest

from backends import BACKENDS, bits_equal
from cases import BF16, CACHE_DTYPES, F16, I8
from reference import move_reference
from test_append import DIM, HEADS, PAGE, PAGES, pools

SLOTS = PAGES * PAGE


def move(backend, k_cache, v_cache, src, dst, **options):
    import pagedecode

    given = [backend.to(x.copy() if backend.name == "numpy" else x) for x in (k_cache, v_cache)]
    assert pagedecode.move(*given, backend.to(src), backend.to(dst), **options) is None
    backend.sync()
    return [backend.back(x) for x in given]


def check(backend, caches, src, dst, **options):
    if not all(backend.holds(c.dtype) for c in caches):
        return
    got = move(backend, *caches, src, dst, **options)
    want = move_reference(*caches, src, dst, **options)
    assert all(bits_equal(a, np.ascontiguousarray(b)) for a, b in zip(got, want, strict=True))


PATTERNS = {
    "disjoint": ([0, 1, 2], [10, 11, 12]),
    "shift-down": (range(4, 20), range(3, 19)),
    "shift-up": (range(3, 19), range(4, 20)),
    "swap": ([5, 6], [6, 5]),
    "cycle": ([1, 2, 3, 4], [2, 3, 4, 1]),
    "itself": ([7, 8], [7, 8]),
    "one-source": ([9, 9, 9], [0, 1, 2]),
    "skip": ([0, -1, 2, -5, 4], [20, 21, -1, -2, 22]),
    "nothing": ([], []),
    "all-skipped": ([-1, 3], [2, -1]),
    "reverse": (range(SLOTS), range(SLOTS - 1, -1, -1)),
}


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(writable_backend, name, index):
    src, dst = (np.array(list(x), index) for x in PATTERNS[name])
    for layout in ("NHD", "HND"):
        check(
            writable_backend,
            pools(np.random.default_rng(0), layout=layout),
            src,
            dst,
            kv_layout=layout,
        )


@pytest.mark.parametrize("dtype", [*CACHE_DTYPES, np.dtype(np.uint8)], ids=str)
def test_types_keep_every_bit(writable_backend, dtype):
    """NaN payloads, negative zero and subnormals move as they are."""
    rng = np.random.default_rng(1)
    order = rng.permutation(SLOTS)
    check(writable_backend, pools(rng, dtype), np.arange(SLOTS), order)
    check(writable_backend, pools(rng, dtype, I8), np.arange(SLOTS), order)


@pytest.mark.parametrize("storage", ["interleaved", "padded", "transposed"])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_layouts(writable_backend, layout, storage):
    rng = np.random.default_rng(2)
    caches = pools(
        rng, BF16 if writable_backend.holds(BF16) else F16, layout=layout, storage=storage
    )
    order = rng.permutation(SLOTS)
    check(writable_backend, caches, order[:13].astype(np.int32), order[5:18], kv_layout=layout)


def test_memory_between_the_rows():
    import pagedecode

    whole = np.random.default_rng(3).integers(
        0, 256, (PAGES, 2, PAGE + 1, HEADS, DIM + 8), np.uint8
    )
    caches = [whole.view(I8)[:, i, :PAGE, :, :DIM] for i in range(2)]
    want = whole.copy()
    moved = move_reference(*caches, [0, 5, 9], [5, 9, 0])
    for i in range(2):
        want.view(I8)[:, i, :PAGE, :, :DIM] = moved[i]
    pagedecode.move(*caches, np.array([0, 5, 9]), np.array([5, 9, 0]))
    assert (whole == want).all()


def test_random_permutations(writable_backend):
    """Overlapping random moves with distinct destinations, many times."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        count = int(rng.integers(1, SLOTS))
        src = rng.integers(-1, SLOTS, count)
        dst = rng.permutation(SLOTS)[:count]
        dst[rng.random(count) < 0.1] = -3
        check(writable_backend, pools(rng), src, dst)


def test_index_strides(writable_backend):
    both = np.array([[0, 9], [1, 8], [2, -1], [5, 0]])
    check(writable_backend, pools(np.random.default_rng(5)), both[:, 0], both[:, 1])


def test_many_tokens(device_backend):
    """More moves than any staging buffer of one step: one long cycle."""
    rng = np.random.default_rng(6)
    caches = [rng.standard_normal((64, 64, 2, 32)).astype(F16) for _ in range(2)]
    order = rng.permutation(4096)
    check(device_backend, caches, order, np.roll(order, 1))


def test_one_array_as_both_caches():
    import pagedecode

    cache, v_cache = pools(np.random.default_rng(9))
    src, dst = np.array([0, 1, 5]), np.array([1, 0, 9])
    want, before = cache.copy(), v_cache.copy()
    pagedecode.move(want, v_cache, src, dst)
    pagedecode.move(cache, cache, src, dst)
    assert bits_equal(cache, want)
    pagedecode.move(before, before, src, dst)
    assert bits_equal(before, v_cache)
    for k, v in ((cache[:-1], cache[1:]), (cache[:2], cache[1:3])):
        with pytest.raises(ValueError, match=r"^v_cache: got memory that overlaps k_cache"):
            pagedecode.move(k, v, src, dst)


def test_errors_write_nothing():
    import pagedecode

    src, dst = np.array([0, 1]), np.array([4, 5])
    calls = {
        "src_slots": [
            dict(src_slots=np.array([0, SLOTS])),
            dict(src_slots=np.array([0, 2**40])),
            dict(src_slots=src.astype(np.float32)),
            dict(src_slots=src.astype(np.uint32)),
            dict(src_slots=src[None]),
            dict(src_slots=[0, 1]),
        ],
        "dst_slots": [
            dict(dst_slots=np.array([4, SLOTS])),
            dict(dst_slots=np.array([4, 2**40])),
            dict(dst_slots=dst.astype(np.int16)),
            dict(dst_slots=dst[..., None]),
        ],
        "src_slots|dst_slots": [dict(dst_slots=np.array([4])), dict(src_slots=np.array([1, 2, 3]))],
        "kv_layout": [dict(kv_layout="NDH"), dict(kv_layout=0)],
        "stream": [dict(stream=5)],
    }
    for name, changes in calls.items():
        for change in changes:
            k_cache, v_cache = pools(np.random.default_rng(7))
            before = k_cache.copy(), v_cache.copy()
            given = dict(k_cache=k_cache, v_cache=v_cache, src_slots=src, dst_slots=dst)
            with pytest.raises((TypeError, ValueError), match=name):
                pagedecode.move(**{**given, **change})
            assert bits_equal(k_cache, before[0]) and bits_equal(v_cache, before[1])
    k_cache, v_cache = pools(np.random.default_rng(7))
    for name, given in {
        "k_cache": (k_cache[0], v_cache),
        "v_cache": (k_cache, v_cache[:, :2]),
        "k_cache|v_cache": (k_cache[:3], v_cache),
    }.items():
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.move(*given, src, dst)


def test_caches_that_cannot_be_written():
    import pagedecode

    jax, (k_cache, v_cache) = BACKENDS["jax-cpu"], pools(np.random.default_rng(8))
    src, dst = np.array([0, 1]), np.array([4, 5])
    with pytest.raises(TypeError, match="k_cache"):
        pagedecode.move(jax.to(k_cache), jax.to(v_cache), jax.to(src), jax.to(dst))
    before = k_cache.copy()
    for frozen, name in ((k_cache, "k_cache"), (v_cache, "v_cache")):
        frozen.setflags(write=False)
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.move(k_cache, v_cache, src, dst)
        frozen.setflags(write=True)
    assert bits_equal(k_cache, before)
