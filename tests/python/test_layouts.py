# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Strides of q and of the caches: any, if rows are contiguous and aligned; bit-equal to copies."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import backends
from backends import BACKENDS, NUMPY, check_call, run
from cases import BF16, E4M3, F16, F32, I8, make_case

LENS = ((1, 37), (4, 20), (2, 0), (3, 16))


def base(dtype=F16, cache=None, **options):
    options = dict(dict(lens=LENS, heads=(2, 4), q_dtype=dtype, k_dtype=cache), **options)
    return make_case(np.random.default_rng(21), **options)


def compact(args):
    return {
        name: np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
        for name, value in args.items()
    }


def strided_forms(array):
    """Views that equal `array` [pages, a, b, D], in memory laid out in other ways (D
    contiguous)."""
    pages, a, b, d = array.shape

    def view(shape, pick):
        whole = np.full(shape, array.ravel()[0], array.dtype)
        found = pick(whole)
        found[...] = array
        return found

    return {
        "padded pages": view((pages, a + 3, b, d), lambda w: w[:, :a]),
        "padded tokens": view((pages, a, b + 1, d), lambda w: w[:, :, :b]),
        "padded rows": view((pages, a, b, d + 16), lambda w: w[..., :d]),
        "middle of rows": view((pages, a, b, d + 32), lambda w: w[..., 16 : 16 + d]),
        "odd offset": view((pages, a, b, d + 3), lambda w: w[..., 1 : 1 + d]),
        "every other page": view((2 * pages, a, b, d), lambda w: w[::2]),
        "one layer of many": view((pages, 3, a, b, d), lambda w: w[:, 1]),
        "layers first": view((3, pages, a, b, d), lambda w: w[1]),
        "transposed": view((pages, b, a, d), lambda w: w.transpose(0, 2, 1, 3)),
        "pages last": view((a, b, pages, d), lambda w: w.transpose(2, 0, 1, 3)),
    }


FORMS = list(strided_forms(np.zeros((1, 1, 1, 8))))
NEGATIVE = {
    "pages": (slice(None, None, -1),),
    "tokens": (slice(None), slice(None, None, -1)),
    "heads": (slice(None), slice(None), slice(None, None, -1)),
    "all": (slice(None, None, -1),) * 3,
}


