# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of CUDA graphs: replays under other lengths, tables and contents (B21, B22, B40)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, convert
from probes import call, close, normal, offsets, same_bits
from reference import decode_reference

pytestmark = pytest.mark.gpu

PAGE, LONGEST = 16, 1024
MIXES = [
    [1024, 1, 1, 1],
    [1, 900, 17, 333],
    [333, 1, 1024, 16],
    [16, 5, 640, 1],
    [0, 0, 0, 0],
    [0, 1024, 0, 1024],
    [1024, 1024, 1024, 1024],
]
OPTIONS = [
    {}, {"num_splits": 1}, {"num_splits": 6}, {"batch_invariant": True}, {"window_left": 40},
    {"sinks": np.ones(4, np.float32), "softcap": 5.0}, {"rope": pagedecode.Rope()},
]  # fmt: skip
IDS = ["plain", "one split", "six splits", "invariant", "window", "sinks", "rope"]


def problem(lengths, rows, seed=0, **options):
    """A call whose shapes depend on the number of sequences only: a pool for all at full length."""
    args = normal([LONGEST] * len(lengths), rows, page=PAGE, seed=seed, spare=5, **options)
    rng = np.random.default_rng(seed + 1)
    width = LONGEST // PAGE
    pool = len(args["k_cache"])
    for name in ("k_cache", "v_cache"):
        dead = ~np.isfinite(args[name].astype(np.float32))
        args[name][dead] = 0.25
    args["block_table"] = rng.permutation(pool)[: len(lengths) * width].reshape(-1, width)
    args["block_table"] = args["block_table"].astype(np.int32)
    for b, n in enumerate(lengths):
        args["block_table"][b, -(-n // PAGE) :] = -1
    args["seq_lens"] = np.array(lengths, np.int32)
    return args


class Captured:
    """A captured call with static inputs; `replay` fills them and returns out and lse."""

    def __init__(self, args, **options):
        import torch

        self.torch, self.backend = torch, BACKENDS["torch-cuda"]
        self.given = convert(self.backend, {**args, **options})
        self.out = torch.full_like(self.given["q"], 123)
        rows, heads = args["q"].shape[:2]
        self.lse = torch.full((rows, heads), 123.0, device="cuda")
        self.graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.graph(self.graph, stream=stream):
            pagedecode.decode(**self.given, out=self.out, lse=self.lse)

    def replay(self, args):
        for name, value in args.items():
            if isinstance(value, np.ndarray):
                self.given[name].copy_(self.backend.to(value))
        self.out.fill_(123)
        self.lse.fill_(123)
        self.graph.replay()
        self.torch.cuda.synchronize()
        return self.backend.back(self.out), self.backend.back(self.lse)


@pytest.mark.parametrize("options", OPTIONS, ids=IDS)
@pytest.mark.parametrize("rows", ([1, 1, 1, 1], [4, 4, 4, 4], [8, 2, 5, 1]), ids=str)
def test_b21_a_replay_follows_the_lengths(rows, options):
    backend = BACKENDS["torch-cuda"]
    options = {**options, "max_seqlen_q": max(rows)}
    captured = Captured(problem(MIXES[0], rows), **options)
    for i, lengths in enumerate(MIXES * 2):
        args = problem(lengths, rows, seed=i)
        got = captured.replay(args)
        assert same_bits(got, call(backend, args, **options)), lengths
        if i < len(MIXES):
            want = decode_reference(**args, **options)
            close(got[0], want[0], 2e-3, 4.0)
            close(got[1], want[1], 4e-3 if "rope" in options else 1e-3)


def test_b21_the_first_call_of_all_may_be_a_captured_one():
    """No warm-up: the workspace that is missing is made outside the graph."""
    import subprocess
    import sys
    from pathlib import Path

    here = Path(__file__).resolve()
    done = subprocess.run(
        [sys.executable, str(here)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def first_call() -> None:
    rows = [2, 1, 3, 1]
    args = problem(MIXES[1], rows)
    captured = Captured(args, max_seqlen_q=3, num_splits=4)
    for lengths in MIXES:
        args = problem(lengths, rows, seed=len(lengths))
        want = decode_reference(**args)
        got = captured.replay(args)
        close(got[0], want[0], 2e-3, 4.0)
        close(got[1], want[1], 1e-3)


def test_b21_only_page_ids_change():
    captured = Captured(problem(MIXES[1], [2] * 4), max_seqlen_q=2)
    args = problem(MIXES[1], [2] * 4)
    first = captured.replay(args)
    order = np.random.default_rng(3).permutation(len(args["k_cache"]))
    moved = dict(args)
    for name in ("k_cache", "v_cache"):
        moved[name] = np.empty_like(args[name])
        moved[name][order] = args[name]
    table = args["block_table"]
    moved["block_table"] = np.where(table >= 0, order[table], -1).astype(np.int32)
    assert same_bits(captured.replay(moved), first)


def test_b21_offsets_and_padding_rows_change():
    """A batch of 4 and 12 rows: fewer rows and shorter batches are padded with length 0."""
    backend = BACKENDS["torch-cuda"]
    captured = Captured(problem([100] * 4, [3] * 4), max_seqlen_q=8)
    for lengths, rows in (
        ([500, 20, 9, 0], [8, 1, 3, 0]),
        ([500, 0, 0, 0], [8, 0, 0, 0]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([0, 0, 0, 0], [0, 0, 0, 0]),
        ([3, 1024, 7, 1024], [4, 0, 0, 8]),
    ):
        args = problem(lengths, [3] * 4, seed=lengths[0])
        args["cu_seqlens_q"] = offsets(rows)
        used = sum(rows)
        out, lse = captured.replay(args)
        want = decode_reference(**args)
        close(out[:used], want[0][:used], 2e-3, 4.0)
        close(lse[:used], want[1][:used], 1e-3)
        assert (out[used:] == 123).all() and (lse[used:] == 123).all()
        eager = call(backend, args, max_seqlen_q=8)
        assert same_bits((out, lse), eager)


def test_b21_masks_positions_and_scales_change():
    rng = np.random.default_rng(8)
    backend = BACKENDS["torch-cuda"]

    def draw(seed):
        args = problem(MIXES[seed % 4], [4] * 4, seed=seed, k_type="float8_e4m3fn")
        args["draft_mask"] = rng.random((16, 4)) < 0.5
        lengths = np.maximum(args["seq_lens"], 4)
        args["positions"] = np.repeat(lengths - 4, 4) + rng.integers(0, 4, 16)
        args["positions"] = args["positions"].astype(np.int32)
        for name in ("k_scale", "v_scale"):
            args[name] = rng.uniform(0.1, 2, 2).astype(np.float32)
        args["alibi_slopes"] = rng.uniform(0, 1, 4).astype(np.float32)
        return args

    captured = Captured(draw(0), max_seqlen_q=4)
    for seed in range(1, 8):
        args = draw(seed)
        got = captured.replay(args)
        assert same_bits(got, call(backend, args, max_seqlen_q=4))
        want = decode_reference(**args)
        close(got[0], want[0], 2e-3, 8.0)
        close(got[1], want[1], 1e-3)


def test_b21_lengths_above_the_table_are_clamped():
    captured = Captured(problem(MIXES[0], [2] * 4), max_seqlen_q=2)
    full = problem([1024] * 4, [2] * 4)
    want = captured.replay(full)
    beyond = {**full, "seq_lens": np.array([1024, 5000, 2**31 - 1, 1025], np.int32)}
    assert same_bits(captured.replay(beyond), want)
    below = {**full, "seq_lens": np.array([-1, -(2**31), 0, 1024], np.int32)}
    out, lse = captured.replay(below)
    assert (out[:6] == 0).all() and np.isneginf(lse[:6]).all()
    assert same_bits((out[6:], lse[6:]), (want[0][6:], want[1][6:]))


def test_b21_several_graphs_of_one_stream_take_turns():
    shapes = [([2] * 4, {}), ([1] * 7, {"num_splits": 8}), ([5, 1], {"batch_invariant": True})]
    graphs = []
    for i, (rows, options) in enumerate(shapes):
        args = problem([1000 - 300 * (b % 3) for b in range(len(rows))], rows, seed=i)
        options = {**options, "max_seqlen_q": max(rows)}
        graphs.append(
            (Captured(args, **options), args, call(BACKENDS["torch-cuda"], args, **options))
        )
    for _ in range(5):
        for captured, args, want in graphs:
            assert same_bits(captured.replay(args), want)


def test_b40_a_graph_of_an_empty_batch():
    import torch

    backend = BACKENDS["torch-cuda"]
    given = convert(backend, normal([], []))
    given["q"] = torch.zeros(0, 4, 64, dtype=torch.float16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    space = torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        out, lse = pagedecode.decode(**given, return_lse=True)
        space.add_(1)  # a graph of no work at all would be a warning
    graph.replay()
    torch.cuda.synchronize()
    assert tuple(out.shape) == (0, 4, 64) and tuple(lse.shape) == (0, 4) and space.item() == 1


def test_b21_append_slots_and_merge_in_one_graph():
    """A decode step: slots, append, decode of two halves, merge; replayed with other lengths."""
    import torch

    backend = BACKENDS["torch-cuda"]
    rows = [2, 1, 3, 1]
    args = problem([1000] * 4, rows)
    given = convert(backend, args)
    new = [torch.randn(7, 2, 64, device="cuda").half() for _ in range(2)]

    def step():
        table, lengths, cu = (given[n] for n in ("block_table", "seq_lens", "cu_seqlens_q"))
        where = pagedecode.slots(table, lengths, cu, page_size=PAGE, total_q=7)
        pagedecode.append(*new, given["k_cache"], given["v_cache"], where)
        one = pagedecode.decode(**given, max_seqlen_q=3, return_lse=True)
        two = pagedecode.decode(**given, max_seqlen_q=3, window_left=9, return_lse=True)
        merged = pagedecode.merge_states([one[0], two[0]], [one[1], two[1]])
        return (*one, *merged)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    for i, lengths in enumerate(MIXES):
        fresh = problem(lengths, rows, seed=i)
        for name in ("q", "k_cache", "v_cache", "block_table", "seq_lens"):
            given[name].copy_(backend.to(fresh[name]))
        graph.replay()
        torch.cuda.synchronize()
        got = [r.clone() for r in results]
        for name in ("k_cache", "v_cache"):
            given[name].copy_(backend.to(fresh[name]))
        for a, b in zip(got, step(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("splits", (None, 6))
def test_b22_replays_do_not_depend_on_what_scratch_held(splits):
    import torch

    backend = BACKENDS["torch-cuda"]
    rows = [4] * 4
    options = {"max_seqlen_q": 4, "num_splits": splits}
    args = problem([1024, 0, 3, 700], rows)
    size = pagedecode.workspace_size(**convert(backend, args), **options)
    space = torch.zeros(size, dtype=torch.uint8, device="cuda")
    captured = Captured(args, workspace=space, window_left=3, **options)
    want = call(backend, args, window_left=3, **options)
    poison = {**args, "v_cache": np.full_like(args["v_cache"], np.nan)}
    poison["seq_lens"] = np.array([1024] * 4, np.int32)
    for _ in range(5):
        call(backend, poison, workspace=space, **options)  # NaN in every partial
        assert same_bits(captured.replay(args), want)


if __name__ == "__main__":
    first_call()
