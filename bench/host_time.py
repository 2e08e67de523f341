# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Host time of one eager call on a tiny problem (B = 1, n = 16), with `out` given and without: what
the Python layer, the array import, the checks, the allocation and the launch cost. NumPy and torch
on the CPU; torch on CUDA where there is one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

import pagedecode

from .timing import time_host

Arguments = tuple[list[Any], dict[str, Any]]  # positional, by name


def _numpy_arguments(dtype: Any) -> Arguments:
    rng = np.random.default_rng(0)
    shapes = [(1, 8, 64), (4, 16, 2, 64), (4, 16, 2, 64)]  # q, K, V
    arrays: list[Any] = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    table, lens = np.array([[2]], np.int32), np.array([16], np.int32)
    return [*arrays, table, lens], {"cu_seqlens_q": np.array([0, 1], np.int32)}


def _torch_arguments(device: str) -> Arguments:
    positional, named = _numpy_arguments(np.float32)
    tensors = [torch.from_numpy(x).to(device) for x in positional]
    tensors = [x.bfloat16() if x.is_floating_point() else x for x in tensors]
    named = {name: torch.from_numpy(x).to(device) for name, x in named.items()}
    return tensors, {**named, "max_seqlen_q": 1}


def _both(arguments: Arguments, out: Any) -> tuple[float, float]:
    positional, named = arguments
    with_out = {**named, "out": out}
    return (
        time_host(lambda _: pagedecode.decode(*positional, **named)),
        time_host(lambda _: pagedecode.decode(*positional, **with_out)),
    )


def measure() -> dict[str, float]:
    """Microseconds by name."""
    result: dict[str, float] = {}
    for dtype in (np.float32, ml_dtypes.bfloat16):
        arguments = _numpy_arguments(dtype)
        name = f"numpy {np.dtype(dtype).name}"
        result[name], result[f"{name}, out given"] = _both(
            arguments, np.empty_like(arguments[0][0])
        )
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        arguments, name = _torch_arguments(device), f"torch {device}"
        result[name], result[f"{name}, out given"] = _both(
            arguments, torch.empty_like(arguments[0][0])
        )
    return result
