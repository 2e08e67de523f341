# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""append: every byte of the pools compared; rounding, saturation, NaN, skipped slots, errors that
write nothing."""

import numpy as np
import pytest

from backends import BACKENDS, NUMPY, bits, bits_equal, check_call
from cases import (
    BF16,
    CACHE_DTYPES,
    E4M3,
    F16,
    F32,
    I8,
    ONE_BYTE,
    Q_DTYPES,
    empty_caches,
    make_case,
)
from reference import append_reference, by_slot, head_scale, quantise

PAGES, PAGE, HEADS, DIM = 6, 4, 2, 16


def pools(rng, k_dtype=F16, v_dtype=None, layout="NHD", storage="plain", page=PAGE, dim=DIM):
    """Two caches full of random bytes."""
    made = empty_caches(PAGES, page, HEADS, dim, k_dtype, v_dtype or k_dtype, layout, storage)
    for cache in made:
        noise = rng.integers(0, 256, (*cache.shape[:-1], dim * cache.itemsize), dtype=np.uint8)
        cache[...] = noise.view(cache.dtype)
    return made


def tokens(rng, count, dtype=F16, dim=DIM):
    return tuple(rng.standard_normal((count, HEADS, dim)).astype(dtype) for _ in range(2))


def takes(backend, cache, dtype=F16):
    """Whether a cache's type is one of the device, and both types are of the library."""
    if backend.device == "cuda" and cache == F32:
        return False
    return backend.holds(cache) and backend.holds(dtype)


def append(backend, k, v, k_cache, v_cache, slots, **options):
    """The caches after the call, as NumPy arrays (the given ones are left alone)."""
    import pagedecode

    given = [backend.to(x.copy() if backend.name == "numpy" else x) for x in (k_cache, v_cache)]
    options = {n: backend.to(x) if isinstance(x, np.ndarray) else x for n, x in options.items()}
    got = pagedecode.append(backend.to(k), backend.to(v), *given, backend.to(slots), **options)
    assert got is None
    backend.sync()
    return tuple(backend.back(x) for x in given)


def check(backend, k, v, k_cache, v_cache, slots, **options):
    got = append(backend, k, v, k_cache, v_cache, slots, **options)
    want = append_reference(k, v, k_cache, v_cache, slots, **options)
    for name, a, b in zip("kv", got, want, strict=True):
        nan = np.isnan(b.astype(np.float32)) & np.isnan(a.astype(np.float32))
        assert (nan | (bits(a) == bits(b))).all(), name
    return got


@pytest.mark.parametrize("cache", CACHE_DTYPES, ids=str)
@pytest.mark.parametrize("dtype", Q_DTYPES, ids=str)
def test_types(writable_backend, dtype, cache):
    if not takes(writable_backend, cache, dtype):
        return
    for seed, (k_scale, v_scale) in enumerate(
        (
            (None, None),
            (0.25, 2.0),
            (np.array([0.5], F32), np.array([4.0], F32)),
            (np.array([0.5, 2.0], F32), 0.125),
        )
    ):
        rng = np.random.default_rng(seed)
        k, v = tokens(rng, 5, dtype)
        slots = rng.permutation(PAGES * PAGE)[:5].astype(np.int32)
        options = {n: s for n, s in (("k_scale", k_scale), ("v_scale", v_scale)) if s is not None}
        check(writable_backend, k, v, *pools(rng, cache), slots, **options)


def test_mixed_types(writable_backend):
    rng = np.random.default_rng(1)
    for k_dtype, v_dtype in ((F16, I8), (I8, BF16), (F32, F16)):
        if not (takes(writable_backend, k_dtype) and takes(writable_backend, v_dtype)):
            continue
        k, v = tokens(rng, 5)
        slots = np.array([3, -1, 0, 23, 9])
        check(writable_backend, k, v, *pools(rng, k_dtype, v_dtype), slots, v_scale=0.25)
        check(writable_backend, k, v.astype(F32), *pools(rng, k_dtype, v_dtype), slots)


@pytest.mark.parametrize("storage", ["plain", "interleaved", "padded", "transposed"])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_layouts(writable_backend, layout, storage, index):
    rng = np.random.default_rng(2)
    caches = pools(rng, F16, layout=layout, storage=storage)
    k, v = tokens(rng, 8)
    slots = np.array([7, -1, 8, 0, -100, 23, 12, 3], index)
    check(writable_backend, k, v, *caches, slots, kv_layout=layout)


