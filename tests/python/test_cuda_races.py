# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The same call, 50 times, gives the same bits: one case for each way through the kernels.

A build of the preset `delays` puts random pauses into every role of a kernel and before the arrival
at a merge, so that an order that nothing enforces shows here; in other builds the blocks' own
timing has to do."""

import numpy as np
import pytest

from backends import BACKENDS, Result, compare, convert
from cases import BF16, E4M3, E5M2, F16, I8, make_case, tolerances
from reference import decode_reference

pytestmark = pytest.mark.gpu
BACKEND = BACKENDS["torch-cuda"]
REPEATS = 50

LONG = ((1, 3000), (4, 900), (0, 3), (1, 0), (3, 40))  # many splits, in two levels of merges
STEPS = ((1, 2000), (1, 700), (1, 17), (1, 1300))
MANY = tuple((i % 3, i * 37 % 90) for i in range(300))  # so many that whole blocks locate
CROWD = tuple((1 + i % 2, i * i * 37 % 2500) for i in range(70))  # more items than blocks
WIDE = ((9, 1200), (16, 33), (2, 500))
SHAPES = {
    "d64": dict(lens=LONG),
    "d128-8-rows": dict(lens=STEPS, head_dim=128, heads=(2, 8), q_dtype=BF16),
    "d128-16-rows": dict(lens=STEPS, head_dim=128, heads=(2, 16), page=64),
    "d128-32-rows": dict(lens=LONG, head_dim=128, heads=(3, 8), q_dtype=BF16, page=64),
    "d128-64-rows": dict(lens=WIDE, head_dim=128, heads=(2, 4), q_dtype=BF16, page=32),
    "d128-passes": dict(lens=WIDE, head_dim=128, heads=(2, 12), layout="HND"),
    "d128-many": dict(lens=MANY, head_dim=128, heads=(2, 4), q_dtype=BF16),
    "d256": dict(lens=LONG, head_dim=256, heads=(2, 4), q_dtype=BF16),
    "d256-fp8": dict(lens=LONG, head_dim=256, heads=(2, 4), k_dtype=E4M3),
    "d72-page-3": dict(lens=LONG, head_dim=72, page=3),
    "d64-page-1": dict(lens=LONG, page=1, heads=(2, 8), q_dtype=BF16),
    "d128-page-3": dict(lens=LONG, head_dim=128, page=3, heads=(2, 4), q_dtype=BF16),
    "d128-page-1-fp8": dict(lens=LONG, head_dim=128, page=1, heads=(2, 4), k_dtype=E4M3),
    "d256-page-1": dict(lens=WIDE, head_dim=256, page=1, heads=(2, 2), q_dtype=BF16),
    "e4m3-8-rows": dict(lens=STEPS, head_dim=128, heads=(2, 8), k_dtype=E4M3),
    "e4m3-32-rows": dict(lens=LONG, head_dim=128, heads=(2, 8), k_dtype=E4M3, q_dtype=BF16),
    "page-64-8-rows": dict(lens=STEPS, head_dim=128, heads=(2, 8), q_dtype=BF16, page=64),
    "page-64-64-rows": dict(lens=WIDE, head_dim=128, heads=(2, 4), q_dtype=BF16, page=64),
    "page-64-many": dict(lens=MANY, head_dim=128, heads=(2, 4), q_dtype=BF16, page=64),
    "page-64-window": dict(lens=LONG, head_dim=128, window_left=300, heads=(2, 8), page=64),
    "page-64-tree": dict(lens=WIDE, head_dim=128, mask="tree-packed", heads=(2, 4), page=64),
    "page-64-invariant": dict(
        lens=((3, 9000), (1, 40)), head_dim=128, page=64, batch_invariant=True
    ),
    "page-64-e4m3-8-rows": dict(lens=STEPS, head_dim=128, heads=(2, 8), k_dtype=E4M3, page=64),
    "page-64-e4m3-32-rows": dict(lens=LONG, head_dim=128, heads=(2, 8), k_dtype=E4M3, page=64),
    "crowd": dict(lens=CROWD, head_dim=128, heads=(2, 4), q_dtype=BF16),
    "crowd-page-64": dict(lens=CROWD, head_dim=128, heads=(2, 16), q_dtype=BF16, page=64),
    "crowd-d64": dict(lens=CROWD, heads=(2, 8), q_dtype=BF16),
    "crowd-e4m3": dict(lens=CROWD, head_dim=128, heads=(2, 8), k_dtype=E4M3, q_dtype=BF16),
    "e4m3-many": dict(lens=MANY, head_dim=128, heads=(2, 8), k_dtype=E4M3, q_dtype=BF16),
    "e4m3-64-rows": dict(lens=WIDE, head_dim=128, heads=(2, 4), k_dtype=E4M3, q_dtype=BF16),
    "e4m3-128-rows": dict(lens=WIDE, head_dim=128, heads=(2, 8), k_dtype=E4M3, q_dtype=BF16),
    "e4m3-d64-128-rows": dict(lens=WIDE, heads=(2, 8), k_dtype=E4M3, page=64),
    "e4m3-d256-64-rows": dict(lens=WIDE, head_dim=256, heads=(2, 4), k_dtype=E4M3),
    "e4m3-page-1-64-rows": dict(lens=WIDE, head_dim=128, page=1, heads=(2, 4), k_dtype=E4M3),
    "d64-128-rows": dict(lens=WIDE, heads=(2, 8), q_dtype=BF16),
    "d128-128-rows": dict(lens=WIDE, head_dim=128, heads=(2, 8), q_dtype=BF16),
    "d256-128-rows": dict(lens=WIDE, head_dim=256, heads=(2, 8), q_dtype=BF16),
    "int8-d128": dict(lens=LONG, head_dim=128, heads=(2, 8), k_dtype=I8, k_scale="heads"),
    "e5m2-d64": dict(lens=WIDE, head_dim=64, k_dtype=E5M2),
    "mixed": dict(lens=LONG, k_dtype=F16, v_dtype=E4M3),
    "rope": dict(lens=LONG, rope=True, head_dim=128),
    "window": dict(lens=LONG, head_dim=128, window_left=300, heads=(2, 8)),
    "tree": dict(lens=WIDE, head_dim=128, mask="tree-packed", heads=(2, 4)),
    "softcap": dict(lens=LONG, head_dim=128, softcap=5.0, alibi=True, sinks=True),
    "splits-7": dict(lens=LONG, head_dim=128, num_splits=7, heads=(2, 8)),
    "splits-of-many": dict(lens=MANY, head_dim=128, num_splits=3),
    "invariant": dict(lens=((3, 9000), (1, 40)), head_dim=128, batch_invariant=True),
    "invariant-of-many": dict(lens=MANY, batch_invariant=True),
}


def raw(array):
    import torch

    return array.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[array.element_size()])


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_bits_every_time(kernel, name):
    import torch

    import pagedecode

    args = make_case(np.random.default_rng(62), hint=True, **SHAPES[name])
    given = convert(BACKEND, args)
    rows = int(args["cu_seqlens_q"][-1])
    results = [pagedecode.decode(**given, return_lse=True) for _ in range(REPEATS)]
    out, lse = results[0]
    result = Result(BACKEND.back(out), BACKEND.back(lse))
    compare(result, decode_reference(**args), *tolerances(args), written=rows)
    for i, (other, other_lse) in enumerate(results):
        assert torch.equal(raw(other[:rows]), raw(out[:rows])), f"out of repeat {i}"
        assert torch.equal(raw(other_lse[:rows]), raw(lse[:rows])), f"lse of repeat {i}"


def test_replays_of_graphs_give_the_same_bits(kernel):
    """Many calls in one graph, back to back: each meets the workspace as the last one left it."""
    import torch

    import pagedecode

    names = ("d128-32-rows", "d64", "splits-7", "e4m3-8-rows", "invariant", "d128-many", "crowd")
    calls = []
    for name in names:
        args = make_case(np.random.default_rng(62), hint=True, **SHAPES[name])
        given = convert(BACKEND, args)
        want, out = pagedecode.decode(**given), torch.full_like(given["q"], 123)
        calls.append((given, out, want[: int(args["cu_seqlens_q"][-1])].clone()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            for given, out, _ in calls:
                pagedecode.decode(**given, out=out)
    for _ in range(REPEATS // 5):
        for _, out, _ in calls:
            out.fill_(123)
        graph.replay()
        for name, (_, out, want) in zip(names, calls, strict=True):
            assert torch.equal(raw(out[: len(want)]), raw(want)), name
