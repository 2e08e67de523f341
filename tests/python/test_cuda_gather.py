# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Splits that all blocks of a launch gather at its end."""

import numpy as np
import pytest

from backends import BACKENDS, Result, compare, convert
from cases import BF16, E4M3, F16, I8, make_case, tolerances
from reference import decode_reference
from test_cuda_races import raw

pytestmark = pytest.mark.gpu
BACKEND = BACKENDS["torch-cuda"]
# As in cpp/src/cuda/decode/launch.h and decode_wgmma/variants.h.
COUNTER_BYTES = 64 * 1024
EXCHANGE_BYTES_OF_SM = 2 * 73728

RAGGED = ((1, 5000), (2, 3), (0, 7), (1, 0), (3, 700))
# Heads and lengths decide how many blocks share an item: from one to all 132.
SHAPES = {
    "132-splits": dict(lens=((1, 17000),), heads=(1, 4)),
    "all-but-one-tile": dict(lens=((1, 131 * 128),), heads=(1, 8), k_dtype=E4M3),
    "66-splits": dict(lens=((1, 9000),), heads=(2, 3), k_dtype=E4M3),
    "44-splits": dict(lens=((2, 7000),), heads=(3, 5)),
    "33-splits": dict(lens=((4, 6000),), heads=(4, 8), k_dtype=E4M3),
    "26-splits": dict(lens=((1, 4000),), heads=(5, 16), q_dtype=F16),
    "16-splits": dict(lens=((1, 8192),), heads=(8, 2)),
    "16-splits-of-32-rows": dict(lens=((4, 3000),), heads=(8, 8)),
    "16-splits-of-5-rows": dict(lens=((5, 8192),), heads=(8, 1)),
    "8-splits": dict(lens=((2, 2000),), heads=(16, 4), k_dtype=E4M3),
    "4-splits": dict(lens=((4, 1024),), heads=(32, 8), k_dtype=E4M3),
    "3-splits": dict(lens=((1, 1024),), heads=(41, 2)),
    "2-splits": dict(lens=((1, 512), (4, 512)), heads=(33, 4)),
    "1-split": dict(lens=((1, 300),), heads=(132, 1)),
    "one-key": dict(lens=((1, 1),), heads=(8, 8)),
    "d64": dict(lens=((1, 6000),), heads=(4, 8), head_dim=64),
    "d64-32-rows": dict(lens=((3, 3000),), heads=(8, 8), head_dim=64),
    "d64-e4m3": dict(lens=((1, 3000),), heads=(8, 8), head_dim=64, k_dtype=E4M3),
    "d64-32-rows-e4m3": dict(lens=((4, 3000),), heads=(8, 8), head_dim=64, k_dtype=E4M3),
    "d256-e4m3": dict(lens=((2, 5000),), heads=(4, 8), head_dim=256, k_dtype=E4M3),
    "d256-32-rows-e4m3": dict(lens=((4, 2500),), heads=(8, 8), head_dim=256, k_dtype=E4M3),
    "ragged": dict(lens=RAGGED, heads=(3, 8)),
    "ragged-e4m3": dict(lens=RAGGED, heads=(3, 8), k_dtype=E4M3),
    "ragged-d64": dict(lens=RAGGED, heads=(2, 8), head_dim=64),
    "16-rows-of-two-heads": dict(lens=((16, 3000), (9, 9)), heads=(4, 2), k_dtype=E4M3),
    "options": dict(lens=RAGGED, heads=(2, 8), softcap=5.0, alibi=True, sinks=True),
    "window": dict(lens=((3, 5000), (1, 50)), heads=(2, 8), window_left=3000),
    "tree": dict(lens=((7, 900), (5, 64)), heads=(2, 4), mask="tree-packed"),
    "scales": dict(lens=RAGGED, heads=(4, 8), k_dtype=E4M3, k_scale="heads", v_scale="heads"),
    "page-16-hnd": dict(lens=RAGGED, heads=(8, 8), page=16, layout="HND"),
    # By kernels that fold where there are more items.
    "64-rows": dict(lens=((8, 3000),), heads=(8, 8)),
    "64-rows-ragged": dict(lens=((8, 3000), (1, 300), (0, 5), (5, 5)), heads=(2, 8)),
    "128-rows": dict(lens=((16, 2000),), heads=(8, 8)),
    "100-rows-e4m3": dict(lens=((13, 4000),), heads=(4, 8), k_dtype=E4M3),
    "64-rows-e4m3": dict(lens=((8, 3000), (7, 3000)), heads=(3, 8), k_dtype=E4M3),
    "120-rows-fp16": dict(lens=((15, 3000),), heads=(2, 8), q_dtype=F16),
    "64-rows-int8": dict(lens=((8, 3000),), heads=(4, 8), k_dtype=I8, k_scale="heads"),
    "d64-128-rows-e4m3": dict(lens=((16, 3000),), heads=(2, 8), head_dim=64, k_dtype=E4M3),
    "d256": dict(lens=((1, 5000),), heads=(2, 8), head_dim=256),
    "d256-32-rows": dict(lens=((4, 3000), (1, 900)), heads=(4, 8), head_dim=256),
    "d256-64-rows-e4m3": dict(lens=((8, 2000),), heads=(4, 8), head_dim=256, k_dtype=E4M3),
    "page-1": dict(lens=((1, 4000),), heads=(8, 4), page=1),
    "page-1-32-rows-e4m3": dict(lens=((4, 3000), (2, 9)), heads=(4, 8), page=1, k_dtype=E4M3),
    "page-3-64-rows": dict(lens=((8, 2000),), heads=(4, 8), page=3),
    "page-1-d64-e4m3": dict(lens=((1, 4000),), heads=(4, 8), page=1, head_dim=64, k_dtype=E4M3),
}


