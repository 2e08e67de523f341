# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Paged multi-query flash-decoding for NumPy, PyTorch, JAX and CuPy arrays, on CPU and CUDA."""

from ._cache import PagedCache
from ._core import __version__  # type: ignore[attr-defined]
from ._decode import check, decode, explain, workspace_size
from ._errors import Unsupported
from ._ops import (
    append,
    backends,
    merge_states,
    move,
    num_threads,
    set_num_threads,
    slots,
)
from ._types import Explanation, PageList, Rope

__all__ = [
    "Explanation",
    "PageList",
    "PagedCache",
    "Rope",
    "Unsupported",
    "__version__",
    "append",
    "backends",
    "check",
    "decode",
    "explain",
    "merge_states",
    "move",
    "num_threads",
    "set_num_threads",
    "slots",
    "workspace_size",
]
