# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Host time of one eager call on a tiny problem (B = 1, n = 16): what the Python layer, the array
import, the checks and the launch cost. NumPy and torch on the CPU; torch on CUDA where there is
one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

import pagedecode

from .timing import time_host


def _numpy_arguments(dtype: type) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 8, 64)).astype(dtype)
    k, v = (rng.standard_normal((4, 16, 2, 64)).astype(dtype) for _ in "kv")
    table, lens = np.array([[2]], np.int32), np.array([16], np.int32)
    return [q, k, v, table, lens], {"cu_seqlens_q": np.array([0, 1], np.int32)}


def measure() -> dict[str, float]:
    """Microseconds by name."""
    result: dict[str, float] = {}
    for dtype in (np.float32, ml_dtypes.bfloat16):
        args, kw = _numpy_arguments(dtype)
        out = np.empty_like(args[0])
        name = f"numpy {np.dtype(dtype).name}"
        result[name] = time_host(lambda i, a=args, k=kw: pagedecode.decode(*a, **k))
        result[f"{name}, out given"] = time_host(
            lambda i, a=args, k=kw, o=out: pagedecode.decode(*a, out=o, **k)
        )
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        arrays, kw = _numpy_arguments(np.float32)
        args = [torch.from_numpy(x).to(device) for x in arrays]
        args = [x.bfloat16() if x.is_floating_point() else x for x in args]
        more = {k: torch.from_numpy(x).to(device) for k, x in kw.items()}
        out = torch.empty_like(args[0])
        result[f"torch {device}"] = time_host(
            lambda i, a=args, k=more: pagedecode.decode(*a, max_seqlen_q=1, **k)
        )
        result[f"torch {device}, out given"] = time_host(
            lambda i, a=args, k=more, o=out: pagedecode.decode(*a, max_seqlen_q=1, out=o, **k)
        )
    return result
