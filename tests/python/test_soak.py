# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Random calls on CUDA against the CPU backend, for as long as it is told.

PAGEDECODE_SOAK_SECONDS: of each test (default 4); PAGEDECODE_SOAK_WORKERS: how many tests with
seeds of their own, for `pytest -n` (default 1); PAGEDECODE_SOAK_SEED: the first (default 0)."""

import os
import time

import numpy as np
import pytest

from backends import BACKENDS, NUMPY, bits_equal, compare, convert, run, written
from cases import BF16, E4M3, E5M2, F16, F32, I8, Case, make_case, tolerances
from reference import RopeSpec

SECONDS = float(os.environ.get("PAGEDECODE_SOAK_SECONDS", "4"))
WORKERS = int(os.environ.get("PAGEDECODE_SOAK_WORKERS", "1"))
SEED = int(os.environ.get("PAGEDECODE_SOAK_SEED", "0"))
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(int(3 * SECONDS) + 120)]
BACKEND = BACKENDS["torch-cuda"]
MOST_PRODUCTS = 1e8  # of a call: some 10 ms of one core


def some(rng, odds, value, default=None):
    return value if rng.random() < odds else default


def random_lens(rng):
    batch = int(rng.choice([1, 2, 3, 5, 8, 40, 300], p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.06, 0.04]))
    longest = int(rng.choice([1, 2, 4, 8, 17, 70], p=[0.3, 0.15, 0.25, 0.2, 0.08, 0.02]))
    lens = []
    for _ in range(batch):
        n = int(np.exp(rng.uniform(0, np.log(6000 if batch < 10 else 300)))) - 1
        lens.append((int(rng.integers(0, longest + 1)), n))
    return lens


def random_options(rng):
    """make_case's options; all that CUDA takes."""
    q = rng.choice([F16, BF16])
    k = rng.choice([q, q, E4M3, E5M2, I8])
    dim = int(rng.choice([64, 128, 128, 128, 256, 8 * rng.integers(1, 33)]))
    options = dict(
        lens=random_lens(rng),
        heads=(int(rng.choice([1, 2, 3, 8])), int(rng.choice([1, 2, 4, 5, 8, 8, 16, 40]))),
        head_dim=dim,
        page=int(rng.choice([1, 2, 3, 7, 16, 16, 32, 64, 64, 128, 1024])),
        q_dtype=q,
        k_dtype=k,
        v_dtype=some(rng, 0.1, rng.choice([q, E4M3, I8]), k),
        layout=rng.choice(["NHD", "HND"]),
        storage=rng.choice(["plain", "plain", "interleaved", "padded", "transposed"]),
        table=rng.choice(["table", "csr"]),
        index_dtype=rng.choice([np.int32, np.int64]),
        extra_rows=int(rng.choice([0, 0, 3])),
        hint=bool(rng.random() < 0.7),
        causal=bool(rng.random() < 0.8),
        mask=some(rng, 0.25, rng.choice(["tree", "random", "tree-packed", "random-packed"])),
        k_scale=rng.choice([None, "float", "one", "heads"]),
        v_scale=rng.choice([None, "float", "one", "heads"]),
        window_left=some(rng, 0.25, int(rng.choice([0, 1, 5, 70, 1000])), -1),
        softcap=some(rng, 0.1, 3.0, 0.0),
        alibi=bool(rng.random() < 0.1),
        sinks=bool(rng.random() < 0.2),
        rope=some(rng, 0.06, RopeSpec(1e4, 1.0, bool(rng.random() < 0.5))),
        lse_base=rng.choice(["e", "2"]),
    )
    if options["storage"] == "interleaved" and options["k_dtype"] != options["v_dtype"]:
        options["storage"] = "plain"
    kind = rng.random()
    if kind < 0.2:
        options["num_splits"] = int(rng.choice([1, 2, 3, 7, 100]))
    elif kind < 0.4:
        options["batch_invariant"] = True
    return {name: value for name, value in options.items() if value is not None}


def products(options):
    heads = options["heads"][0] * options["heads"][1]
    return sum(m * n for m, n in options["lens"]) * heads * options["head_dim"]


def check_operations(args):
    """slots and append: the bits of the CPU backend."""
    import pagedecode

    if "cu_seqlens_q" not in args or len(args["cu_seqlens_q"]) < 2:
        return
    names = ("block_table", "seq_lens", "cu_seqlens_q")
    total, page = len(args["q"]), args["k_cache"].shape[1 if args["kv_layout"] == "NHD" else 2]
    hkv = args["k_cache"].shape[2 if args["kv_layout"] == "NHD" else 1]
    found = []
    for backend in (NUMPY, BACKEND):
        given = convert(backend, {n: args[n] for n in names})
        at = pagedecode.slots(*given.values(), page_size=page, total_q=total)
        new = backend.to(args["q"][:, :hkv].astype(F32))
        caches = [backend.to(args[n].copy()) for n in ("k_cache", "v_cache")]
        scales = {n: args[n] for n in ("k_scale", "v_scale") if n in args}
        scales = convert(backend, scales)
        pagedecode.append(new, new, *caches, at, kv_layout=args["kv_layout"], **scales)
        backend.sync()
        found.append([backend.back(x) for x in (at, *caches)])
    for cpu, cuda, name in zip(*found, ("slots", "k_cache", "v_cache"), strict=True):
        assert bits_equal(np.ascontiguousarray(cpu), np.ascontiguousarray(cuda)), name


@pytest.mark.parametrize("worker", range(WORKERS))
def test_random_calls(kernel, worker):
    end, draws, calls = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        seed = (SEED + worker, draws)
        draws += 1
        rng = np.random.default_rng(seed)
        options = random_options(rng)
        if products(options) > MOST_PRODUCTS or not BACKEND.takes(Case("", options)):
            continue
        calls += 1
        try:
            args = make_case(rng, **options)
            got = run(BACKEND, args)
            want = run(NUMPY, args, out_dtype=F32)
            rows = written(args)
            compare(got, (want.out, want.lse), *tolerances(args), written=rows.stop)
            if calls % 4 == 0:
                again = run(BACKEND, args)
                assert again.rows(rows).same_bits(got.rows(rows)), "other bits the second time"
                check_operations(args)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {options}") from error
    print(f"{calls} calls")
    assert calls > 0