@pytest.mark.parametrize("cache", [None, E4M3, I8], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_cache_strides(writable_backend, form, cache):
    if form == "odd offset" and writable_backend.device == "cuda":
        return  # rows must be aligned to 16 bytes there: test_strides_that_cuda_refuses
    args = base(cache=cache, k_scale="heads", v_scale="heads")
    want = check_call(writable_backend, args)
    for names in (("k_cache", "v_cache"), ("k_cache",), ("v_cache",)):
        changed = {name: strided_forms(args[name])[form] for name in names}
        assert run(writable_backend, args, **changed).same_bits(want)


@pytest.mark.parametrize("axes", NEGATIVE)
def test_negative_cache_strides(numpy_backend, axes):
    for cache in (None, E4M3, F32):
        args = base(F32 if cache == F32 else BF16, cache)
        want = check_call(numpy_backend, args)
        at = NEGATIVE[axes]
        changed = {name: args[name][at].copy()[at] for name in ("k_cache", "v_cache")}
        assert changed["k_cache"].strides != args["k_cache"].strides
        assert run(numpy_backend, args, **changed).same_bits(want)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_zero_cache_strides(numpy_backend, axis):
    """A broadcast axis: all pages, tokens or heads are one and the same memory."""
    for name in ("numpy", "torch-cpu"):
        args = base(poisoned=False)
        for cache in ("k_cache", "v_cache"):
            shape = args[cache].shape
            args[cache] = np.broadcast_to(args[cache].take([0], axis=axis), shape)
        want = check_call(BACKENDS[name], compact(args))
        assert run(BACKENDS[name], args).same_bits(want)


def test_views_of_one_tensor(writable_backend):
    """K and V interleaved in one allocation of the library itself."""
    for storage in ("interleaved", "padded", "transposed"):
        for layout in ("NHD", "HND"):
            args = base(storage=storage, layout=layout)
            want = check_call(writable_backend, compact(args))
            assert run(writable_backend, args).same_bits(want)


@pytest.mark.parametrize("name", ["torch-cpu", pytest.param("torch-cuda", marks=pytest.mark.gpu)])
def test_torch_unbind(name):
    import torch

    import pagedecode

    args = base(cache=E4M3)
    want = run(BACKENDS[name], args)
    given = backends.convert(BACKENDS[name], args)
    both = torch.stack([given["k_cache"].view(torch.uint8), given["v_cache"].view(torch.uint8)], 1)
    k, v = (x.view(torch.float8_e4m3fn) for x in both.unbind(1))
    out, lse = pagedecode.decode(**dict(given, k_cache=k, v_cache=v), return_lse=True)
    assert backends.Result(BACKENDS[name].back(out), BACKENDS[name].back(lse)).same_bits(want)


def test_layouts_agree(backend):
    """NHD memory under the name HND by a transpose, and true HND memory: the same bits."""
    args = base()
    want = check_call(backend, args)
    other = {name: args[name].transpose(0, 2, 1, 3) for name in ("k_cache", "v_cache")}
    assert run(backend, args, **other, kv_layout="HND").same_bits(want)
    other = {name: np.ascontiguousarray(value) for name, value in other.items()}
    assert run(backend, args, **other, kv_layout="HND").same_bits(want)


@pytest.mark.parametrize("q_dtype", [F16, BF16, F32], ids=str)
def test_query_of_a_fused_projection(q_dtype):
    args = base(q_dtype)
    rows, heads, dim = args["q"].shape
    fused = np.random.default_rng(0).standard_normal((rows, (heads + 4) * dim)).astype(q_dtype)
    q = fused[:, : heads * dim].reshape(rows, heads, dim)
    q = as_strided(fused, q.shape, (fused.strides[0], dim * fused.itemsize, fused.itemsize))
    for name in ("numpy", "torch-cpu"):
        want = check_call(BACKENDS[name], args, q=q.copy())
        assert run(BACKENDS[name], args, q=q).same_bits(want)


def test_query_strides(writable_backend):
    args = base()
    q = args["q"]
    want = run(writable_backend, args)
    wide = np.zeros((2 * len(q), 8, 64), F16)
    wide[::2] = q
    heads_first = np.ascontiguousarray(q.transpose(1, 0, 2)).transpose(1, 0, 2)
    padded = np.zeros((len(q), 9, 80), F16)
    padded[:, 1:, :64] = q
    for form in (wide[::2], heads_first, padded[:, 1:, :64]):
        assert run(writable_backend, args, q=form).same_bits(want)
    if writable_backend.device == "cuda":
        return  # which refuses zero strides
    same = np.broadcast_to(q[:1, :1], q.shape)
    assert run(writable_backend, args, q=same).same_bits(run(writable_backend, args, q=same.copy()))


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_rows_aligned_to_their_element_only(dtype):
    """On the CPU: q, caches and out at odd offsets with odd strides."""
    import pagedecode

    args = base(dtype)
    want = check_call(NUMPY, args)
    odd = {}
    for name in ("q", "k_cache", "v_cache"):
        whole = np.zeros((*args[name].shape[:-1], 67), dtype)
        whole[..., 1:65] = args[name]
        odd[name] = whole[..., 1:65]
    out = np.full((*args["q"].shape[:-1], 69), 123, dtype)
    pagedecode.decode(**{**args, **odd}, out=out[..., 3:67])
    assert backends.bits_equal(out[..., 3:67], want.out)
    assert (out[..., :3] == 123).all() and (out[..., 67:] == 123).all()


def test_negative_query_strides(numpy_backend):
    args = base()
    want = run(numpy_backend, args)
    for at in ((slice(None, None, -1),), (slice(None), slice(None, None, -1))):
        assert run(numpy_backend, args, q=args["q"][at].copy()[at]).same_bits(want)


def test_four_dimensional_query_strides(writable_backend):
    args = base(lens=((3, 30), (3, 5)), ragged=False)
    want = check_call(writable_backend, args)
    batch_inside = np.ascontiguousarray(args["q"].transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)
    wide = np.zeros((2, 5, 8, 64), F16)
    wide[:, 1:4] = args["q"]
    for form in (batch_inside, wide[:, 1:4]):
        assert run(writable_backend, args, q=form).same_bits(want)


@pytest.mark.parametrize("odd", [1, 3, 7777, 10**6, 0, -5])
def test_strides_of_size_one(odd):
    """The stride of a dimension of size 1 means nothing, also for alignment."""
    for name in ("numpy", "torch-cpu"):
        if name == "torch-cpu" and odd < 0:
            continue
        args = base(lens=((1, 9),), heads=(1, 1), page=16, extra=0)
        want = check_call(BACKENDS[name], args)

        def odd_strides(array):
            strides = [
                odd * array.itemsize if n == 1 else s
                for n, s in zip(array.shape, array.strides, strict=True)
            ]
            return as_strided(array, array.shape, strides)

        names = ("q", "k_cache", "v_cache", "block_table", "seq_lens")
        changed = {n: odd_strides(args[n]) for n in names}
        if name == "numpy":
            assert run(NUMPY, args, **changed).same_bits(want)
            continue
        import torch

        import pagedecode

        given = backends.convert(BACKENDS[name], args)
        for n in names:
            shape = given[n].shape
            strides = [odd if k == 1 else s for k, s in zip(shape, given[n].stride(), strict=True)]
            given[n] = torch.as_strided(given[n], shape, strides)
        out, lse = pagedecode.decode(**given, return_lse=True)
        assert backends.Result(BACKENDS[name].back(out), lse.numpy()).same_bits(want)


@pytest.mark.gpu
def test_strides_of_size_one_on_cuda():
    import torch

    import pagedecode

    backend = BACKENDS["torch-cuda"]
    args = base(lens=((1, 9),), heads=(1, 1), page=16, extra=0)
    want = check_call(backend, args)
    for odd in (1, 3, 7777, 10**6):
        given = backends.convert(backend, args)
        for n in ("q", "k_cache", "v_cache", "block_table", "seq_lens"):
            strides = [
                odd if k == 1 else s for k, s in zip(given[n].shape, given[n].stride(), strict=True)
            ]
            given[n] = torch.as_strided(given[n], given[n].shape, strides)
        out, lse = pagedecode.decode(**given, return_lse=True)
        assert backends.Result(backend.back(out), backend.back(lse)).same_bits(want)


def refused(call, *words):
    """The call raises a ValueError or TypeError whose message holds the words."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache"])
def test_last_dimension_must_be_contiguous(name):
    args = base(head_dim=32)
    wide = np.repeat(args[name], 2, axis=-1)
    for library in ("numpy", "torch-cpu"):
        refused(lambda b=library: run(BACKENDS[b], args, **{name: wide[..., ::2]}), name)
    refused(lambda: run(NUMPY, args, **{name: args[name][..., ::-1]}), name)
    same = np.broadcast_to(args[name][..., :1], args[name].shape)
    refused(lambda: run(NUMPY, args, **{name: same}), name)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "seq_lens", "block_table"])
def test_arrays_misaligned_to_their_element(name):
    args = base()
    raw = np.zeros(args[name].nbytes + 1, np.uint8)
    shifted = np.frombuffer(raw, args[name].dtype, args[name].size, 1).reshape(args[name].shape)
    raw[1:] = np.frombuffer(np.ascontiguousarray(args[name]).tobytes(), np.uint8)
    refused(lambda: run(NUMPY, args, **{name: shifted}), name)


@pytest.mark.gpu
def test_strides_that_cuda_refuses():
    backend = BACKENDS["torch-cuda"]
    args = base(lens=((2, 9), (1, 5)))
    for name in ("q", "k_cache", "v_cache"):
        wide = np.zeros((*args[name].shape[:-1], 65), F16)
        wide[..., :64] = args[name]
        refused(lambda n=name, w=wide: run(backend, args, **{n: w[..., :64]}), name)
        same = np.broadcast_to(args[name][:1], args[name].shape)
        if name != "q":
            refused(lambda n=name, s=same: run(backend, args, **{n: s}), name)
