# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Arrays whose memory ends or begins at a page that may not be touched: a byte too far is a crash.

Use it in a process of its own (`isolated.python`).
"""

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_keep = []  # mappings live as long as the process


def _mapping(size):
    """(address, bytes) of readable memory between two forbidden pages."""
    inside = -(-max(size, 1) // PAGE) * PAGE
    area = mmap.mmap(-1, inside + 2 * PAGE)
    _keep.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    for guard in (start, start + PAGE + inside):
        if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    return start + PAGE, inside


def fenced(array, at_end=True):
    """A compact copy of `array` that ends right before, or begins right after, a forbidden page."""
    array = np.ascontiguousarray(array)
    address, inside = _mapping(array.nbytes)
    if at_end:
        address += inside - array.nbytes
    memory = (ctypes.c_uint8 * array.nbytes).from_address(address)
    copy = np.frombuffer(memory, array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def fence(args, at_end=True):
    """All arrays of a case, each with its own fence; a page list too."""
    from reference import Pages

    made = {}
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            value = fenced(value, at_end)
        elif isinstance(value, Pages):
            value = Pages(*(fenced(x, at_end) for x in value))
        made[name] = value
    return made
