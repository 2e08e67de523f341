# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of types: 8-bit caches and their scales, saturation, bfloat16 across libraries
(B15, B27, B31)."""

import math

import ml_dtypes
import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, NUMPY, convert
from probes import call, close, is_cuda, normal, np_type, offsets, pack, q_types, refused, same_bits
from reference import decode_reference

KV_TYPES = ("float8_e4m3fn", "float8_e5m2", "int8", None)


def two_keys(kv, dtype="float16", heads=2, n=2, page=4):
    """Stored k = [4, 0, ..] and 0, v = 1 and 0, q = [ln 3, 0, ..]."""
    kind = np_type(kv or dtype)
    k = np.zeros((n, heads, 64), np.float32)
    v = np.zeros((n, heads, 64), np.float32)
    k[: n // 2, :, 0], v[: n // 2] = 4, 1
    q = np.zeros((1, 2 * heads, 64), np_type(dtype))
    q[..., 0] = math.log(3)
    args = pack([k.astype(kind)], [v.astype(kind)], page=page)
    return {"q": q, "cu_seqlens_q": offsets([1]), "softmax_scale": 1.0, **args}


def scale_forms(value, heads=2):
    return (
        value,
        np.array([value], np.float32),
        np.full(heads, value, np.float32),
    )


@pytest.mark.parametrize("splits", (None, 1, 2, 5))
@pytest.mark.parametrize("kv", KV_TYPES)
def test_b15_each_scale_acts_once(backend, kv, splits):
    for dtype in q_types(backend):
        for n in (2, 200):
            args = two_keys(kv, dtype, n=n)
            for k_scale, v_scale in zip(scale_forms(0.25), scale_forms(0.5), strict=True):
                scales = {"k_scale": k_scale, "v_scale": v_scale}
                out, lse = call(backend, args, num_splits=splits, **scales)
                # k ignored: 0.4939, k twice: 0.2841, v ignored: 0.75. bfloat16 rounds ln 3 itself.
                near = 4e-3 if dtype == "bfloat16" else 2e-3
                close(out, np.full(out.shape, 0.375), near)
                close(lse, np.full(lse.shape, math.log(2 * n)), near)


@pytest.mark.parametrize("kv", KV_TYPES)
def test_b15_scales_per_head(backend, kv):
    args = normal([37, 5, 0], [2, 1, 1], k_type=kv)
    k_scale = np.array([0.03, 0.05], np.float32)
    v_scale = np.array([0.5, 2.0], np.float32)
    top = 4.0 * (30 if kv == "int8" else 1) * 2
    for options in (
        {"k_scale": k_scale, "v_scale": v_scale},
        {"k_scale": k_scale},
        {"v_scale": v_scale},
        {"k_scale": 0.03, "v_scale": v_scale},
        {"k_scale": np.float32(0.03), "v_scale": 2},
        {"k_scale": k_scale, "v_scale": v_scale, "rope": pagedecode.Rope()},
        {"k_scale": k_scale, "v_scale": v_scale, "softcap": 3.0, "window_left": 8},
    ):
        want = decode_reference(**args, **options)
        for splits in (None, 3):
            out, lse = call(backend, args, num_splits=splits, **options)
            close(out, want[0], 2e-3, top)
            close(lse, want[1], 4e-3 if "rope" in options else 1e-3)


@pytest.mark.parametrize("k_type", KV_TYPES)
@pytest.mark.parametrize("v_type", KV_TYPES)
def test_b15_mixed_types_of_k_and_v(backend, k_type, v_type):
    args = normal([37, 5], [2, 1], k_type=k_type, v_type=v_type or "float16")
    options = {"k_scale": 0.02, "v_scale": np.array([0.01, 0.02], np.float32)}
    want = decode_reference(**args, **options)
    out, lse = call(backend, args, **options)
    close(out, want[0], 2e-3, 2.54)
    close(lse, want[1], 1e-3)


@pytest.mark.parametrize("name", ("k_scale", "v_scale"))
@pytest.mark.parametrize("bad", (0, 0.0, -1.0, math.nan, math.inf, -math.inf))
def test_b15_scales_that_are_no_scales_are_refused(backend, name, bad):
    for kv in ("float8_e4m3fn", None):
        with refused(name):
            call(backend, two_keys(kv), **{name: bad})


@pytest.mark.parametrize("name", ("k_scale", "v_scale"))
def test_b15_scale_arrays_of_other_shapes_and_types_are_refused(backend, name):
    args = two_keys("float8_e4m3fn")
    for shape in ((3,), (0,), (2, 1), (1, 2)):
        with refused(name):
            call(backend, args, **{name: np.full(shape, 0.5, np.float32)})
    for dtype in ("float64", "float16", "int32"):
        with refused(name):
            call(backend, args, **{name: np.full(2, 1, dtype)})
    with refused(name):
        call(backend, args, **{name: "0.5"})


# B27 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("bfloat16", "float16", "float32"))
def test_b27_one_result_from_every_library(dtype):
    args = normal([37, 5], [2, 1], dtype=dtype)
    want = call(NUMPY, args)
    close(want[0], decode_reference(**args)[0], 1.2e-2, 4.0)
    for name in ("torch-cpu", "jax-cpu"):
        backend = BACKENDS[name]
        assert same_bits(call(backend, args), want)
        given = convert(backend, args)
        out = pagedecode.decode(**given)
        assert backend.is_mine(out) and str(out.dtype).endswith(dtype)
        assert tuple(out.shape) == args["q"].shape


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
def test_b27_torch_and_cupy_agree_on_the_gpu(dtype):
    args = normal([37, 5], [2, 1], dtype=dtype)
    names = ("torch-cuda", "cupy-cuda") if dtype == "float16" else ("torch-cuda",)
    runs = [call(BACKENDS[name], args) for name in names]
    assert all(same_bits(run, runs[0]) for run in runs)
    close(runs[0][0], decode_reference(**args)[0], 1.2e-2, 4.0)


@pytest.mark.parametrize("kv", ("float8_e4m3fn", "float8_e5m2"))
def test_b27_float8_as_itself_and_as_bytes(backend, kv):
    args = normal([37, 5], [2, 1], k_type=kv)
    want = call(backend, args)
    raw = {n: args[n].view(np.uint8) for n in ("k_cache", "v_cache")}
    assert same_bits(call(backend, {**args, **raw}, kv_dtype=kv), want)
    assert same_bits(call(backend, {**args, **raw}, kv_dtype=(kv, kv)), want)
    close(want[0], decode_reference(**args)[0], 2e-3, 4.0)
    other = {"float8_e4m3fn": "float8_e5m2", "float8_e5m2": "float8_e4m3fn"}[kv]
    finite = {}
    for name, cache in raw.items():  # bytes that are finite in either type
        finite[name] = (cache & 0x9F) | 0x20
    first = call(backend, {**args, **finite}, kv_dtype=kv)
    assert not same_bits(call(backend, {**args, **finite}, kv_dtype=other), first)
    pair = {"k_cache": finite["k_cache"].view(np_type(kv))}
    pair["v_cache"] = finite["v_cache"].view(np_type(other))
    want = decode_reference(**{**args, **pair})
    out, lse = call(backend, {**args, **finite}, kv_dtype=(kv, other))
    close(out, want[0], 2e-3, np.abs(want[0]).max() * 4)
    close(lse, want[1], 1e-3)


def test_b27_a_pair_may_name_one_type(backend):
    args = normal([37, 5], [2, 1], v_type="float8_e5m2")
    want = call(backend, args)
    raw = {**args, "v_cache": args["v_cache"].view(np.uint8)}
    assert same_bits(call(backend, raw, kv_dtype=(None, "float8_e5m2")), want)
    close(want[0], decode_reference(**args)[0], 2e-3, 4.0)
    for pair in (("float8_e5m2", None), ("float8_e5m2", "float8_e5m2"), (None, None)):
        with refused("kv_dtype", "v_cache"):
            call(backend, raw, kv_dtype=pair)


def test_b27_bytes_are_never_guessed(backend):
    args = normal([37, 5], [2, 1], k_type="float8_e4m3fn")
    raw = {n: args[n].view(np.uint8) for n in ("k_cache", "v_cache")}
    with refused("k_cache", "kv_dtype"):
        call(backend, {**args, **raw})
    for bad in ("float8", "e4m3", "float8_e4m3fnuz", "int8", "bfloat16", "", 8, ("float8_e4m3fn",)):
        with refused("kv_dtype"):
            call(backend, {**args, **raw}, kv_dtype=bad)


@pytest.mark.parametrize("kv", ("float16", "int8"))
def test_b27_kv_dtype_names_the_type_of_bytes_only(backend, kv):
    with refused("kv_dtype"):
        call(backend, normal([5], [1], k_type=kv), kv_dtype="float8_e4m3fn")


def test_b27_float8_tensors_of_torch():
    import torch

    args = normal([37, 5], [2, 1], k_type="float8_e4m3fn")
    given = convert(BACKENDS["torch-cpu"], args)
    assert given["k_cache"].dtype == torch.float8_e4m3fn
    assert same_bits(call(BACKENDS["torch-cpu"], given), call(NUMPY, args))
    raw = {n: given[n].view(torch.uint8) for n in ("k_cache", "v_cache")}
    with_name = call(BACKENDS["torch-cpu"], {**given, **raw}, kv_dtype="float8_e4m3fn")
    assert same_bits(with_name, call(NUMPY, args))


@pytest.mark.parametrize("name", ("q", "k_cache", "v_cache"))
@pytest.mark.parametrize(
    "dtype", ("complex64", "bool", "float64", "int32", "uint16", "int64", "float8_e4m3fnuz", "int4")
)
def test_b27_types_without_a_meaning_are_refused(name, dtype):
    args = normal([5], [1])
    bad = np.zeros(args[name].shape, np_type(dtype))
    for backend in (NUMPY, BACKENDS["jax-cpu"]):
        with refused(name):
            call(backend, {**convert(backend, args), name: backend.to(bad)})
    if dtype not in ("float8_e4m3fnuz", "int4"):
        backend = BACKENDS["torch-cpu"]
        with refused(name):
            call(backend, {**convert(backend, args), name: backend.to(bad)})


@pytest.mark.parametrize("kv", ("int8", "float8_e4m3fn", "float8_e5m2"))
def test_b27_one_byte_queries_are_refused(backend, kv):
    args = normal([5], [1])
    if is_cuda(backend) and backend.name.startswith("cupy"):
        kv = "int8"
    with refused("q"):
        call(NUMPY if backend.name == "jax-cpu" else backend, args, q=args["q"].astype(np_type(kv)))


@pytest.mark.parametrize("bad", (None, 3, "q", [[1.0]], object()))
@pytest.mark.parametrize("name", ("q", "k_cache", "v_cache", "block_table", "seq_lens"))
def test_b27_things_that_are_no_arrays_are_refused(name, bad):
    with refused(name):
        pagedecode.decode(**{**normal([5], [1]), name: bad})


# B31 ----------------------------------------------------------------------------------------------

VALUES = [449, 463, 464, 465, 1e4, 3e38, np.inf, -1e4, 448, 2**-9, 2**-10, -0.0]
BYTES = [0x7E] * 7 + [0xFE, 0x7E, 0x01, 0x00, 0x80]


def stored(backend, x, kind, **scales):
    """The bytes that append stores for the first head of each token."""
    x = np.asarray(x)
    new = np.broadcast_to(x[:, None, None], (len(x), 2, 64)).copy()
    raw = np.full((-(-len(x) // 4) + 1, 4, 2, 64), 0x55, np.uint8)
    name = kind if kind.startswith("float8") else None
    caches = [backend.to((raw if name else raw.view(np.int8)).copy()) for _ in range(2)]
    given = {n: backend.to(s) if isinstance(s, np.ndarray) else s for n, s in scales.items()}
    slots = backend.to(np.arange(len(x)))
    x = backend.to(new)
    pagedecode.append(x, x, *caches, slots, kv_dtype=name, **given)
    k, v = (np.asarray(backend.back(c)).view(np.uint8).reshape(-1, 128) for c in caches)
    assert (k[:, :1] == k[:, :64]).all() and (k[len(slots) :] == 0x55).all()
    if scales.get("k_scale") is scales.get("v_scale"):
        assert same_bits(k, v)
    return k[: len(slots), 0].tolist()


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_b31_e4m3_saturates(writable_backend, dtype):
    if dtype == "bfloat16" and writable_backend.name.startswith("cupy"):
        dtype = "float16"
    with np.errstate(over="ignore"):
        x = np.array(VALUES, np.float32).astype(np_type(dtype))
    assert stored(writable_backend, x, "float8_e4m3fn") == BYTES
    assert stored(writable_backend, -x, "float8_e4m3fn") == [b ^ 0x80 for b in BYTES]


def test_b31_e5m2_and_int8_saturate(writable_backend):
    x = np.array([57344, 57345, 65536, 1e9, np.inf, -1e9, -np.inf, 2.0**-16, 2.0**-17], np.float32)
    assert stored(writable_backend, x, "float8_e5m2") == [0x7B] * 5 + [0xFB, 0xFB, 0x01, 0x00]
    x = np.array([127, 127.5, 1e9, np.inf, -127, -1e9, -np.inf, 0.5, 1.5, 2.5, -0.5], np.float32)
    want = [127, 127, 127, 127, -127, -127, -127, 0, 2, 2, 0]
    assert stored(writable_backend, x, "int8") == [w & 0xFF for w in want]


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_b31_nan_stays_nan(writable_backend, dtype):
    x = np.array([np.nan, -np.nan, 1.0], dtype)
    for kind in ("float8_e4m3fn", "float8_e5m2"):
        got = np.array(stored(writable_backend, x, kind), np.uint8).view(np_type(kind))
        assert np.isnan(got[:2].astype(np.float32)).all() and float(got[2]) == 1


@pytest.mark.parametrize("kind", ("float8_e4m3fn", "float8_e5m2", "int8"))
def test_b31_every_number_rounds_to_nearest_even(writable_backend, kind):
    # All float16 numbers: every tie and every subnormal of the 8-bit types is among them.
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)]
    limit = {"float8_e4m3fn": 448, "float8_e5m2": 57344, "int8": 127}[kind]
    clipped = np.clip(x.astype(np.float32), -limit, limit)
    want = np.rint(clipped).astype(np.int8) if kind == "int8" else clipped.astype(np_type(kind))
    assert stored(writable_backend, x, kind) == want.view(np.uint8).tolist()


def test_b31_the_scale_divides_before_saturation(writable_backend):
    x = np.array([448 * 2, 448 * 2 + 64, 1e4, 1.0], np.float32)
    for scale in (2.0, np.array([2.0], np.float32), np.full(2, 2.0, np.float32)):
        got = stored(writable_backend, x, "float8_e4m3fn", k_scale=scale, v_scale=scale)
        assert got == [0x7E, 0x7E, 0x7E, int(np.array(0.5, ml_dtypes.float8_e4m3fn).view(np.uint8))]


@pytest.mark.parametrize("name", ("k_scale", "v_scale"))
@pytest.mark.parametrize("bad", (0.0, math.inf, math.nan, -1.0))
def test_b31_append_refuses_scales_that_are_no_scales(writable_backend, name, bad):
    with refused(name):
        stored(writable_backend, np.ones(4, np.float32), "float8_e4m3fn", **{name: bad})
