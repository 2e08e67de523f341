# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of reads and writes past an end (B17, B32, B02): on the CPU each array ends where an
unmapped page begins, so that one byte too far is a fault of the process."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pagedecode
from probes import csr, normal, pack_mask, same_bits
from reference import Pages

CASES = ("types", "pages", "options", "operations")
KEPT = []  # mappings must outlive the arrays on them


def at_the_end(array: np.ndarray, front: bool = False) -> np.ndarray:
    """A copy that ends (or begins) at a page which cannot be touched."""
    size = mmap.PAGESIZE
    room = -(-max(array.nbytes, 1) // size) * size
    memory = mmap.mmap(-1, room + 2 * size)
    KEPT.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for wall in (base, base + size + room):
        assert libc.mprotect(ctypes.c_void_p(wall), size, 0) == 0
    start = size if front else size + room - array.nbytes
    placed = np.frombuffer(memory, np.uint8, array.nbytes, start).view(array.dtype)
    placed = placed.reshape(array.shape)
    placed[...] = array
    return placed


def fenced(args: dict, front: bool) -> dict:
    def move(value):
        if isinstance(value, Pages):
            return pagedecode.PageList(*(at_the_end(x, front) for x in value))
        return at_the_end(value, front) if isinstance(value, np.ndarray) else value

    return {name: move(value) for name, value in args.items()}


def both(args, **options) -> None:
    """The call between walls gives the bits of the plain one."""
    args = {**args, **options}
    plain = dict(args)
    if isinstance(args["block_table"], Pages):
        plain["block_table"] = pagedecode.PageList(*args["block_table"])
    want = pagedecode.decode(**plain, return_lse=True)
    for front in (False, True):
        out, lse = (at_the_end(np.full_like(x, 123), front) for x in want)
        pagedecode.decode(**fenced(args, front), out=out, lse=lse)
        assert same_bits((out, lse), want)


def types() -> None:
    for dim in (8, 24, 64, 72, 136, 256):
        for dtype in ("float32", "float16", "bfloat16"):
            for kv in (None, "float8_e4m3fn", "int8"):
                args = normal([9, 4, 12], [2, 1, 3], dim=dim, dtype=dtype, k_type=kv, spare=0)
                scales = {"k_scale": np.full(2, 0.5, np.float32), "v_scale": np.ones(1, np.float32)}
                both(args, **scales)


def pages() -> None:
    for page in (1, 2, 3, 16, 100):
        for layout in ("NHD", "HND"):
            args = normal([9, 4, 1, 130], [2, 1, 1, 3], page=page, layout=layout, spare=0)
            for options in ({}, {"num_splits": 3}, {"batch_invariant": True}):
                both(args, **options)
                both(csr(args, page), **options)


def options() -> None:
    mask = np.tri(6, 3, dtype=bool)
    heads = np.ones(4, np.float32)
    for args in (normal([9, 4, 70], [2, 1, 3]), normal([9, 4, 70], [2, 1, 3], index_type=np.int64)):
        for extra in (
            {"window_left": 3}, {"causal": False}, {"alibi_slopes": heads}, {"sinks": heads},
            {"rope": pagedecode.Rope()}, {"rope": pagedecode.Rope(interleaved=True)},
            {"draft_mask": mask, "max_seqlen_q": 3}, {"draft_mask": pack_mask(mask)},
            {"draft_mask": mask, "positions": np.array([7, 8, 3, 67, 68, 68])},
            {"workspace": np.zeros(pagedecode.workspace_size(**args), np.uint8)},
        ):  # fmt: skip
            both(args, **extra)


def operations() -> None:
    rng = np.random.default_rng(0)
    for front in (False, True):
        for dim in (8, 72, 64):
            for kv in ("float16", "int8", "float32"):
                args = normal([9, 4, 12], [2, 1, 3], dim=dim, k_type=kv, spare=0)
                given = fenced(args, front)
                x = at_the_end(rng.standard_normal((6, 2, dim)).astype(np.float32), front)
                table = [given[n] for n in ("block_table", "seq_lens", "cu_seqlens_q")]
                out = at_the_end(np.zeros(6, np.int64), front)
                pagedecode.slots(*table, page_size=4, total_q=6, out=out)
                caches = given["k_cache"], given["v_cache"]
                pagedecode.append(x, x, *caches, out)
                pagedecode.move(*caches, out, at_the_end(out[::-1].copy(), front))
                states = [at_the_end(rng.standard_normal((5, 3, dim)), front) for _ in range(3)]
                states = [at_the_end(s.astype(np.float32), front) for s in states]
                lses = [at_the_end(np.zeros((5, 3), np.float32), front) for _ in range(3)]
                result = [at_the_end(np.zeros_like(a[0]), front) for a in (states, lses)]
                pagedecode.merge_states(states, lses, out=result[0], lse=result[1])


@pytest.mark.parametrize("case", CASES)
def test_b17_nothing_is_read_or_written_past_an_end(case):
    command = [sys.executable, str(Path(__file__).resolve()), case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"


if __name__ == "__main__":
    {"types": types, "pages": pages, "options": options, "operations": operations}[sys.argv[1]]()
