# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of determinism: other batches, repeats, threads, streams (B30, B62)."""

import threading

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, NUMPY, convert
from probes import call, csr, is_cuda, normal, offsets, same_bits, slice_call

INVARIANT = {"batch_invariant": True}
VARIANTS = [
    {}, {"window_left": 100}, {"softcap": 3.0, "alibi_slopes": np.full(4, 0.01, np.float32)},
    {"sinks": np.ones(4, np.float32), "rope": pagedecode.Rope()}, {"causal": False},
]  # fmt: skip
IDS = ["plain", "window", "softcap", "rope", "not causal"]


def place(args, k, v, q, at, order, fill, page=16):
    """A sequence put at place `at` among those of a call: (the call, its rows). Its pages come
    after those of the others, in the order given."""
    order = np.asarray(order)
    pool, pages = len(args["k_cache"]), len(order)
    others = args["block_table"]
    table = np.full((len(others) + 1, max(others.shape[1], pages) + 3), fill, np.int32)
    table[np.delete(np.arange(len(table)), at), : others.shape[1]] = others
    table[at, :pages] = order + pool
    made = {**args, "block_table": table}
    for name, x in (("k_cache", k), ("v_cache", v)):
        flat = np.full((pages * page, *x.shape[1:]), np.nan, x.dtype)
        flat[: len(x)] = x
        more = np.empty((pages, page, *x.shape[1:]), x.dtype)
        more[order] = flat.reshape(more.shape)
        made[name] = np.concatenate([args[name], more])
    cut = args["cu_seqlens_q"][at]
    made["q"] = np.concatenate([args["q"][:cut], q, args["q"][cut:]])
    made["seq_lens"] = np.insert(args["seq_lens"], at, len(k))
    rows = np.insert(np.diff(args["cu_seqlens_q"]), at, len(q))
    made["cu_seqlens_q"] = offsets(rows)
    return made, slice(cut, cut + len(q))


