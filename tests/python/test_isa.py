# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Each ISA level of the CPU backend, forced by PAGEDECODE_ISA in a process of its own."""

import platform

import pytest

from isolated import python, python_result

FLAGS = {
    "baseline": set(),
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
    "avx512bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"},
    "amx": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "amx_tile", "amx_bf16"},
}

# All types, head dims on both sides of a vector, the options' code paths, append and merge.
CODE = """
    import itertools
    import numpy as np
    from backends import NUMPY, bits_equal, check_call, run
    from cases import *
    from reference import append_reference, merge_reference
    import pagedecode
    assert {level!r} in str(pagedecode.explain(**CASE["plain"].build())), "explain names the level"
    for case in CASES[::2]:
        args = case.build()
        assert run(NUMPY, args).same_bits(check_call(NUMPY, args)), case.name
    for i, (q, k) in enumerate(itertools.product(Q_DTYPES, CACHE_DTYPES)):
        args = make_case(
            np.random.default_rng(i), lens=((1, 40), (5, 33)), q_dtype=q, k_dtype=k,
            v_dtype=CACHE_DTYPES[(i + i // 6) % 6], head_dim=(8, 24, 40, 72, 128)[i % 5],
            heads=(2, 1 + i % 9), k_scale="heads", v_scale="one")
        for out in Q_DTYPES:
            check_call(NUMPY, args, out_dtype=out)
    args = make_case(np.random.default_rng(1), lens=((4, 300), (2, 50)), poisoned=False)
    want = run(NUMPY, args, batch_invariant=True)
    for i in range(4):
        one = dict(args, q=args["q"][i:i + 1], seq_lens=np.array([297 + i]),
                   block_table=args["block_table"][:1], cu_seqlens_q=np.array([0, 1]))
        assert run(NUMPY, one, batch_invariant=True).same_bits(want.rows(slice(i, i + 1)))
    mask = np.eye(5, dtype=bool) | (np.arange(5) == 0)
    for q, k in itertools.product(Q_DTYPES, (F16, BF16, F32, E4M3, E5M2)):
        args = make_case(
            np.random.default_rng(2), lens=((5, 21), (5, 70)), heads=(2, 8), q_dtype=q, k_dtype=k)
        args["draft_mask"] = np.concatenate([mask, mask])
        clean = run(NUMPY, args)
        for b, row in ((0, 2), (1, 8)):  # what one row alone sees is NaN or Inf
            seq = plan_of(args)[b]
            at = seq.slots[seq.n - 5 + row % 5]
            for name, bad in itertools.product(("k_cache", "v_cache"), (np.nan, np.inf, -np.inf)):
                cache = args[name].copy()
                cache[at // 16, at % 16] = bad
                got = run(NUMPY, args, **{name: cache})
                others = np.delete(np.arange(10), row)
                assert got.rows(others).same_bits(clean.rows(others)), (q, k, name, bad)
    every = np.arange(65536, dtype=np.uint16)
    for dtype, cache in itertools.product((F16, BF16), CACHE_DTYPES):
        x = every.view(dtype).reshape(256, 1, 256)
        x = np.where(np.abs(x.astype(F32)) < np.finfo(F32).tiny, np.zeros(1, dtype), x)
        pools = [np.zeros((16, 16, 1, 256), cache) for _ in range(2)]
        expect = append_reference(x, x, *pools, np.arange(256))
        pagedecode.append(x, x, *pools, np.arange(256))
        keep = ~np.isnan(x.astype(F32)).reshape(pools[0].shape)
        got, expect = pools[0], expect[0]
        if cache == I8:
            got = np.maximum(got, -127)
        assert bits_equal(got[keep], expect[keep]), (dtype, cache)
    print("done")
"""


def has(level):
    if platform.machine() not in ("x86_64", "AMD64"):
        return level == "baseline"
    with open("/proc/cpuinfo") as text:
        flags = next(line for line in text if line.startswith("flags")).split()
    return FLAGS[level] <= set(flags)


@pytest.mark.parametrize("level", FLAGS)
def test_level(level):
    """Right where the machine has the level; refused by name where it lacks it."""
    if has(level):
        code = CODE.replace("{level!r}", repr(level))
        assert python(code, timeout=240, PAGEDECODE_ISA=level).strip() == "done"
    else:
        refused(level)


@pytest.mark.parametrize("level", ["avx9", "AVX 2", "sse", " "])
def test_unknown_level(level):
    refused(level)


def refused(level):
    """A Python error that names the variable or the level: no crash, no silent other level."""
    done = python_result(
        """
        from backends import NUMPY, run
        from cases import CASE
        run(NUMPY, CASE["plain"].build())
        """,
        PAGEDECODE_ISA=level,
    )
    assert done.returncode == 1, done.returncode
    assert "PAGEDECODE_ISA" in done.stderr, done.stderr
