# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of streams and devices: the caller's stream, a GPU that is not current (B24, B29)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, convert
from probes import call, close, normal, refused, uniform

pytestmark = pytest.mark.gpu

SPIN = 40_000_000  # cycles: about 20 ms


def late_probe(torch):
    """A call whose caches are NaN until `fill` has run on the current stream."""
    probe = uniform([300, 5], [2, 1], page=16, values=lambda b: 1.0)
    given = convert(BACKENDS["torch-cuda"], probe.args)
    for name in ("k_cache", "v_cache"):
        given[name].fill_(float("nan"))
    torch.cuda.synchronize()

    def fill():
        torch.cuda._sleep(SPIN)
        given["k_cache"].fill_(1)
        given["v_cache"].fill_(1)

    return given, fill


@pytest.mark.parametrize("how", ("current", "explicit", "explicit with another current"))
def test_b24_work_follows_the_callers_stream(how):
    import torch

    given, fill = late_probe(torch)
    side = torch.cuda.Stream()
    out = torch.full_like(given["q"], 123)
    lse = torch.full((3, 4), 123.0, device="cuda")
    pagedecode.decode(**given, out=out, lse=lse)  # loads the kernel: not part of the timing
    for _ in range(50 if how == "current" else 10):
        for name in ("k_cache", "v_cache"):
            given[name].fill_(float("nan"))
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            fill()
            if how == "current":
                pagedecode.decode(**given, out=out, lse=lse)
            elif how == "explicit":
                pagedecode.decode(**given, out=out, lse=lse, stream=side.cuda_stream)
        if how == "explicit with another current":
            pagedecode.decode(**given, out=out, lse=lse, stream=side.cuda_stream)
        assert not side.query(), "the call waited for the stream"
        with torch.cuda.stream(side):
            got, got_lse = out.clone(), lse.clone()
        side.synchronize()
        assert (got == 1).all()
        close(got_lse.cpu().numpy()[2], np.full(4, np.log(5)), 1e-3)


def test_b24_the_other_functions_follow_too():
    import torch

    backend = BACKENDS["torch-cuda"]
    side = torch.cuda.Stream()
    args = convert(backend, normal([37, 5], [3, 1], page=16))
    x = torch.zeros(4, 2, 64, dtype=torch.float16, device="cuda")
    states = [torch.zeros(4, 4, 64, dtype=torch.float16, device="cuda") for _ in range(2)]
    lses = [torch.zeros(4, 4, device="cuda") for _ in range(2)]
    table = [args[n] for n in ("block_table", "seq_lens", "cu_seqlens_q")]

    def work():
        where = pagedecode.slots(*table, page_size=16, total_q=4)
        pagedecode.append(x, x, args["k_cache"], args["v_cache"], where)
        pagedecode.move(args["k_cache"], args["v_cache"], where, where.flip(0))
        return where, *pagedecode.merge_states(states, lses)

    work()
    torch.cuda.synchronize()
    for _ in range(10):
        x.zero_()
        for state in states:
            state.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            x.fill_(3)
            for state in states:
                state.fill_(2)
            where, out, lse = work()
            assert not side.query(), "a call waited for the stream"
            written = args["k_cache"].reshape(-1, 2, 64)[where].clone()
        side.synchronize()
        assert (written == 3).all() and (out == 2).all()
        close(lse.cpu().numpy(), np.full((4, 4), np.log(2)), 1e-5)


@pytest.mark.parametrize("explicit", (False, True))
def test_b24_cupy_streams(explicit):
    import cupy

    backend = BACKENDS["cupy-cuda"]
    probe = uniform([300, 5], [2, 1], page=16, values=lambda b: 1.0)
    given = convert(backend, probe.args)
    spin = cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) { long long t = clock64();'
        " while (clock64() - t < n) {} }",
        "spin",
    )
    out = cupy.empty((3, 4, 64), cupy.float16)
    side = cupy.cuda.Stream(non_blocking=True)
    pagedecode.decode(**given, out=out)
    spin((1,), (1,), (1,))
    for _ in range(10):
        for name in ("k_cache", "v_cache"):
            given[name].fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        with side:
            spin((1,), (1,), (SPIN,))
            given["k_cache"].fill(1)
            given["v_cache"].fill(1)
            if not explicit:
                pagedecode.decode(**given, out=out)
        if explicit:
            pagedecode.decode(**given, out=out, stream=side.ptr)
        assert not side.done
        side.synchronize()
        assert (cupy.asnumpy(out) == 1).all()


