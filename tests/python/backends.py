# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The array libraries that tests run on, and one way to call decode with sentinels around results.

`BACKENDS[name].to(numpy_array)` keeps strides where the library can hold them; `.back(array)` gives
NumPy again. bfloat16 and float8 are `ml_dtypes` types on the NumPy side.
"""

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

import cases
from reference import Pages, RopeSpec, decode_reference, flat_rows

SENTINEL = 123.0  # exact in every float type
BAND = 2  # guard items before and after what a call writes


@lru_cache
def _torch():
    import torch

    return torch


@lru_cache
def _jax():
    import jax

    jax.config.update("jax_enable_x64", True)  # else int64 arrays silently become int32
    return jax


@lru_cache
def _cupy():
    import cupy

    return cupy


def torch_dtype(dtype):
    """The torch type of a NumPy (ml_dtypes) type."""
    torch, dtype = _torch(), np.dtype(dtype)
    return getattr(torch, dtype.name)


def memory_of(array):
    """(uint8 copy of the memory that a strided array spans, byte offset of its first element)."""
    low, high = np.lib.array_utils.byte_bounds(array)
    span = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
    return span.copy(), array.__array_interface__["data"][0] - low


class Backend:
    """An array library on a device. `writable`: its arrays can be written in place (not JAX)."""

    name: str
    device = "cpu"
    writable = True
    negative_strides = False

    def to(self, array):
        raise NotImplementedError

    def back(self, array):
        raise NotImplementedError

    def sync(self):
        pass

    def takes(self, case):
        """Whether a `Case` is within what this device and this library hold."""
        del case
        return True

    def holds(self, dtype):
        """Whether the library has arrays of a type."""
        del dtype
        return True

    def is_mine(self, array):
        """Whether an array belongs to this library and device."""
        raise NotImplementedError

    def __repr__(self):
        return self.name


class NumpyBackend(Backend):
    name = "numpy"
    negative_strides = True

    def to(self, array):
        return array

    def back(self, array):
        return np.asarray(array)

    def is_mine(self, array):
        return isinstance(array, np.ndarray)


class TorchBackend(Backend):
    def __init__(self, device):
        self.name, self.device = f"torch-{device}", device

    def to(self, array):
        torch = _torch()
        array = np.asarray(array)
        if any(s < 0 for s in array.strides):
            array = array.copy()
        dtype = torch_dtype(array.dtype)
        if array.size == 0:
            return torch.empty(array.shape, dtype=dtype, device=self.device)
        memory, first = memory_of(array)
        if first % array.itemsize or any(s % array.itemsize for s in array.strides):
            return self.to(array.copy())
        flat = torch.from_numpy(memory).to(self.device).view(dtype)
        strides = [s // array.itemsize for s in array.strides]
        return flat.as_strided(array.shape, strides, first // array.itemsize)

    def back(self, array):
        torch = _torch()
        array = array.detach().cpu().contiguous()
        if array.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            kind = getattr(ml_dtypes, str(array.dtype).removeprefix("torch."))
            raw = torch.int16 if array.dtype == torch.bfloat16 else torch.uint8
            return array.view(raw).numpy().view(kind)
        return array.numpy()

    def sync(self):
        if self.device == "cuda":
            _torch().cuda.synchronize()

    def takes(self, case):
        return self.device == "cpu" or case.cuda

    def is_mine(self, array):
        return isinstance(array, _torch().Tensor) and array.device.type == self.device


class JaxBackend(Backend):
    name = "jax-cpu"
    writable = False

    def to(self, array):
        jax = _jax()
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        return jax.device_put(jax.numpy.array(array, copy=True), jax.devices("cpu")[0])

    def back(self, array):
        return np.asarray(array)

    def is_mine(self, array):
        return isinstance(array, _jax().Array)


class CupyBackend(Backend):
    """CuPy holds no bfloat16 and no float8 of its own: float8 goes as uint8 with `kv_dtype`."""

    name, device = "cupy-cuda", "cuda"

    def to(self, array):
        cupy, array = _cupy(), np.asarray(array)
        if any(s < 0 for s in array.strides) or array.size == 0:
            array = array.copy()
        dtype = np.uint8 if array.dtype in (cases.E4M3, cases.E5M2) else array.dtype
        if array.size == 0:
            return cupy.empty(array.shape, dtype)
        memory, first = memory_of(array)
        start = cupy.asarray(memory).data + first
        return cupy.ndarray(array.shape, dtype, memptr=start, strides=array.strides)

    def back(self, array):
        return _cupy().asnumpy(array)

    def sync(self):
        _cupy().cuda.Device().synchronize()

    def holds(self, dtype):
        return np.dtype(dtype) not in (cases.BF16, cases.E4M3, cases.E5M2)

    def takes(self, case):
        if not case.cuda or np.dtype(case.options.get("q_dtype", np.float16)) != np.float16:
            return False
        k = case.options.get("k_dtype") or np.float16
        v = case.options.get("v_dtype") or k
        return self.holds(k) == self.holds(v)  # `kv_dtype` names both or none

    def is_mine(self, array):
        return isinstance(array, _cupy().ndarray)


BACKENDS = {
    backend.name: backend
    for backend in (
        NumpyBackend(),
        TorchBackend("cpu"),
        JaxBackend(),
        TorchBackend("cuda"),
        CupyBackend(),
    )
}
CPU = [name for name, backend in BACKENDS.items() if backend.device == "cpu"]
GPU = [name for name, backend in BACKENDS.items() if backend.device == "cuda"]
NUMPY = BACKENDS["numpy"]


def convert(backend, args):
    """NumPy arguments as those of the library: arrays of the backend, PageList, Rope."""
    import pagedecode

    made = {}
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            value = backend.to(value)
        elif isinstance(value, Pages):
            value = pagedecode.PageList(backend.to(value.indptr), backend.to(value.indices))
        elif isinstance(value, RopeSpec):
            value = pagedecode.Rope(*value)
        made[name] = value
    if isinstance(backend, CupyBackend) and "k_cache" in args:
        names = tuple(
            args[cache].dtype.name if args[cache].dtype in (cases.E4M3, cases.E5M2) else None
            for cache in ("k_cache", "v_cache")
        )
        if any(names):
            made["kv_dtype"] = names
    return made


@dataclass
class Guarded:
    """An array of the backend that lies within a larger one full of sentinels."""

    backend: Backend
    whole: Any
    array: Any

    @staticmethod
    def make(backend, shape, dtype, fill=SENTINEL):
        whole = backend.to(np.full((shape[0] + 2 * BAND, *shape[1:]), fill, dtype))
        return Guarded(backend, whole, whole[BAND : BAND + shape[0]])

    def value(self):
        return self.backend.back(self.array)

    def check_bands(self):
        whole = self.backend.back(self.whole).astype(np.float64)
        for band in (whole[:BAND], whole[len(whole) - BAND :]):
            assert (band == SENTINEL).all(), "written outside the output"


@dataclass
class Result:
    """A call's results as NumPy arrays: out (q's shape), lse [total_q, Hq]."""

    out: np.ndarray
    lse: np.ndarray

    def same_bits(self, other):
        return bits_equal(self.out, other.out) and bits_equal(self.lse, other.lse)

    def rows(self, at):
        return Result(flat_rows(self.out)[at], self.lse[at])


def bits(array):
    """An array's bits, so that NaN equals NaN and -0 differs from 0."""
    array = np.ascontiguousarray(array)
    return array.view(f"u{array.itemsize}")


