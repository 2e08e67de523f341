# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The build backend: scikit-build-core, and CUTLASS asked for only where CUDA will be built.

The wheel `nvidia-cutlass` brings scipy, networkx and cuda-python with it, which a CPU-only build
should not download. scikit-build-core's overrides can look at the environment but not for nvcc, so
that the plain `pip install .` of a user with nvcc would miss it. The rule here is the one of
cmake/PagedecodeCuda.cmake.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

CUTLASS = "nvidia-cutlass==4.2.0.0"  # the version of third_party/cutlass.cmake
MIN_NVCC = (12, 5)

Settings = dict[str, Any] | None


def _nvcc_version() -> tuple[int, int]:
    """The release of the nvcc that CMake would find; (0, 0) where there is none."""
    path = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return (0, 0)
    match = re.search(r"release (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _wants_cuda(config_settings: Settings) -> bool:
    option = (config_settings or {}).get("cmake.define.PAGEDECODE_CUDA")
    option = str(option or os.environ.get("PAGEDECODE_CUDA") or "AUTO").upper()
    if option == "AUTO":
        return _nvcc_version() >= MIN_NVCC
    return option in ("ON", "1", "YES", "TRUE")


def _cutlass(config_settings: Settings) -> list[str]:
    return [CUTLASS] if _wants_cuda(config_settings) else []


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return _skbuild.get_requires_for_build_wheel(config_settings) + _cutlass(config_settings)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return _skbuild.get_requires_for_build_editable(config_settings) + _cutlass(config_settings)
