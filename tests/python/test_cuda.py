# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What only CUDA has: graphs, streams, workspaces of streams, no synchronisation."""

import numpy as np
import pytest

from backends import BACKENDS, Result, bits_equal, check_call, convert, run
from cases import BF16, CASE, E4M3, make_case
from reference import decode_reference

pytestmark = pytest.mark.gpu
BACKEND = BACKENDS["torch-cuda"]
OPTIONS = {
    "plain": {},
    "bf16": dict(q_dtype=BF16, heads=(2, 8)),
    "fp8": dict(k_dtype=E4M3, k_scale="heads", v_scale="heads"),
    "window-sinks": dict(window_left=100, sinks=True),
    "splits": dict(num_splits=7),
    "invariant": dict(batch_invariant=True),
    "rope": dict(rope=True),
    "d128": dict(head_dim=128, heads=(2, 4), q_dtype=BF16),
    "d128-32-rows": dict(head_dim=128, heads=(2, 8), window_left=100),
    "d128-fp8": dict(head_dim=128, heads=(2, 4), k_dtype=E4M3, k_scale="heads", v_scale="heads"),
    "d128-splits": dict(head_dim=128, num_splits=5, sinks=True),
}


def steps(rng, count=4):
    """Random (m, n) of four sequences; rows of padding (length 0) and empty sequences among
    them."""
    yield [(4, 1024), (1, 1), (1, 1), (2, 1)]
    for _ in range(count):
        m = rng.integers(0, 5, 4)
        yield [(int(a), int(b)) for a, b in zip(m, rng.integers(0, 1025, 4), strict=True)]
    yield [(0, 0)] * 4


def make_step(seed, lens, options):
    """A problem within fixed shapes: 16 rows of q, a table 70 wide, 260 pages."""
    args = make_case(np.random.default_rng(seed), lens=lens, poisoned=False, **options)
    total = args["q"].shape[0]
    room = np.zeros((16 - total, *args["q"].shape[1:]), args["q"].dtype)
    args["q"] = np.concatenate([args["q"], room])
    table = np.full((4, 70), -1, np.int32)
    table[:, : args["block_table"].shape[1]] = args["block_table"]
    args["block_table"] = table
    for name in ("k_cache", "v_cache"):
        pool = np.zeros((270, *args[name].shape[1:]), args[name].dtype)
        pool[: len(args[name])] = args[name]
        args[name] = pool
    args["max_seqlen_q"] = 4
    return args


NAMES = ("q", "k_cache", "v_cache", "block_table", "seq_lens", "cu_seqlens_q")


def load(static, args):
    for name in NAMES:
        static[name].copy_(BACKEND.to(args[name]))


@pytest.mark.parametrize("own_workspace", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_graph_replays_with_other_lengths(kernel, name, own_workspace):
    """Captured once; each replay equals the eager call bit for bit, and the reference."""
    import torch

    import pagedecode

    rng = np.random.default_rng(0)
    problems = [make_step(1, lens, OPTIONS[name]) for lens in steps(rng)]
    for extra in ("sinks", "k_scale", "v_scale"):
        if extra in problems[0]:
            for args in problems[1:]:
                args[extra] = problems[0][extra]
    static = convert(BACKEND, problems[0])
    out = torch.full(static["q"].shape, 123, dtype=static["q"].dtype, device="cuda")
    lse = torch.full(static["q"].shape[:2], 123, dtype=torch.float32, device="cuda")
    if own_workspace:
        size = pagedecode.workspace_size(**static)
        static["workspace"] = torch.zeros(size, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pagedecode.decode(**static, out=out, lse=lse)
    for args in (*problems, *problems[::-1]):
        load(static, args)
        for target in (out, lse):
            target.fill_(123)
        graph.replay()
        total = int(args["cu_seqlens_q"][-1])
        got = Result(BACKEND.back(out), BACKEND.back(lse))
        assert got.same_bits(run(BACKEND, args)), "rows of padding included: they keep the sentinel"
        want = decode_reference(**args)
        error = np.abs(got.out[:total].astype(float) - want[0][:total])
        assert error.max(initial=0) < 0.06
        assert (got.out[total:].astype(float) == 123).all() and (got.lse[total:] == 123).all()


def test_graph_of_all_operations():
    """slots -> append -> decode -> merge_states -> move in one graph, replayed."""
    import torch

    import pagedecode

    args = make_step(2, [(2, 40), (1, 17), (3, 300), (0, 5)], {})
    static = convert(BACKEND, args)
    rows = static["q"].shape[0]
    k = torch.randn(rows, 2, 64, device="cuda", dtype=torch.float16)
    src, dst = (torch.tensor(x, device="cuda") for x in ([0, 1, -1], [1, 0, 5]))

    def step():
        at = pagedecode.slots(
            static["block_table"],
            static["seq_lens"],
            static["cu_seqlens_q"],
            page_size=16,
            total_q=rows,
        )
        pagedecode.append(k, k, static["k_cache"], static["v_cache"], at)
        out, lse = pagedecode.decode(**static, return_lse=True)
        both = pagedecode.merge_states([out, out], [lse, lse])
        pagedecode.move(static["k_cache"], static["v_cache"], src, dst)
        return both

    before = [static[name].clone() for name in ("k_cache", "v_cache")]
    eager = [x.clone() for x in step()]
    after = [static[name].clone() for name in ("k_cache", "v_cache")]
    for name, x in zip(("k_cache", "v_cache"), before, strict=True):
        static[name].copy_(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for name, x in zip(("k_cache", "v_cache"), before, strict=True):
        static[name].copy_(x)
    graph.replay()
    total = int(args["cu_seqlens_q"][-1])
    for a, b in zip(captured, eager, strict=True):
        assert torch.equal(a[:total], b[:total])
    for name, x in zip(("k_cache", "v_cache"), after, strict=True):
        assert bits_equal(BACKEND.back(static[name]), BACKEND.back(x))


def device_work(call):
    """The names of the kernels, copies and fills that a call puts on the device."""
    import torch

    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_call_is_one_kernel(kernel, name):
    """Schedule, attention and merge in one launch; nothing is copied, converted or cleared."""
    import torch

    import pagedecode

    args = make_step(2, [(2, 40), (1, 17), (3, 1000), (0, 5)], OPTIONS[name])
    given = convert(BACKEND, args)
    given["out"] = torch.empty_like(given["q"])
    pagedecode.decode(**given)  # makes the workspace
    if not device_work(lambda: torch.zeros(3, device="cuda")):
        pytest.skip("torch's profiler sees no kernels here (CUPTI may need privileges)")
    work = device_work(lambda: pagedecode.decode(**given))
    print(work)
    assert len(work) == 1 and "decode" in work[0], work


def test_nothing_waits():
    """The host returns while the stream is still busy, and the result follows the stream's
    order."""
    import torch

    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((2, 300), (1, 40)), hint=True)
    want = run(BACKEND, args, guarded=False)
    static = convert(BACKEND, args)
    values = static["v_cache"].clone()
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            pagedecode.decode(**static)
            for _ in range(5):
                static["v_cache"].zero_()
                torch.cuda._sleep(50_000_000)
                static["v_cache"].copy_(values)
                out = pagedecode.decode(**static)
                assert not stream.query(), "a call must not synchronise"
                assert bits_equal(BACKEND.back(out), want.out)
        torch.cuda.synchronize()


def test_raw_stream_handle():
    import torch

    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((2, 300), (1, 40)), hint=True)
    want = run(BACKEND, args, guarded=False)
    static = convert(BACKEND, args)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for handle in (0, side.cuda_stream):
        out, lse = pagedecode.decode(**static, return_lse=True, stream=handle)
        torch.cuda.synchronize()
        assert Result(BACKEND.back(out), BACKEND.back(lse)).same_bits(want)
    for wrong in ("0", 1.5, -1):
        with pytest.raises((TypeError, ValueError), match="stream"):
            pagedecode.decode(**static, stream=wrong)


def test_work_goes_to_the_given_stream():
    import torch

    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((2, 300),), hint=True)
    static = convert(BACKEND, args)
    out = torch.full(static["q"].shape, 123, dtype=torch.float16, device="cuda")
    side = torch.cuda.Stream()
    pagedecode.decode(**static, stream=side.cuda_stream)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
    pagedecode.decode(**static, out=out, stream=side.cuda_stream)
    assert (out[:1, 0, 0].cpu() == 123).all(), "ran beside the stream it was given"
    torch.cuda.synchronize()
    assert not (out == 123).any()


