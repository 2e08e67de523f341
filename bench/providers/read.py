# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The ceiling: a plain read of the same number of bytes, K and V in one pass.

CUDA: one launch, 16-byte loads, the best of 1, 2 and 4 blocks an SM (read_ceiling.cu, compiled by
nvcc at run time). CPU: two reductions over int64, one per thread, the better of NumPy and torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import pathlib
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from ..problem import Problem
from ..timing import Run
from . import Unavailable


def provide(problem: Problem) -> dict[str, Run]:
    return _provide_cuda(problem) if problem.device == "cuda" else _provide_cpu(problem)


def _provide_cpu(problem: Problem) -> dict[str, Run]:
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    half = problem.bytes // 2 // 8
    caches = [x.view(-1).view(torch.int64) for x in (problem.k, problem.v)]
    arrays = [x.numpy() for x in caches]

    def with_numpy(i: int) -> None:
        parts = [p for x in arrays for p in np.array_split(x[i * half : (i + 1) * half], threads)]
        list(pool.map(np.bitwise_xor.reduce, parts))

    def with_torch(i: int) -> None:
        for x in caches:
            x[i * half : (i + 1) * half].sum()

    return {"read:numpy": with_numpy, "read:torch": with_torch}


@functools.cache
def _library() -> ctypes.CDLL:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not nvcc:
        raise Unavailable("read: nvcc is not here to compile read_ceiling.cu")
    source = pathlib.Path(__file__).with_name("read_ceiling.cu")
    major, minor = torch.cuda.get_device_capability()
    tag = hashlib.sha1(source.read_bytes()).hexdigest()[:12]
    lib = pathlib.Path(tempfile.gettempdir()) / f"pagedecode_read_{tag}_{major}{minor}.so"
    if not lib.exists():
        arch = f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"
        flags = ["-O3", arch, "-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
        subprocess.run([nvcc, *flags, "-o", str(lib), str(source)], check=True)
    return ctypes.CDLL(str(lib))


def _provide_cuda(problem: Problem) -> dict[str, Run]:
    lib = _library()
    sink = torch.zeros(4, dtype=torch.int32, device="cuda")
    share = problem.k.untyped_storage().nbytes() // problem.sets // 16 * 16
    size = ctypes.c_size_t(problem.bytes // 2)
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def make(blocks: int) -> Run:
        def run(i: int) -> None:
            k, v = (ctypes.c_void_p(x.data_ptr() + i * share) for x in (problem.k, problem.v))
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            status = lib.read_ceiling(
                k, v, size, ctypes.c_void_p(sink.data_ptr()), blocks * sms, stream
            )
            if status:
                raise RuntimeError(f"read_ceiling: CUDA error {status}")

        return run

    return {f"read:{blocks}": make(blocks) for blocks in (1, 2, 4)}
