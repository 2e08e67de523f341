# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The array library under the model and the cache: NumPy on the CPU, torch or CuPy on a GPU.

The model is written with operators that all three share (`@`, `+`, slices); what they spell
differently is a method here. Names of types are the library's: "float32", "bfloat16",
"float8_e4m3fn", ...
"""

from __future__ import annotations

import importlib.util
from typing import Any, Protocol

import numpy as np

from .errors import DemoError, require

KV_DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8")
FILL = 0xFF  # every byte of a fresh cache: NaN in all float types, so that a stray read is seen


class Arrays(Protocol):
    """What the model and the cache need from an array library."""

    def upload(self, array: np.ndarray) -> Any:
        """The array on the device."""

    def download(self, array: Any) -> np.ndarray:
        """A float32 array in NumPy."""

    def gather(self, cache: Any, pages: Any, dtype: str) -> np.ndarray:
        """Some pages of a cache of type `dtype`, in NumPy as float32."""

    def cache(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, str | None]:
        """A cache filled with NaN, and the `kv_dtype` to pass where the library lacks the type."""

    def empty(self, shape: tuple[int, ...]) -> Any:
        """An unset float32 array."""

    def cast(self, array: Any, dtype: str) -> Any:
        """The array as float32, float16 or bfloat16."""

    def largest(self, array: Any) -> np.ndarray:
        """Largest absolute value of each head, [T, H, D] -> float32 [H] in NumPy."""

    def rms_norm(self, x: Any, weight: Any, eps: float) -> Any:
        """x / rms(x) * weight over the last dimension."""

    def silu(self, x: Any) -> Any:
        """x * sigmoid(x)."""

    def rotate(self, x: Any, turns: Any) -> Any:
        """Neighbouring pairs of [T, H, D] as complex numbers times `turns` [T, 1, D / 2]."""

    def wait(self) -> None:
        """Returns when the device has done all work, so that clocks mean something."""


def numpy_type(dtype: str) -> np.dtype:
    """The NumPy dtype of a name; ml_dtypes has those that NumPy lacks."""
    known = dtype in ("float32", "float16", "int8")
    kind: np.dtype = np.dtype(dtype if known else getattr(require("ml_dtypes"), dtype))
    return kind


class NumpyArrays:
    """NumPy; and through `xp` also CuPy, which has the same functions."""

    xp: Any = np

    def upload(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def gather(self, cache: Any, pages: Any, dtype: str) -> np.ndarray:
        return self.download(cache[pages]).view(numpy_type(dtype)).astype(np.float32)

    def cache(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, str | None]:
        kind = numpy_type(dtype)
        raw = self.xp.full((*shape[:-1], shape[-1] * kind.itemsize), FILL, dtype=np.uint8)
        return raw.view(kind), None

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.xp.empty(shape, dtype=np.float32)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(numpy_type(dtype), copy=False)

    def largest(self, array: Any) -> np.ndarray:
        return self.download(self.xp.abs(array).max(axis=(0, 2)))

    def rms_norm(self, x: Any, weight: Any, eps: float) -> Any:
        mean = self.xp.square(x).mean(axis=-1, keepdims=True)
        return x / self.xp.sqrt(mean + np.float32(eps)) * weight

    def silu(self, x: Any) -> Any:
        return x * (0.5 + 0.5 * self.xp.tanh(0.5 * x))  # no overflow, unlike exp(-x)

    def rotate(self, x: Any, turns: Any) -> Any:
        pairs = self.xp.ascontiguousarray(x).view(np.complex64)
        return (pairs * turns).view(np.float32)

    def wait(self) -> None:
        pass


class CupyArrays(NumpyArrays):
    """CuPy: 8-bit floats are kept as uint8 and named by `kv_dtype`."""

    def __init__(self) -> None:
        self.xp = require("cupy")

    def download(self, array: Any) -> np.ndarray:
        return np.asarray(self.xp.asnumpy(array))

    def cache(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, str | None]:
        if dtype == "bfloat16":
            raise DemoError("CuPy lacks bfloat16: take another --kv-dtype, or install PyTorch")
        if dtype.startswith("float8"):
            return self.xp.full(shape, FILL, dtype=np.uint8), dtype
        return super().cache(shape, dtype)

    def wait(self) -> None:
        self.xp.cuda.get_current_stream().synchronize()


class TorchArrays:
    """torch on one device; the model runs there too."""

    def __init__(self, device: str) -> None:
        self.torch = require("torch")
        self.device = device

    def upload(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def download(self, array: Any) -> np.ndarray:
        return np.asarray(array.cpu().numpy())

    def gather(self, cache: Any, pages: Any, dtype: str) -> np.ndarray:
        raw = cache.view(self.torch.uint8)[pages]  # 8-bit floats cannot be indexed
        return self.download(raw.view(getattr(self.torch, dtype)).to(self.torch.float32))

    def cache(self, shape: tuple[int, ...], dtype: str) -> tuple[Any, str | None]:
        kind = getattr(self.torch, dtype)
        raw_shape = (*shape[:-1], shape[-1] * kind.itemsize)
        raw = self.torch.full(raw_shape, FILL, dtype=self.torch.uint8, device=self.device)
        return raw.view(kind), None

    def empty(self, shape: tuple[int, ...]) -> Any:
        return self.torch.empty(shape, dtype=self.torch.float32, device=self.device)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self.torch, dtype))

    def largest(self, array: Any) -> np.ndarray:
        return self.download(array.abs().amax(dim=(0, 2)))

    def rms_norm(self, x: Any, weight: Any, eps: float) -> Any:
        return x * self.torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    def silu(self, x: Any) -> Any:
        return self.torch.nn.functional.silu(x)

    def rotate(self, x: Any, turns: Any) -> Any:
        pairs = self.torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return self.torch.view_as_real(pairs * turns).reshape(x.shape)

    def wait(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()


def choose_arrays(device: str) -> Arrays:
    """The library for a device: NumPy for "cpu"; torch, else CuPy, for "cuda"."""
    if device == "cpu":
        return NumpyArrays()
    if importlib.util.find_spec("torch") and require("torch").cuda.is_available():
        return TorchArrays("cuda")
    if importlib.util.find_spec("cupy"):
        return CupyArrays()
    raise DemoError("--device cuda needs PyTorch with CUDA (pip install torch) or CuPy")
