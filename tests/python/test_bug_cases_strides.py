# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of strides: views of one tensor, slices, transposes, broadcasts, size-1 dimensions
(B09, B10, B28, B60)."""

import numpy as np
import pytest

from backends import convert
from probes import call, is_cuda, normal, np_type, refused, same_bits

LENGTHS = [37, 5, 70]


def base(m, kv=None, **options):
    args = normal(LENGTHS, [m] * 3, page=16, k_type=kv, **options)
    if kv:
        args.update(k_scale=0.25, v_scale=np.array([0.5, 2.0], np.float32))
    return args


def fill_like(shape, dtype):
    """Poison between what is used."""
    return (
        np.full(shape, np.nan, np.float32).astype(dtype)
        if dtype != np.int8
        else np.full(shape, 99, dtype)
    )


def interleaved(k, v):  # [P, 2, page, heads, dim]
    whole = np.stack([k, v], axis=1)
    return lambda a: (a(whole)[:, 0], a(whole)[:, 1])


def stacked(k, v):  # [2, P, page, heads, dim]
    whole = np.stack([k, v])
    return lambda a: (a(whole)[0], a(whole)[1])


def one_layer(k, v):  # [P, layers, page, 2, heads, dim]
    whole = fill_like((len(k), 3, 16, 2, 2, k.shape[-1]), k.dtype)
    whole[:, 1, :, 0], whole[:, 1, :, 1] = k, v
    return lambda a: (a(whole)[:, 1, :, 0], a(whole)[:, 1, :, 1])


def padded_pages(k, v):
    whole = fill_like((2, len(k), 19, *k.shape[2:]), k.dtype)
    whole[0, :, :16], whole[1, :, :16] = k, v
    return lambda a: (a(whole)[0, :, :16], a(whole)[1, :, :16])


def different_page_strides(k, v):
    more = fill_like((len(k) * 2, *k.shape[1:]), k.dtype)
    more[::2] = k
    return lambda a: (a(more)[::2], a(v))


def padded_rows(k, v):
    whole = fill_like((2, *k.shape[:-1], k.shape[-1] + 16), k.dtype)
    whole[0, ..., :-16], whole[1, ..., :-16] = k, v
    return lambda a: (a(whole)[0, ..., :-16], a(whole)[1, ..., :-16])


STORAGES = (interleaved, stacked, one_layer, padded_pages, different_page_strides, padded_rows)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda s: s.__name__)
@pytest.mark.parametrize("kv", (None, "float8_e4m3fn", "int8"))
@pytest.mark.parametrize("m", (1, 4))
def test_b09_caches_as_views(backend, storage, kv, m):
    args = base(m, kv)
    want = call(backend, args)
    k, v = storage(args["k_cache"], args["v_cache"])(backend.to)
    given = {**convert(backend, args), "k_cache": k, "v_cache": v}
    assert same_bits(call(backend, given), want)
    assert same_bits(call(backend, given, num_splits=3), call(backend, args, num_splits=3))


@pytest.mark.parametrize("kv", (None, "float8_e4m3fn"))
@pytest.mark.parametrize("m", (1, 4))
def test_b09_token_first_storage_as_heads_first_and_back(backend, kv, m):
    args = base(m, kv)
    want = call(backend, args)
    given = convert(backend, args)
    for name in ("k_cache", "v_cache"):
        given[name] = given[name].swapaxes(1, 2)
    assert same_bits(call(backend, given, kv_layout="HND"), want)
    heads_first = base(m, kv, layout="HND")
    given = convert(backend, heads_first)
    for name in ("k_cache", "v_cache"):
        given[name] = given[name].swapaxes(1, 2)
    given["kv_layout"] = "NHD"
    assert same_bits(call(backend, given), want)


def test_b09_scales_may_be_strided(backend):
    args = base(2, "float8_e4m3fn")
    scales = np.array([[0.25, 9.0], [0.75, 9.0]], np.float32)
    want = call(backend, args, k_scale=scales[:, 0].copy())
    given = convert(backend, args)
    assert same_bits(call(backend, given, k_scale=backend.to(scales)[:, 0]), want)


@pytest.mark.parametrize("kv_layout", ("NDH", "nhd", "", None))
def test_b09_unknown_layouts_are_refused(backend, kv_layout):
    with refused("kv_layout"):
        call(backend, base(1), kv_layout=kv_layout)


@pytest.mark.parametrize("kv", (None, "float8_e4m3fn"))
def test_b10_query_is_a_slice_of_a_projection(backend, kv):
    rng = np.random.default_rng(4)
    args = normal([37, 5], [3, 4], heads=2, group=4, k_type=kv)
    qkv = rng.standard_normal((7, 12 * 64), np.float32).astype(np.float16)
    fused = backend.to(qkv)
    given = convert(backend, args)

    def both(view, copy):
        assert same_bits(call(backend, {**given, "q": view}), call(backend, {**args, "q": copy}))

    q = qkv[:, :512].reshape(7, 8, 64)
    both(fused.reshape(7, 12, 64)[:, :8], q)
    both(fused.reshape(7, 12, 64)[:, 2:10], np.ascontiguousarray(qkv[:, 128:640]).reshape(7, 8, 64))
    twice = np.repeat(qkv, 2, axis=0)
    both(backend.to(twice).reshape(14, 12, 64)[::2, :8], q)
    # Token and head axes exchanged in memory.
    both(backend.to(np.ascontiguousarray(q.swapaxes(0, 1))).swapaxes(0, 1), q)
    # [B, m, Hq, D] from the same projection.
    square = {**args, "cu_seqlens_q": None, "seq_lens": args["seq_lens"]}
    four = backend.to(np.concatenate([qkv, qkv[:1]])).reshape(2, 4, 12, 64)[:, :, :8]
    copy = np.concatenate([q, q[:1]]).reshape(2, 4, 8, 64)
    given4 = {**given, "cu_seqlens_q": None, "q": four}
    assert same_bits(call(backend, given4), call(backend, {**square, "q": copy}))


def test_b10_a_strided_last_dimension_is_refused(writable_backend):
    backend = writable_backend
    args = normal([37, 5], [3, 4])
    given = convert(backend, args)
    for name in ("q", "k_cache", "v_cache"):
        wide = backend.to(np.repeat(args[name], 2, axis=-1))[..., ::2]
        with refused(name):
            call(backend, {**given, name: wide})


@pytest.mark.gpu
@pytest.mark.parametrize("name", ("q", "k_cache", "v_cache"))
def test_b10_rows_off_16_bytes_are_refused_on_cuda(name):
    from backends import BACKENDS

    backend = BACKENDS["torch-cuda"]
    args = normal([37, 5], [3, 4])
    given = convert(backend, args)
    for cut in (slice(1, 65), slice(4, 68)):  # a start or a stride off 16 bytes
        wide = np.zeros((*args[name].shape[:-1], 72 if cut.start == 1 else 68), np.float16)
        wide[..., cut] = args[name]
        with refused(name):
            call(backend, {**given, name: backend.to(wide)[..., cut]})


def test_b10_rows_at_any_element_on_the_cpu():
    from backends import NUMPY

    args = normal([37, 5], [3, 4])
    want = call(NUMPY, args)
    given = dict(args)
    for name in ("q", "k_cache", "v_cache"):
        wide = np.full((*args[name].shape[:-1], 67), np.nan, np.float16)
        wide[..., 1:65] = args[name]
        given[name] = wide[..., 1:65]
    assert same_bits(call(NUMPY, given), want)


def as_strided(backend, array, shape, strides):
    """A view with strides in elements, whatever the library."""
    if backend.name.startswith("torch"):
        return array.as_strided(shape, strides)
    steps = tuple(s * array.dtype.itemsize for s in strides)
    if backend.name.startswith("cupy"):
        import cupy

        return cupy.lib.stride_tricks.as_strided(array, shape, steps)
    return np.lib.stride_tricks.as_strided(array, shape, steps)


ODD = (1, 3, 7777, 10**6, 2**40)


def test_b28_strides_of_size_one_dimensions_mean_nothing(writable_backend):
    backend = writable_backend
    args = normal([37], [1], heads=1, group=8, page=16)
    want = call(backend, args)
    pool = args["k_cache"].shape[0]
    given = convert(backend, args)
    for odd in ODD:
        view = dict(given)
        view["q"] = as_strided(backend, given["q"], (1, 8, 64), (odd, 64, 1))
        for name in ("k_cache", "v_cache"):
            view[name] = as_strided(backend, given[name], (pool, 16, 1, 64), (1024, 64, odd, 1))
        view["block_table"] = as_strided(backend, given["block_table"], (1, 3), (odd, 1))
        view["seq_lens"] = as_strided(backend, given["seq_lens"], (1,), (odd,))
        assert same_bits(call(backend, view), want)


def test_b28_one_page_of_one_token_and_one_head(writable_backend):
    backend = writable_backend
    args = normal([1], [1], heads=1, group=1, page=1, spare=0)
    want = call(backend, args)
    given = convert(backend, args)
    for odd in ODD:
        view = {
            "q": as_strided(backend, given["q"], (1, 1, 64), (odd, odd + 1, 1)),
            "block_table": as_strided(backend, given["block_table"], (1, 1), (odd, odd)),
            "seq_lens": given["seq_lens"],
            "cu_seqlens_q": given["cu_seqlens_q"],
        }
        for name in ("k_cache", "v_cache"):
            view[name] = as_strided(backend, given[name], (1, 1, 1, 64), (odd, odd + 1, odd, 1))
        assert same_bits(call(backend, view), want)
        assert same_bits(call(backend, view, kv_layout="HND"), want)
        four = as_strided(backend, given["q"], (1, 1, 1, 64), (odd, odd, odd, 1))
        del view["cu_seqlens_q"]
        out, lse = call(backend, {**view, "q": four})
        assert same_bits((out.reshape(1, 1, 64), lse), want)


def test_b28_odd_strides_of_outputs(writable_backend):
    import pagedecode

    backend = writable_backend
    args = normal([37], [1], heads=1, group=8, page=16)
    want = call(backend, args)
    given = convert(backend, args)
    for odd in (1, 7777):
        out = backend.to(np.full((1, 8, 64), 123, np.float16))
        lse = backend.to(np.full((1, 8), 123, np.float32))
        pagedecode.decode(
            **given,
            out=as_strided(backend, out, (1, 8, 64), (odd, 64, 1)),
            lse=as_strided(backend, lse, (1, 8), (odd, 1)),
        )
        assert same_bits((backend.back(out), backend.back(lse)), want)


def test_b60_transposed_and_sliced_arrays(backend):
    args = normal([37, 5, 12], [3, 3, 3], page=16)
    want = call(backend, args)
    given = convert(backend, args)

    def turned(name, *axes):
        """The same values, stored with its axes in another order."""
        stored = np.ascontiguousarray(args[name].transpose(axes))
        view = backend.to(stored)
        back = tuple(int(i) for i in np.argsort(axes))
        return view.permute(back) if backend.name.startswith("torch") else view.transpose(back)

    for axes in ((1, 0, 2), (0, 1, 2)):
        assert same_bits(call(backend, {**given, "q": turned("q", *axes)}), want)
    for axes in ((2, 0, 1, 3), (1, 2, 0, 3), (2, 1, 0, 3), (0, 2, 1, 3), (1, 0, 2, 3)):
        view = {**given, **{n: turned(n, *axes) for n in ("k_cache", "v_cache")}}
        assert same_bits(call(backend, view), want)
    for axes, name in (((2, 1, 0), "q"), ((0, 1, 3, 2), "k_cache"), ((3, 2, 1, 0), "v_cache")):
        view = turned(name, *axes)
        if not backend.writable:  # JAX: an array is always compact, whatever it came from
            assert same_bits(call(backend, {**given, name: view}), want)
        else:
            with refused(name):
                call(backend, {**given, name: view})


def test_b60_every_second_page_and_head(backend):
    args = normal([37, 5, 12], [3, 3, 3], page=16, heads=4)
    given = convert(backend, args)
    pages = len(args["k_cache"]) // 2
    table = np.array([[0, 1, 2], [3, 0, 0], [1, 0, 0]], np.int32)
    assert pages >= 4
    small = {n: args[n][::2][:pages, :, 1::2] for n in ("k_cache", "v_cache")}
    for cache in small.values():
        cache[~np.isfinite(cache)] = 0.5
    given = convert(backend, args)  # after the change in place
    q = args["q"][:, ::2]
    want = call(
        backend,
        {**args, **{n: c.copy() for n, c in small.items()}, "q": q.copy(), "block_table": table},
    )
    view = {**given, "q": given["q"][:, ::2], "block_table": backend.to(table)}
    for name in small:
        view[name] = given[name][::2][:pages, :, 1::2]
    assert same_bits(call(backend, view), want)


def test_b60_broadcast_and_negative_strides():
    from backends import NUMPY

    args = normal([37, 5, 12], [3, 3, 3], page=16)
    for name in ("k_cache", "v_cache"):
        args[name][~np.isfinite(args[name])] = 0.5
    page = {n: args[n][:1] for n in ("k_cache", "v_cache")}
    wide = {n: np.broadcast_to(c, args[n].shape) for n, c in page.items()}
    want = call(NUMPY, {**args, **{n: c.copy() for n, c in wide.items()}})
    assert same_bits(call(NUMPY, {**args, **wide}), want)
    heads = {n: np.broadcast_to(args[n][:, :, :1], args[n].shape) for n in page}
    want = call(NUMPY, {**args, **{n: c.copy() for n, c in heads.items()}})
    assert same_bits(call(NUMPY, {**args, **heads}), want)
    backward = {n: args[n][::-1, ::-1, ::-1] for n in ("k_cache", "v_cache")}
    backward["q"] = args["q"][::-1, ::-1]
    backward["block_table"] = args["block_table"][::-1, ::-1]
    backward["seq_lens"] = args["seq_lens"][::-1]
    copies = {n: a.copy() for n, a in backward.items()}
    lengths = np.array([10, 5, 12], np.int32)
    # Tables turned round start with dead entries: give live ones.
    table = np.array([[2, 1, 0], [0, 1, 2], [3, 1, 0]], np.int32)
    backward["block_table"], copies["block_table"] = table[::-1, ::-1], table[::-1, ::-1].copy()
    backward["seq_lens"], copies["seq_lens"] = lengths[::-1], lengths[::-1].copy()
    assert same_bits(call(NUMPY, {**args, **backward}), call(NUMPY, {**args, **copies}))
    with refused("q"):
        call(NUMPY, {**args, "q": args["q"][:, :, ::-1]})
    with refused("q"):
        call(NUMPY, {**args, "q": np.broadcast_to(args["q"][..., :1], args["q"].shape)})


@pytest.mark.gpu
def test_b60_broadcast_strides_are_refused_on_cuda():
    from backends import BACKENDS

    backend = BACKENDS["torch-cuda"]
    given = convert(backend, normal([37, 5, 12], [3, 3, 3], page=16))
    assert is_cuda(backend)
    for name in ("q", "k_cache", "v_cache"):
        with refused(name):
            call(backend, {**given, name: given[name][:1].expand(given[name].shape)})


@pytest.mark.parametrize("dtype", ("bfloat16", "float32"))
def test_b60_other_types_of_jax_and_torch(dtype):
    from backends import BACKENDS

    args = normal([37, 5], [3, 3], dtype=dtype)
    assert args["q"].dtype == np_type(dtype)
    runs = [call(BACKENDS[name], args) for name in ("numpy", "torch-cpu", "jax-cpu")]
    assert same_bits(runs[0], runs[1]) and same_bits(runs[0], runs[2])