def bits_equal(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and bool((bits(a) == bits(b)).all())


def run(backend, args, *, out_dtype=None, guarded=True, **changes):
    """Call decode with NumPy arguments `args` (changed by `changes`): a `Result`.

    Where arrays can be written, out and lse are given: pre-filled with sentinels, guarded on both
    sides.
    """
    import pagedecode

    args = {**args, **changes}
    given = convert(backend, args)
    out_dtype = np.dtype(out_dtype or args["q"].dtype)
    if not (backend.writable and guarded):
        assert out_dtype == args["q"].dtype
        out, lse = pagedecode.decode(**given, return_lse=True)
        return Result(backend.back(out), backend.back(lse))
    shape = args["q"].shape
    total = shape[0] if len(shape) == 3 else shape[0] * shape[1]
    out = Guarded.make(backend, shape, out_dtype)
    lse = Guarded.make(backend, (total, shape[-2]), np.float32)
    got = pagedecode.decode(**given, out=out.array, lse=lse.array, return_lse=True)
    backend.sync()
    assert got[0] is out.array and got[1] is lse.array, "the given out and lse are what is returned"
    out.check_bands()
    lse.check_bands()
    return Result(out.value(), lse.value())


def written(args):
    """The rows of q that belong to a sequence; those past cu_seqlens_q[B] are never written."""
    cu = args.get("cu_seqlens_q")
    return slice(0, None if cu is None else int(cu[-1]))


def compare(result, want, out_tol, lse_tol, *, written=None):
    """Assert that a result equals (out, lse) of the reference: NaN and Inf places first.

    `written`: number of rows that belong to a sequence; those past it must hold the sentinel still.
    """
    got_out, got_lse = flat_rows(result.out).astype(np.float64), result.lse.astype(np.float64)
    want_out, want_lse = flat_rows(want[0]), want[1]
    written = len(got_out) if written is None else written
    for got, expected, tol, name in (
        (got_out, want_out, out_tol, "out"),
        (got_lse, want_lse, lse_tol, "lse"),
    ):
        got, expected = got[:written], expected[:written]
        assert got.shape == expected.shape
        for kind in (np.isnan, np.isposinf, np.isneginf):
            assert (kind(got) == kind(expected)).all(), f"{name}: {kind.__name__} in other places"
        finite = np.isfinite(expected)
        error = np.abs(got[finite] - expected[finite])
        worst = float(error.max()) if error.size else 0.0
        assert worst <= tol, f"{name}: error {worst:.3g}, allowed {tol:.3g}"
    empty = np.isneginf(want_lse[:written])
    assert (got_out[:written][empty] == 0).all(), "a row that sees nothing is exactly 0"


def check_call(backend, args, *, out_dtype=None, slack=1.0, **changes):
    """Run a case, compare it with the reference within the contract's tolerance, return it."""
    args = {**args, **changes}
    result = run(backend, args, out_dtype=out_dtype)
    out_tol, lse_tol = cases.tolerances(args, out_dtype)
    cu = args.get("cu_seqlens_q")
    written = int(cu[-1]) if cu is not None else None
    compare(result, decode_reference(**args), out_tol * slack, lse_tol * slack, written=written)
    if written is not None and backend.writable:
        assert (flat_rows(result.out)[written:].astype(np.float64) == SENTINEL).all()
        assert (result.lse[written:] == SENTINEL).all()
    return result