@pytest.mark.parametrize("options", VARIANTS, ids=IDS)
def test_b30_a_sequence_alone_and_among_others(device_backend, options):
    backend = device_backend
    n, count, top = (5000, 63, 8000) if is_cuda(backend) else (1500, 9, 2000)
    rng = np.random.default_rng(30)
    k, v = (rng.standard_normal((n, 2, 64), np.float32).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((4, 4, 64), np.float32).astype(np.float16)
    nobody = {
        "q": q[:0],
        "k_cache": np.zeros((0, 16, 2, 64), np.float16),
        "v_cache": np.zeros((0, 16, 2, 64), np.float16),
        "block_table": np.zeros((0, 0), np.int32),
        "seq_lens": np.zeros(0, np.int32),
        "cu_seqlens_q": np.zeros(1, np.int32),
    }
    pages = -(-n // 16)
    alone, _ = place(nobody, k, v, q, 0, range(pages), -1)
    want = call(backend, alone, **INVARIANT, **options)
    lengths = rng.integers(1, top, count).tolist()
    others = normal(lengths, [1 + b % 4 for b in range(count)], page=16, seed=31)
    for at in (0, count // 2, count):
        for order in (range(pages), rng.permutation(pages)):
            among, rows = place(others, k, v, q, at, order, 2**31 - 1)
            out, lse = call(backend, among, **INVARIANT, **options)
            assert same_bits((out[rows], lse[rows]), want)
    for bound in (4, 9, 1000):
        assert same_bits(call(backend, alone, max_seqlen_q=bound, **INVARIANT, **options), want)
    assert same_bits(call(backend, csr(alone, 16), **INVARIANT, **options), want)


@pytest.mark.parametrize("kv", (None, "float8_e4m3fn", "int8"))
@pytest.mark.parametrize("options", VARIANTS[:4], ids=IDS[:4])
def test_b30_m_rows_equal_m_single_steps(backend, options, kv):
    args = normal([1030, 37, 600], [6, 6, 6], page=16, k_type=kv)
    scale = {"k_scale": 0.05, "v_scale": 0.05} if kv else {}
    out, lse = call(backend, args, **INVARIANT, **options, **scale)
    rows = args["q"].reshape(3, 6, 4, 64)
    for steps in ((0, 1), (3, 4), (5, 6), (0, 3), (2, 6)):
        count = steps[1] - steps[0]
        part = dict(args, q=rows[:, steps[0] : steps[1]].reshape(-1, 4, 64).copy())
        part["seq_lens"] = args["seq_lens"] - 6 + steps[1]
        part["cu_seqlens_q"] = offsets([count] * 3)
        got = call(backend, part, **INVARIANT, **options, **scale)
        index = (np.arange(3)[:, None] * 6 + np.arange(*steps)).reshape(-1)
        assert same_bits(got, (out[index], lse[index])), steps


@pytest.mark.parametrize("group, dim", ((1, 64), (7, 128), (16, 72), (64, 64)))
def test_b30_other_shapes(backend, group, dim):
    args = normal([700, 5, 333], [5, 1, 17], page=16, group=group, dim=dim)
    whole = call(backend, args, **INVARIANT)
    at = args["cu_seqlens_q"]
    for b in range(3):
        rows = slice(at[b], at[b + 1])
        one = call(backend, slice_call(args, b), **INVARIANT)
        assert same_bits(one, (whole[0][rows], whole[1][rows]))


def test_b30_the_number_of_threads_means_nothing():
    args = normal([1500, 37, 600], [4, 1, 2], page=16)
    try:
        runs = []
        for count in (1, 2, 3, 7):
            pagedecode.set_num_threads(count)
            runs.append((call(NUMPY, args, **INVARIANT), call(NUMPY, args, num_splits=5)))
    finally:
        pagedecode.set_num_threads(2)
    assert all(same_bits(run, runs[0]) for run in runs)


def test_b30_rows_beside_it_mean_nothing(backend):
    """Rule 10, with and without batch_invariant: a row's bits depend on its own logits alone."""
    args = normal([600, 90], [4, 4], page=16)
    for options in ({}, INVARIANT, {"num_splits": 3}):
        want = call(backend, args, **options)
        other = dict(args, q=args["q"].copy())
        other["q"][[0, 2, 3, 5]] *= np.float16(40)
        got = call(backend, other, **options)
        for i in (1, 4, 6, 7):
            assert same_bits((got[0][i], got[1][i]), (want[0][i], want[1][i]))


CONFIGS = [
    ({"k_type": kv, "dim": dim, "group": group}, {"num_splits": splits} if splits else extra)
    for kv, dim, group, splits, extra in (
        (None, 64, 2, None, {}), (None, 128, 4, 7, {}), ("float8_e4m3fn", 128, 8, None, {}),
        ("float8_e5m2", 64, 2, 3, {}), ("int8", 128, 4, None, {}), (None, 256, 1, 5, {}),
        (None, 72, 3, None, INVARIANT), (None, 64, 16, None, {"window_left": 50}),
    )
]  # fmt: skip


@pytest.mark.parametrize("data, options", CONFIGS)
def test_b62_repeats_give_the_same_bits(backend, data, options):
    cuda = is_cuda(backend)
    args = normal([3000, 900, 1, 0, 40], [4, 1, 2, 1, 3], page=16, **data)
    given = convert(backend, args)
    want = call(backend, given, **options)
    for _ in range(50 if cuda else 4):
        assert same_bits(call(backend, given, **options), want)


@pytest.mark.parametrize("threads", (2, 5))
def test_b62_host_threads_do_not_disturb_each_other(device_backend, threads):
    backend = device_backend
    jobs = []
    for i in range(threads):
        args = normal([700 + i, 90, 3], [4, 1, 2], page=16, seed=i)
        jobs.append((convert(backend, args), {"num_splits": 4} if i % 2 else {}))
    want = [call(backend, args, **options) for args, options in jobs]
    failures, start = [], threading.Barrier(threads)

    def work(i):
        args, options = jobs[i]
        start.wait()
        for _ in range(30):
            try:
                if not same_bits(call(backend, args, **options), want[i]):
                    failures.append(i)
            except Exception as error:
                failures.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    assert not failures


@pytest.mark.gpu
def test_b62_two_streams_do_not_share_scratch():
    import torch

    backend = BACKENDS["torch-cuda"]
    args = normal([6000, 900, 4000], [4, 1, 2], page=16, group=4)
    pair = [convert(backend, args), convert(backend, {**args, "q": args["q"][::-1].copy()})]
    want = [pagedecode.decode(**g, num_splits=8, return_lse=True) for g in pair]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in pair]
    results = []
    for _ in range(200):
        for given, stream in zip(pair, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(pagedecode.decode(**given, num_splits=8, return_lse=True))
    torch.cuda.synchronize()
    for i, (out, lse) in enumerate(results):
        assert torch.equal(out, want[i % 2][0]) and torch.equal(lse, want[i % 2][1])


@pytest.mark.gpu
def test_b62_repeats_beside_a_busy_stream():
    import torch

    backend = BACKENDS["torch-cuda"]
    given = convert(backend, normal([6000, 900, 4000], [4, 1, 2], page=16, group=4))
    want = pagedecode.decode(**given, return_lse=True)
    noise = torch.cuda.Stream()
    a = torch.randn(2048, 2048, device="cuda")
    for i in range(50):
        with torch.cuda.stream(noise):
            torch.cuda._sleep(1000 * (i % 7))
            a @ a
        out, lse = pagedecode.decode(**given, return_lse=True)
        assert torch.equal(out, want[0]) and torch.equal(lse, want[1])