@pytest.fixture
def hopper_only():
    import torch

    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("kernels that gather are for compute capability 9.0")


hopper = pytest.mark.usefixtures("hopper_only")


def build(name):
    options = dict(head_dim=128, page=64, q_dtype=BF16) | SHAPES[name]
    return make_case(np.random.default_rng(5), hint=True, **options)


def is_gathered(given):
    import pagedecode

    return "gathered" in pagedecode.explain(**given).why


def new_workspace(given):
    import torch

    import pagedecode

    return torch.zeros(pagedecode.workspace_size(**given), dtype=torch.uint8, device="cuda")


def clean_bytes(space):
    """Bytes at the start of a workspace that every call has to leave zero."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return space[: COUNTER_BYTES + sms * EXCHANGE_BYTES_OF_SM]


@hopper
@pytest.mark.parametrize("name", SHAPES)
def test_right_and_the_same_every_time(name, monkeypatch):
    import torch

    import pagedecode

    args = build(name)
    given = convert(BACKEND, args)
    assert is_gathered(given)
    space = new_workspace(given)
    rows = int(args["cu_seqlens_q"][-1])
    want = decode_reference(**args)
    first = None
    for i in range(20):
        out, lse = pagedecode.decode(**given, workspace=space, return_lse=True)
        if first is None:
            first = out, lse
            result = Result(BACKEND.back(out), BACKEND.back(lse))
            compare(result, want, *tolerances(args), written=rows)
        assert torch.equal(raw(out[:rows]), raw(first[0][:rows])), f"out of repeat {i}"
        assert torch.equal(raw(lse[:rows]), raw(first[1][:rows])), f"lse of repeat {i}"
        assert not clean_bytes(space).any()
    # The kernels that wait for nobody, with the same workspace; and back.
    monkeypatch.setenv("PAGEDECODE_KERNEL", "independent")
    assert not is_gathered(given)
    other = pagedecode.decode(**given, workspace=space, return_lse=True)
    result = Result(BACKEND.back(other[0]), BACKEND.back(other[1]))
    compare(result, want, *tolerances(args), written=rows)
    assert not clean_bytes(space).any()
    monkeypatch.delenv("PAGEDECODE_KERNEL")
    out = pagedecode.decode(**given, workspace=space)
    assert torch.equal(raw(out[:rows]), raw(first[0][:rows]))


def decode(args):
    """out and lse, from a kernel that gathers."""
    import pagedecode

    given = convert(BACKEND, args)
    assert is_gathered(given)
    out, lse = pagedecode.decode(**given, return_lse=True)
    return Result(BACKEND.back(out), BACKEND.back(lse))


@hopper
@pytest.mark.parametrize("name", ["132-splits", "33-splits", "16-splits", "2-splits", "ragged"])
def test_zeros_are_words_like_others(name):
    """The exchange tells by a zero that a word has not come; zeros are sent as -0."""
    args = build(name)
    rows = int(args["cu_seqlens_q"][-1])
    for zero in ("q", "k_cache", "v_cache"):
        case = dict(args, **{zero: np.zeros_like(args[zero])})
        got = decode(case)
        if zero == "v_cache":
            assert not np.signbit(got.out[:rows].astype(np.float32)).any()
        compare(got, decode_reference(**case), *tolerances(case), written=rows)


@hopper
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["33-splits", "16-splits-of-32-rows", "d64"])
def test_nothing_hangs_on_what_is_not_finite(name, value):
    args = build(name)
    rows = int(args["cu_seqlens_q"][-1])
    want = decode_reference(**args)
    page = int(args["block_table"][0, 3])
    for cache in ("k_cache", "v_cache"):
        broken = args[cache].copy()
        broken[page, 1, 0, 5] = value
        case = dict(args, **{cache: broken})
        got = decode(case)
        if cache == "v_cache":
            compare(got, decode_reference(**case), *tolerances(args), written=rows)
        compare(decode(args), want, *tolerances(args), written=rows)


@hopper
def test_two_streams_and_a_busy_device():
    """Blocks that wait for each other all run, whatever else the device runs."""
    import torch

    import pagedecode

    cases = [convert(BACKEND, build(name)) for name in ("16-splits-of-32-rows", "33-splits")]
    want = [pagedecode.decode(**given) for given in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    busy = torch.cuda.Stream()
    torch.cuda.synchronize()
    got = [[], []]
    for i in range(100):
        if i % 20 == 0:
            with torch.cuda.stream(busy):
                torch.cuda._sleep(2_000_000)
                torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) @ torch.randn(
                    4096, 4096, device="cuda", dtype=torch.bfloat16
                )
        for given, stream, results in zip(cases, streams, got, strict=True):
            with torch.cuda.stream(stream):
                results.append(pagedecode.decode(**given, stream=stream.cuda_stream))
    torch.cuda.synchronize()
    for results, right in zip(got, want, strict=True):
        assert all(torch.equal(raw(x), raw(right)) for x in results)


@hopper
def test_replays_with_other_lengths():
    import torch

    import pagedecode

    args = build("ragged")
    given = convert(BACKEND, args)
    assert is_gathered(given)
    space = new_workspace(given)
    out = torch.empty_like(given["q"])
    lse = torch.empty(out.shape[:2], dtype=torch.float32, device="cuda")
    call = dict(given, out=out, lse=lse, workspace=space)
    # Eager first, on a stream that has to wait for the zeros of the workspace.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        pagedecode.decode(**call, stream=side.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pagedecode.decode(**call, stream=torch.cuda.current_stream().cuda_stream)
    rows = int(args["cu_seqlens_q"][-1])
    full = args["seq_lens"].copy()
    for shrink in (1, 2, 5, 50):
        least = np.minimum(full, np.diff(args["cu_seqlens_q"]))
        lens = np.maximum(full // shrink, least).astype(full.dtype)
        given["seq_lens"].copy_(torch.from_numpy(lens))
        graph.replay()
        torch.cuda.synchronize()
        case = dict(args, seq_lens=lens)
        got = Result(BACKEND.back(out), BACKEND.back(lse))
        compare(got, decode_reference(**case), *tolerances(case), written=rows)
        assert not clean_bytes(space).any()
