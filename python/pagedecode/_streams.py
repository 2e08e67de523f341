# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""CUDA streams of the array libraries: what the module `_core` asks for, by these names.

Only libraries that the caller has imported are touched: an array of theirs came in.
"""

from __future__ import annotations

import sys

from ._types import Array


def current_stream(array: Array, device: int) -> int | None:
    """The current stream of the library of `array`; None where it has no such notion."""
    root = type(array).__module__.partition(".")[0]
    library = sys.modules.get(root)
    if root == "cupy" and library is not None:
        with library.cuda.Device(device):
            return int(library.cuda.get_current_stream().ptr)
    if root == "torch" and library is not None:
        return int(library.cuda.current_stream(device).cuda_stream)
    return None


def wait_for_torch(device: int, stream: int) -> None:
    """Makes `stream` (a raw handle) wait for what torch's current stream has been given."""
    cuda = sys.modules["torch"].cuda
    with cuda.device(device):
        if stream == 1:
            consumer = cuda.default_stream(device)
        else:
            consumer = cuda.ExternalStream(stream, device=device)
        consumer.wait_event(cuda.current_stream(device).record_event())