def test_b24_the_default_streams_by_handle():
    import torch

    backend = BACKENDS["torch-cuda"]
    probe = uniform([5, 7], [2, 3])
    given = convert(backend, probe.args)
    for stream in (0, 1, 2, None, torch.cuda.Stream().cuda_stream):
        out, lse = pagedecode.decode(**given, return_lse=True, stream=stream)
        torch.cuda.synchronize()
        probe.check(backend.back(out), backend.back(lse))
    for bad in (-1, "0", 1.5, [0]):
        with refused("stream"):
            pagedecode.decode(**given, stream=bad)


# B29 ----------------------------------------------------------------------------------------------


def on_device(given, index):
    import torch

    return {
        name: value.to(f"cuda:{index}") if isinstance(value, torch.Tensor) else value
        for name, value in given.items()
    }


@pytest.mark.gpu2
@pytest.mark.parametrize("current", (0, 1))
@pytest.mark.parametrize(
    "options",
    [{}, {"num_splits": 5}, {"batch_invariant": True}],
    ids=["plain", "splits", "invariant"],
)
def test_b29_arrays_on_a_gpu_that_is_not_current(current, options):
    import torch

    backend = BACKENDS["torch-cuda"]
    args = normal([3000, 5, 700], [4, 1, 3], page=16)
    zero = on_device(convert(backend, args), 0)
    one = on_device(zero, 1)
    with torch.cuda.device(current):
        runs = []
        for given in (zero, one, zero, one):  # on 0 first, then 1, in one process
            out, lse = pagedecode.decode(**given, return_lse=True, **options)
            assert out.device == given["q"].device == lse.device
            assert torch.cuda.current_device() == current
            runs.append((out.cpu(), lse.cpu()))
    for out, lse in runs[1:]:
        assert torch.equal(out, runs[0][0]) and torch.equal(lse, runs[0][1])


@pytest.mark.gpu2
def test_b29_every_other_function_on_the_second_gpu():
    import torch

    backend = BACKENDS["torch-cuda"]
    args = normal([37, 5], [3, 1], page=16)
    results = []
    for index in (0, 1):
        given = on_device(convert(backend, args), index)
        table = [given[n] for n in ("block_table", "seq_lens", "cu_seqlens_q")]
        where = pagedecode.slots(*table, page_size=16, total_q=4)
        x = torch.ones(4, 2, 64, dtype=torch.float16, device=f"cuda:{index}")
        pagedecode.append(x, x, given["k_cache"], given["v_cache"], where)
        pagedecode.move(given["k_cache"], given["v_cache"], where, where.flip(0))
        out, lse = pagedecode.decode(**given, return_lse=True)
        merged = pagedecode.merge_states([out, out], [lse, lse])
        pagedecode.check(**given)
        size = pagedecode.workspace_size(**given)
        space = torch.zeros(size, dtype=torch.uint8, device=f"cuda:{index}")
        own = pagedecode.decode(**given, workspace=space)
        assert torch.cuda.current_device() == 0
        results.append([t.cpu() for t in (where, out, lse, *merged, own, given["k_cache"])])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a.nan_to_num(7), b.nan_to_num(7))


@pytest.mark.gpu2
def test_b29_a_graph_on_the_second_gpu():
    import torch

    backend = BACKENDS["torch-cuda"]
    args = normal([700, 5], [3, 1], page=16)
    want = call(backend, args, max_seqlen_q=3)
    with torch.cuda.device(1):
        given = on_device(convert(backend, args), 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, lse = pagedecode.decode(**given, max_seqlen_q=3, return_lse=True)
        graph.replay()
        torch.cuda.synchronize()
        assert np.array_equal(out.cpu().numpy(), want[0])
        assert np.array_equal(lse.cpu().numpy(), want[1])


@pytest.mark.gpu2
def test_b29_mixed_devices_are_refused_and_the_current_one_stays():
    import torch

    backend = BACKENDS["torch-cuda"]
    args = normal([37, 5], [3, 1], page=16)
    zero = on_device(convert(backend, args), 0)
    one = on_device(zero, 1)
    for name in args:
        with refused(name, "q"):
            pagedecode.decode(**{**zero, name: one[name]})
        assert torch.cuda.current_device() == 0
    space = torch.zeros(2**24, dtype=torch.uint8, device="cuda:1")
    with refused("workspace"):
        pagedecode.decode(**zero, workspace=space)
    with refused("out"):
        pagedecode.decode(**zero, out=torch.empty_like(one["q"]))
    with refused("k_cache", "v_cache"):
        x = zero["k_cache"][0, :2].clone()
        where = torch.tensor([0, 1], device="cuda:0")
        pagedecode.append(x, x, zero["k_cache"], one["v_cache"], where)
    with refused("window_left"):
        pagedecode.decode(**one, window_left=-5)
    assert torch.cuda.current_device() == 0