def test_old_bytes_of_the_workspace_do_not_matter():
    """The counters are left ready; the rest may hold anything after other shapes have used it."""
    import torch

    import pagedecode

    names = ["splits-7", "long", "all-empty", "splits-100", "window-3", "everything-fp8"]
    problems = [CASE[name].build() for name in names]
    sizes = [pagedecode.workspace_size(**convert(BACKEND, args)) for args in problems]
    space = torch.zeros(max(sizes), dtype=torch.uint8, device="cuda")
    for args in (*problems, *problems[::-1]):
        want = run(BACKEND, args, guarded=False)
        out, lse = pagedecode.decode(**convert(BACKEND, args), workspace=space, return_lse=True)
        assert Result(BACKEND.back(out), BACKEND.back(lse)).same_bits(want)


def test_large_grids():
    """More sequences than a grid dimension holds."""
    count = 65537 + 3
    args = dict(
        q=np.zeros((count, 1, 8), np.float16),
        k_cache=np.zeros((97, 1, 1, 8), np.float16),
        v_cache=np.repeat(np.arange(97, dtype=np.float16), 8).reshape(97, 1, 1, 8),
        block_table=(np.arange(count, dtype=np.int32) % 97)[:, None],
        seq_lens=np.ones(count, np.int32),
        cu_seqlens_q=np.arange(count + 1, dtype=np.int32),
        max_seqlen_q=1,
    )
    out = run(BACKEND, args).out
    assert (out[:, 0, 0] == np.arange(count) % 97).all()


def test_one_million_keys():
    args = make_case(
        np.random.default_rng(0), lens=((1, 2**20),), heads=(1, 2), head_dim=64, page=256
    )
    args["q"][...] = 0
    result = run(BACKEND, args)
    assert np.abs(result.lse - np.log(2.0**20)).max() < 1e-4
    check_call(BACKEND, args)


@pytest.mark.gpu2
def test_arrays_on_a_device_that_is_not_current():
    import torch

    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((2, 300), (1, 40)))
    want = run(BACKEND, args, guarded=False)
    given = {
        n: v.to("cuda:1") if isinstance(v, torch.Tensor) else v
        for n, v in convert(BACKEND, args).items()
    }
    out, lse = pagedecode.decode(**given, return_lse=True)
    assert out.device.index == 1 and torch.cuda.current_device() == 0
    assert Result(BACKEND.back(out), BACKEND.back(lse)).same_bits(want)
    with pytest.raises((TypeError, ValueError)):
        pagedecode.decode(**dict(given, window_left=-2))
    assert torch.cuda.current_device() == 0
    with pytest.raises((TypeError, ValueError), match="k_cache"):
        pagedecode.decode(**dict(given, k_cache=given["k_cache"].to("cuda:0")))
