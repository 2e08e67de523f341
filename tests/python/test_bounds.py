# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""No byte outside an array is read or written: arrays that end or begin at forbidden memory."""

import pytest

from isolated import python
from test_isa import FLAGS, has

DECODE = """
    import itertools
    import numpy as np
    import pagedecode
    from backends import NUMPY, Result, bits_equal, convert, run, written
    from cases import *
    from guarded import fence, fenced

    def check(args, out_dtype=None):
        rows = written(args)
        want = run(NUMPY, args, out_dtype=out_dtype).rows(rows)
        total = len(args["q"]) if args["q"].ndim == 3 else args["q"].shape[0] * args["q"].shape[1]
        for at_end in (True, False):
            given = convert(NUMPY, fence(args, at_end))
            out = fenced(np.full(args["q"].shape, 123, out_dtype or args["q"].dtype), at_end)
            lse = fenced(np.full((total, args["q"].shape[-2]), 123, np.float32), at_end)
            space = fenced(np.zeros(pagedecode.workspace_size(**given), np.uint8), at_end)
            if at_end:
                space = None
            pagedecode.decode(**given, out=out, lse=lse, workspace=space)
            assert Result(out, lse).rows(rows).same_bits(want)

    for case in CASES:
        if case.options.get("storage", "plain") == "plain":
            check(case.build())
    for dim in range(8, 257, 8):
        for k_dtype in (None, E4M3, I8):
            q_dtype = Q_DTYPES[dim // 8 % 3]
            check(make_case(
                np.random.default_rng(dim), lens=((1, 9), (3, 7)), head_dim=dim, page=3, extra=0,
                q_dtype=q_dtype, k_dtype=k_dtype, heads=(1, 2)), Q_DTYPES[dim // 16 % 3])
    print("done")
"""

OPERATIONS = """
    import numpy as np
    import pagedecode
    from backends import bits_equal
    from cases import *
    from guarded import fenced
    from reference import append_reference, move_reference, slots_reference

    rng = np.random.default_rng(0)
    for at_end in (True, False):
        for dim, dtype, cache in ((8, F16, E4M3), (24, F32, I8), (40, BF16, F16), (72, F16, F32)):
            k, v = (rng.standard_normal((5, 1, dim)).astype(dtype) for _ in range(2))
            pools = [np.zeros((2, 3, 1, dim), cache) for _ in range(2)]
            slots = np.array([5, -1, 0, 3, 1])
            given = [fenced(x, at_end) for x in pools]
            pagedecode.append(*(fenced(x, at_end) for x in (k, v)), *given, fenced(slots, at_end))
            want = append_reference(k, v, *pools, slots)
            assert all(bits_equal(a, b) for a, b in zip(given, want))
            src, dst = np.array([5, 0, -1]), np.array([0, 5, 2])
            pagedecode.move(*given, fenced(src, at_end), fenced(dst, at_end))
            want = move_reference(*want, src, dst)
            assert all(bits_equal(a, b) for a, b in zip(given, want))
            outs = [rng.standard_normal((3, 1, dim)).astype(dtype) for _ in range(3)]
            lses = [rng.standard_normal((3, 1)).astype(F32) for _ in range(3)]
            want = pagedecode.merge_states(outs, lses)
            out, lse = fenced(outs[0] * 0, at_end), fenced(lses[0] * 0, at_end)
            pagedecode.merge_states(
                [fenced(x, at_end) for x in outs], [fenced(x, at_end) for x in lses],
                out=out, lse=lse)
            assert bits_equal(out, want[0]) and bits_equal(lse, want[1])
        args = make_case(rng, extra=0, page=4)
        arrays = [args[n] for n in ("block_table", "seq_lens", "cu_seqlens_q")]
        got = pagedecode.slots(*(fenced(x, at_end) for x in arrays), page_size=4)
        assert (got == slots_reference(*arrays, page_size=4)).all()
    print("done")
"""


@pytest.mark.parametrize("level", FLAGS)
def test_decode(level):
    if has(level):
        assert python(DECODE, timeout=240, PAGEDECODE_ISA=level).strip() == "done"


def test_operations():
    assert python(OPERATIONS).strip() == "done"


def test_the_fence_holds():
    """The fence itself: a read past either end ends the process by a signal."""
    from isolated import python_result

    for at_end, index in ((True, 8), (False, -1)):
        done = python_result(
            f"""
            import ctypes, numpy as np
            from guarded import fenced
            array = fenced(np.arange(8, dtype=np.uint8), {at_end})
            assert array.tolist() == list(range(8))
            ctypes.c_uint8.from_address(array.ctypes.data + {index}).value
            """
        )
        assert done.returncode < 0, done.stderr