def test_memory_round_the_caches():
    """Interleaved and padded pools: what lies between the rows keeps its bytes."""
    import pagedecode

    rng = np.random.default_rng(3)
    whole = rng.integers(0, 256, (PAGES, 2, PAGE + 1, HEADS, DIM + 8), dtype=np.uint8).view(I8)
    k_cache, v_cache = whole[:, 0, :PAGE, :, :DIM], whole[:, 1, :PAGE, :, :DIM]
    k, v = tokens(rng, 3)
    slots = np.array([5, 0, 22])
    want = whole.copy()
    for at, x in ((0, k), (1, v)):
        want[slots // PAGE, at, slots % PAGE, :, :DIM] = quantise(x, 0.5, I8)
    pagedecode.append(k, v, k_cache, v_cache, slots, k_scale=0.5, v_scale=0.5)
    assert bits_equal(whole, want)


def test_input_strides(writable_backend):
    rng = np.random.default_rng(4)
    k, v = tokens(rng, 6)
    wide = np.zeros((12, 3, 32), F16)
    wide[::2, :2, 16:] = k
    turned = np.ascontiguousarray(v.transpose(1, 0, 2)).transpose(1, 0, 2)
    slots = np.full(18, 10**6)
    slots[::3] = [5, 4, 3, 2, 1, 0]
    check(writable_backend, wide[::2, :2, 16:], turned, *pools(rng), slots[::3])
    if writable_backend.negative_strides:
        back = [x[::-1].copy()[::-1] for x in (k, v)]
        check(writable_backend, *back, *pools(rng), slots[::3][::-1])
        check(writable_backend, np.broadcast_to(k[:1], k.shape), v, *pools(rng), slots[::3])
    check(writable_backend, k, v, *pools(rng), np.array([5, -1, 3, 2, -1, 0]))


def whole_type(dtype):
    """Every value of a 16-bit type as [T, HEADS, 256]."""
    values = np.arange(65536, dtype=np.uint16).view(dtype)
    return values.reshape(-1, HEADS, 256)


@pytest.mark.parametrize("cache", ONE_BYTE, ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_every_16_bit_value(writable_backend, dtype, cache):
    """Nearest even, saturation, subnormals, negative zero and NaN of all 65536 inputs."""
    if not takes(writable_backend, cache, dtype):
        return
    values = whole_type(dtype)
    pool = np.zeros((32, 4, HEADS, 256), cache)
    for scale in (1.0, 0.25, 3.0):
        got, _ = append(
            writable_backend, values, values, pool, pool, np.arange(128), k_scale=scale, v_scale=1.0
        )
        got = got.reshape(values.shape)
        want = quantise(values, scale, cache)
        nan = np.isnan(values.astype(np.float32))
        if cache == I8:
            got = np.maximum(got, -127)  # -128 saturates as well
        else:
            assert (np.isnan(got.astype(np.float32)) == nan).all()
        assert (bits(got)[~nan] == bits(want)[~nan]).all()


@pytest.mark.parametrize("cache", CACHE_DTYPES, ids=str)
def test_float32_values(writable_backend, cache):
    """Random bit patterns, and the midpoints between neighbours of the cache's type with both
    sides."""
    if not takes(writable_backend, cache):
        return
    rng = np.random.default_rng(5)
    random = rng.integers(0, 2**32, 2**14, dtype=np.uint32).view(F32)
    size = np.dtype(cache).itemsize
    values = np.arange(2**8, dtype=np.uint8).view(cache) if size == 1 else None
    if values is None:
        bound = 2 ** (8 * size) - 1
        values = rng.integers(0, bound, 256, dtype=f"u{size}", endpoint=True).view(cache)
    with np.errstate(all="ignore"):
        line = np.unique(values.astype(F32))
        line = line[np.isfinite(line)]
        middle = ((line[1:].astype(np.float64) + line[:-1]) / 2).astype(F32)
        around = np.concatenate([middle, np.nextafter(middle, F32.type(np.inf)), line])
        around = np.concatenate([around, np.nextafter(middle, F32.type(-np.inf))])
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 448, 464, 465], F32)
    every = np.concatenate([random, around, special])
    every = np.resize(every, (-(-every.size // (HEADS * 256)), HEADS, 256))
    pool = np.zeros((len(every), 1, HEADS, 256), cache)
    got, _ = append(writable_backend, every, every, pool, pool, np.arange(len(every)))
    got, want = got.reshape(every.shape), quantise(every, 1.0, cache)
    nan = np.isnan(every)
    if cache == I8:
        got = np.maximum(got, -127)
    else:
        assert (np.isnan(got.astype(F32)) == nan).all()
    keep = ~nan
    if cache in (BF16, F32):  # subnormal results may be flushed
        with np.errstate(all="ignore"):
            keep &= ~((np.abs(every) < np.finfo(F32).tiny) & (every != 0))
    assert (bits(got)[keep] == bits(want)[keep]).all()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_uint8_with_a_name(writable_backend, name):
    rng = np.random.default_rng(6)
    k, v = tokens(rng, 4)
    caches = pools(rng, np.uint8)
    slots = np.array([3, 9, -1, 20])
    got = append(writable_backend, k, v, *caches, slots, kv_dtype=name, k_scale=0.5)
    want = append_reference(k, v, *caches, slots, kv_dtype=name, k_scale=0.5)
    assert all(bits_equal(a, b) for a, b in zip(got, want, strict=True))
    both = ("float8_e4m3fn", "float8_e5m2")
    got = append(writable_backend, k, v, *caches, slots, kv_dtype=both)
    want = append_reference(k, v, *caches, slots, kv_dtype=both)
    assert all(bits_equal(a, b) for a, b in zip(got, want, strict=True))


def test_nothing_to_do(writable_backend):
    rng = np.random.default_rng(7)
    caches = pools(rng)
    k, v = tokens(rng, 3)
    for count, slots in ((0, np.zeros(0, np.int32)), (3, np.array([-1, -(2**31), -5]))):
        got = append(writable_backend, k[:count], v[:count], *caches, slots)
        assert all(bits_equal(a, b) for a, b in zip(got, caches, strict=True))


def test_equal_slots(writable_backend):
    """Either wins, whole; nothing else is written."""
    rng = np.random.default_rng(8)
    caches = pools(rng)
    k, v = tokens(rng, 4)
    slots = np.array([9, 2, 9, 5])
    got = append(writable_backend, k, v, *caches, slots)
    for cache, x, before in zip(got, (k, v), caches, strict=True):
        row = cache.reshape(-1, HEADS, DIM)[9]
        assert bits_equal(row, x[0]) or bits_equal(row, x[2])
        rest = np.ones(PAGES * PAGE, bool)
        rest[[9, 2, 5]] = False
        flat = before.reshape(-1, HEADS, DIM)
        assert bits_equal(cache.reshape(-1, HEADS, DIM)[rest], flat[rest])


def test_slots_past_the_pool(writable_backend):
    """ValueError on the CPU before anything is written; skipped on CUDA."""
    rng = np.random.default_rng(9)
    k, v = tokens(rng, 3)
    for bad in (PAGES * PAGE, 2**31 - 1, 2**40):
        caches = pools(rng)
        given = [writable_backend.to(x.copy()) for x in caches]
        slots = np.array([0, bad, 1], np.int64)
        import pagedecode

        call = [writable_backend.to(x) for x in (k, v)]
        if writable_backend.device == "cpu":
            with pytest.raises(ValueError, match="slots"):
                pagedecode.append(*call, *given, writable_backend.to(slots))
            want = caches
        else:
            pagedecode.append(*call, *given, writable_backend.to(slots))
            want = append_reference(k, v, *caches, np.array([0, -1, 1]))
        writable_backend.sync()
        for a, b in zip(given, want, strict=True):
            assert bits_equal(writable_backend.back(a), np.ascontiguousarray(b))


def test_decode_reads_what_append_wrote(device_backend):
    """A sequence grown by append, over a page's edge, against the reference on the stored cache."""
    rng = np.random.default_rng(10)
    for cache in (F16, E4M3, I8):
        args = make_case(rng, lens=((3, 6), (3, 17)), page=4, k_dtype=cache, k_scale="heads")
        k, v = (rng.standard_normal((6, 2, 64)).astype(F16) for _ in range(2))
        slots = []
        for b, n in enumerate((6, 17)):
            slots += [int(args["block_table"][b, j // 4]) * 4 + j % 4 for j in range(n - 3, n)]
        scales = {"k_scale": args["k_scale"], "v_scale": 0.5}
        got = append(
            device_backend, k, v, args["k_cache"], args["v_cache"], np.array(slots), **scales
        )
        check_call(device_backend, dict(args, k_cache=got[0], v_cache=got[1], v_scale=0.5))
        stored = by_slot(got[0], "NHD").reshape(-1, 2, 64)[slots]
        assert bits_equal(stored, quantise(k, head_scale(args["k_scale"], 2)[:, None], cache))


WRONG = {
    "k": [
        lambda a: dict(k=a["k"][0]),
        lambda a: dict(k=a["k"][:3]),
        lambda a: dict(k=a["k"][:, :1]),
        lambda a: dict(k=a["k"][..., :8]),
        lambda a: dict(k=a["k"].astype(np.float64)),
        lambda a: dict(k=a["k"].astype(I8)),
        lambda a: dict(k=a["k"].astype(np.int32)),
        lambda a: dict(k=np.repeat(a["k"], 2, -1)[..., ::2]),
    ],
    "v": [
        lambda a: dict(v=a["v"][0]),
        lambda a: dict(v=a["v"][:3]),
        lambda a: dict(v=a["v"][..., :8]),
        lambda a: dict(v=a["v"].astype(np.float64)),
    ],
    "k_cache": [
        lambda a: dict(k_cache=a["k_cache"][0]),
        lambda a: dict(k_cache=a["k_cache"].astype(np.float64)),
        lambda a: dict(k_cache=a["k_cache"].view(np.int16).astype(np.int32)),
    ],
    "v_cache": [
        lambda a: dict(v_cache=a["v_cache"][:2]),
        lambda a: dict(v_cache=a["v_cache"][:, :2].copy()),
        lambda a: dict(v_cache=a["v_cache"][..., :8]),
    ],
    "slots": [
        lambda a: dict(slots=a["slots"][:2]),
        lambda a: dict(slots=a["slots"][None]),
        lambda a: dict(slots=a["slots"].astype(np.float32)),
        lambda a: dict(slots=a["slots"].astype(np.uint64)),
        lambda a: dict(slots=a["slots"].astype(np.int16)),
        lambda a: dict(slots=[0, 1, 2, 3]),
    ],
    "kv_layout": [lambda a: dict(kv_layout="nhd"), lambda a: dict(kv_layout=None)],
    "k_scale": [
        lambda a: dict(k_scale=0.0),
        lambda a: dict(k_scale=float("nan")),
        lambda a: dict(k_scale=-1.0),
        lambda a: dict(k_scale=float("inf")),
        lambda a: dict(k_scale=np.ones(3, F32)),
        lambda a: dict(k_scale=np.ones(2, np.float64)),
        lambda a: dict(k_scale="1"),
    ],
    "v_scale": [lambda a: dict(v_scale=0.0), lambda a: dict(v_scale=np.ones((2, 1), F32))],
    "kv_dtype": [lambda a: dict(kv_dtype="float16"), lambda a: dict(kv_dtype="float8_e4m3fn")],
    "stream": [lambda a: dict(stream=1)],
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_write_nothing(name):
    import pagedecode

    for change in WRONG[name]:
        rng = np.random.default_rng(11)
        k, v = tokens(rng, 4)
        k_cache, v_cache = pools(rng)
        args = dict(k=k, v=v, k_cache=k_cache, v_cache=v_cache, slots=np.arange(4))
        before = k_cache.copy(), v_cache.copy()
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.append(**{**args, **change(args)})
        assert bits_equal(k_cache, before[0]) and bits_equal(v_cache, before[1])


def test_plain_uint8_is_refused():
    rng = np.random.default_rng(12)
    with pytest.raises((TypeError, ValueError), match=r"k_cache|kv_dtype"):
        append(NUMPY, *tokens(rng, 2), *pools(rng, np.uint8), np.arange(2))


def test_caches_that_cannot_be_written():
    """JAX arrays and read-only arrays: refused, unchanged."""
    import pagedecode

    rng = np.random.default_rng(13)
    k, v = tokens(rng, 2)
    jax, caches = BACKENDS["jax-cpu"], pools(rng)
    given = [jax.to(x) for x in caches]
    with pytest.raises(TypeError, match="k_cache"):
        pagedecode.append(jax.to(k), jax.to(v), *given, jax.to(np.arange(2)))
    assert all(bits_equal(jax.back(a), b) for a, b in zip(given, caches, strict=True))
    for name, at in (("k_cache", 0), ("v_cache", 1)):
        copies = [x.copy() for x in caches]
        copies[at].setflags(write=False)
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.append(k, v, *copies, np.arange(2))
        assert all(bits_equal(a, b) for a, b in zip(copies, caches, strict=True))


def test_read_only_and_foreign_inputs():
    """k, v and slots are only read: JAX arrays and frozen ones may fill a NumPy cache."""
    import pagedecode

    rng = np.random.default_rng(14)
    k, v = tokens(rng, 2)
    slots = np.array([3, 11])
    for name in ("jax-cpu", "torch-cpu", "numpy"):
        backend, caches = BACKENDS[name], pools(rng)
        want = append_reference(k, v, *caches, slots)
        given = [backend.to(x) for x in (k, v)]
        if name == "numpy":
            given = [np.frombuffer(x.tobytes(), F16).reshape(x.shape) for x in given]
        pagedecode.append(*given, *caches, backend.to(slots))
        assert all(bits_equal(a, b) for a, b in zip(caches, want, strict=True))
