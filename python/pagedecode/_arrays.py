# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Result arrays of the library that an argument came from, without importing any other.

A `Library` says how to make memory for a result and how to give it to the caller. JAX arrays are
never written: there the result is computed into NumPy memory and handed over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._types import Array

Shape = tuple[int, ...]

_ALIGNMENT = 64  # bytes that JAX wants of memory that it takes without a copy


@dataclass(frozen=True)
class Library:
    """How one array library makes results.

    `like` is an array of the library: results live on its device. A dtype of None is that of
    `like`; others are "float32" and "int64".
    """

    empty: Callable[[Array, Shape, str | None], Array]
    hand_over: Callable[[Array, Array], Array] | None = None  # (result, like); None: as it is


def _numpy_empty(like: Array, shape: Shape, dtype: str | None) -> Array:
    return np.empty(shape, dtype or like.dtype)


def _torch_empty(like: Array, shape: Shape, dtype: str | None) -> Array:
    if dtype is None:
        return like.new_empty(shape)
    return like.new_empty(shape, dtype=getattr(sys.modules["torch"], dtype))


def _cupy_empty(like: Array, shape: Shape, dtype: str | None) -> Array:
    cupy = sys.modules["cupy"]
    with like.device:
        return cupy.empty(shape, dtype or like.dtype)


def _jax_empty(like: Array, shape: Shape, dtype: str | None) -> Array:
    kind = np.dtype(dtype or like.dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)


def _jax_hand_over(result: Array, like: Array) -> Array:
    jax = sys.modules["jax"]
    if result.dtype != np.int64:
        return jax.device_put(result, like.device)
    enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable_x64(True):  # else it would become int32
        return jax.device_put(result, like.device)


def _array_api_empty(like: Array, shape: Shape, dtype: str | None) -> Array:
    xp = like.__array_namespace__()
    return xp.empty(shape, dtype=getattr(xp, dtype) if dtype else like.dtype, device=like.device)


_BY_ROOT = {
    "numpy": Library(_numpy_empty),
    "torch": Library(_torch_empty),
    "cupy": Library(_cupy_empty),
    "jax": Library(_jax_empty, _jax_hand_over),
    "jaxlib": Library(_jax_empty, _jax_hand_over),
}

_known: dict[type, Library] = {}


def _find(kind: type, name: str, array: Array) -> Library:
    for base in kind.__mro__:
        library = _BY_ROOT.get(base.__module__.partition(".")[0])
        if library is not None and hasattr(kind, "__dlpack__"):
            return library
    if hasattr(kind, "__array_namespace__"):
        return Library(_array_api_empty)
    if hasattr(kind, "__dlpack__"):
        raise TypeError(
            f"{name}: got a {kind.__name__}, whose library cannot make the result, "
            "want the result arrays passed as out= (and lse=)"
        )
    raise TypeError(
        f"{name}: got a {kind.__name__}, "
        "want an array (NumPy, torch, JAX, CuPy, or another that speaks DLPack)"
    )


def library_of(array: Array, name: str) -> Library:
    """The library of `array`; `name` is the argument's, for the TypeError."""
    kind = type(array)
    library = _known.get(kind)
    if library is None:
        library = _known[kind] = _find(kind, name, array)
    return library


def on_host(array: Any, name: str) -> bool:
    """Whether the elements of an array can be read without asking a GPU."""
    if not hasattr(type(array), "__dlpack_device__"):
        library_of(array, name)
    return int(array.__dlpack_device__()[0]) in (1, 3)  # kDLCPU, kDLCUDAHost
