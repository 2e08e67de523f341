# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures and markers: `backend` runs a test on each array library, others on fewer."""

import os
from functools import lru_cache

# Read when NumPy loads: OpenBLAS' and OpenMP's threads spin while they wait, and on two busy cores
# the demo's tests took five times the processor time with two of each.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import backends

settings.register_profile(
    "pagedecode",
    derandomize=True,  # the same examples on every run; HYPOTHESIS_PROFILE=explore looks for others
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("explore", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "pagedecode"))

MARKERS = {
    "gpu": "needs a CUDA GPU; skipped only where there is none",
    "gpu2": "needs two CUDA GPUs; skipped only where there are fewer",
}


def pytest_configure(config):
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")


@lru_cache
def gpu_count():
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pytest_collection_modifyitems(items):
    for item in items:
        need = 2 if item.get_closest_marker("gpu2") else 1 if item.get_closest_marker("gpu") else 0
        if need and gpu_count() < need:
            item.add_marker(pytest.mark.skip(reason=f"needs {need} CUDA GPU(s)"))


def params(names):
    return [pytest.param(n, marks=pytest.mark.gpu) if n in backends.GPU else n for n in names]


@pytest.fixture(params=params(backends.BACKENDS))
def backend(request):
    """Each array library in turn."""
    return backends.BACKENDS[request.param]


@pytest.fixture(params=params(["numpy", "torch-cuda"]))
def device_backend(request):
    """One library for each device, where the library does not matter."""
    return backends.BACKENDS[request.param]


@pytest.fixture(params=params(["numpy", "torch-cpu", "torch-cuda", "cupy-cuda"]))
def writable_backend(request):
    """The libraries whose arrays can be written in place."""
    return backends.BACKENDS[request.param]


@pytest.fixture(params=["chosen", "mma"])
def kernel(request, monkeypatch):
    """For tests on CUDA: the kernel that the library chooses, then the general one."""
    monkeypatch.setenv("PAGEDECODE_KERNEL", request.param.replace("chosen", ""))
    return request.param


@pytest.fixture(
    params=[*params(["numpy", "torch-cuda"]), pytest.param("mma", marks=pytest.mark.gpu)]
)
def each_kernel(request, monkeypatch):
    """One library for each device; on CUDA with the chosen and with the general kernel."""
    monkeypatch.setenv("PAGEDECODE_KERNEL", "mma" if request.param == "mma" else "")
    return backends.BACKENDS[request.param.replace("mma", "torch-cuda")]


@pytest.fixture
def numpy_backend():
    return backends.NUMPY


@pytest.fixture
def rng():
    return np.random.default_rng(1234)
