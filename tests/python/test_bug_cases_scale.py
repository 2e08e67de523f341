# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of size: offsets past 2^31, more than 65,535 of anything, and length mixes that hang
(B08, B52, B61)."""

import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS
from probes import call, close, is_cuda, np_type, offsets, pack_mask, uniform

# Page 16, 8 heads, D 128: 16384 elements a page. Pages 131071 and 131072 end and begin at element
# 2^31; page 262144 begins at 2^32, which is page 0 in 32 bits.
FAR = (131071, 131072, 262144)
SHAPE = (262145, 16, 8, 128)


def far_pool(backend, dtype, shape=SHAPE):
    """A huge pool: for real on the GPU; on the CPU its memory is committed as it is touched."""
    if backend.name == "torch-cuda":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
    if backend.name == "cupy-cuda":
        import cupy

        return cupy.empty(shape, dtype)
    kind = np_type(dtype)
    lazy = getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(
        -1, int(np.prod(shape)) * kind.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | lazy
    )
    return np.frombuffer(memory, np.uint8).view(kind).reshape(shape)


@pytest.fixture(params=["numpy", pytest.param("torch-cuda", marks=pytest.mark.gpu)])
def far_backend(request):
    return BACKENDS[request.param]


def far_args(backend, ids, q_type="bfloat16", index_type=np.int64):
    """Three sequences on a far page each and one that uses all of them."""
    table = np.full((4, 3), -1, index_type)
    table[:3, 0] = ids
    table[3] = ids
    return {
        "q": backend.to(np.zeros((4, 16, 128), np_type(q_type))),
        "block_table": backend.to(table),
        "seq_lens": backend.to(np.array([16, 5, 1, 48], index_type)),
        "cu_seqlens_q": backend.to(offsets([1] * 4, index_type)),
    }


def check_far(backend, k, v, ids, q_type="bfloat16", **options):
    for pool, near in ((k, 1.0), (v, 1.0)):
        pool[0] = 2.0
        for page in ids:
            pool[page] = near
    for index_type in (np.int32, np.int64):
        args = far_args(backend, ids, q_type, index_type)
        for splits in (1, 3):
            out, lse = pagedecode.decode(
                **args, k_cache=k, v_cache=v, num_splits=splits, return_lse=True, **options
            )
            np.testing.assert_array_equal(backend.back(out).astype(np.float32), 1.0)
            want = np.log([16.0, 5, 1, 48])[:, None]
            close(backend.back(lse), np.broadcast_to(want, (4, 16)), 1e-3)


@pytest.mark.parametrize("dtype", ("bfloat16", "int8"))
def test_b08_pages_past_two_billion_elements(far_backend, dtype):
    k, v = far_pool(far_backend, dtype), far_pool(far_backend, dtype)
    check_far(far_backend, k, v, FAR)


def test_b08_views_of_one_tensor_halve_the_ids(far_backend):
    pool = far_pool(far_backend, "bfloat16", (131073, 2, 16, 8, 128))
    check_far(far_backend, pool[:, 0], pool[:, 1], (65535, 65536, 131072))


def test_b08_two_heads_far_apart(far_backend):
    # The head's stride times the head, too, needs 64 bits: two heads 2^31 elements apart.
    pool = far_pool(far_backend, "int8", (1048578, 16, 128))
    shape, strides = (2, 2, 16, 128), (2048, 1048576 * 2048, 128, 1)  # HND
    if is_cuda(far_backend):
        cache = pool.as_strided(shape, strides)
    else:
        cache = np.lib.stride_tricks.as_strided(pool, shape, strides)
    pool[:4] = 2
    cache[:, 0] = 1
    cache[:, 1] = 3
    args = {
        "q": far_backend.to(np.zeros((1, 4, 128), np.float16)),
        "block_table": far_backend.to(np.array([[1, 0]], np.int32)),
        "seq_lens": far_backend.to(np.array([20], np.int32)),
        "cu_seqlens_q": far_backend.to(offsets([1])),
    }
    out = pagedecode.decode(**args, k_cache=cache, v_cache=cache, kv_layout="HND")
    want = np.broadcast_to(np.array([1, 1, 3, 3])[None, :, None], (1, 4, 128))
    np.testing.assert_array_equal(far_backend.back(out), want)


@pytest.mark.parametrize("dtype", ("bfloat16", "float8_e4m3fn"))
def test_b08_append_and_move_to_far_slots(far_backend, dtype):
    backend = far_backend
    k, v = far_pool(backend, dtype), far_pool(backend, dtype)
    for pool in (k, v):
        pool[0] = 2.0
        pool[1] = 3.0
    slots = np.array([page * 16 + 7 for page in FAR], np.int64)
    new = backend.to(np.ones((3, 8, 128), np_type("bfloat16")))
    pagedecode.append(new, new, k, v, backend.to(slots))
    for pool in (k, v):
        assert (backend.back(pool[0]).astype(np.float32) == 2).all()
        for page in FAR:
            assert (backend.back(pool[page, 7]).astype(np.float32) == 1).all()
    src = np.array([16, *slots[:2]], np.int64)
    dst = np.array([slots[0], slots[1] + 1, slots[2] + 1], np.int64)
    pagedecode.move(k, v, backend.to(src), backend.to(dst))
    for pool in (k, v):
        assert (backend.back(pool[0]).astype(np.float32) == 2).all()
        for slot, value in zip(dst, (3, 1, 1), strict=True):
            got = backend.back(pool[int(slot) // 16, int(slot) % 16])
            assert (got.astype(np.float32) == value).all()


def test_b08_slots_past_two_billion(device_backend):
    backend = device_backend
    table = np.array([[HUGE_PAGE, HUGE_PAGE - 1]], np.int32)
    got = pagedecode.slots(
        backend.to(table),
        backend.to(np.array([20], np.int32)),
        backend.to(offsets([6])),
        page_size=16,
        total_q=6,
    )
    want = [HUGE_PAGE * 16 + 14, HUGE_PAGE * 16 + 15] + [(HUGE_PAGE - 1) * 16 + i for i in range(4)]
    np.testing.assert_array_equal(backend.back(got), want)


HUGE_PAGE = 2**30


# B52 ----------------------------------------------------------------------------------------------


def test_b52_a_batch_above_65535(device_backend):
    count = 65537
    v = np.broadcast_to((np.arange(97, dtype=np.float16))[:, None, None, None], (97, 1, 1, 64))
    args = {
        "q": np.zeros((count, 1, 64), np.float16),
        "k_cache": np.ones((97, 1, 1, 64), np.float16),
        "v_cache": v.copy(),
        "block_table": (np.arange(count) % 97).astype(np.int32)[:, None],
        "seq_lens": np.ones(count, np.int32),
    }
    want = np.broadcast_to((np.arange(count) % 97)[:, None, None], (count, 1, 64))
    for options in ({"cu_seqlens_q": offsets([1] * count), "max_seqlen_q": 1}, {"q": None}):
        if options.get("q", 0) is None:
            options["q"] = args["q"][:, None]
        out, lse = call(device_backend, args, **options)
        np.testing.assert_array_equal(out.reshape(count, 1, 64), want)
        np.testing.assert_array_equal(lse, 0)


def test_b52_many_rows_of_one_sequence(device_backend):
    probe = uniform([3], [66000], heads=1, group=1)
    out, lse = call(device_backend, probe.args, max_seqlen_q=66000)
    probe.check(out, lse)


def test_b52_many_heads(device_backend):
    rng = np.random.default_rng(0)
    v = rng.integers(0, 100, (20, 1, 4000, 64)).astype(np.float16)
    args = {
        "q": np.zeros((20, 4000, 64), np.float16),
        "k_cache": np.ones_like(v),
        "v_cache": v,
        "block_table": np.arange(20, dtype=np.int32)[::-1, None],
        "seq_lens": np.ones(20, np.int32),
        "cu_seqlens_q": offsets([1] * 20),
    }
    out, _ = call(device_backend, args)
    np.testing.assert_array_equal(out, v[::-1, 0])


def test_b52_append_of_70000_tokens(device_backend):
    backend, count = device_backend, 70000
    cache = backend.to(np.full((count // 16 + 1, 16, 1, 64), -1, np.float16))
    other = backend.to(np.full((count // 16 + 1, 16, 1, 64), -1, np.float16))
    x = np.broadcast_to((np.arange(count) % 97).astype(np.float16)[:, None, None], (count, 1, 64))
    slots = np.random.default_rng(0).permutation(count).astype(np.int64)
    new = backend.to(x.copy())
    pagedecode.append(new, new, cache, other, backend.to(slots))
    for pool in (cache, other):
        got = backend.back(pool).reshape(-1, 1, 64)
        np.testing.assert_array_equal(got[slots], x)
        assert (got[count:] == -1).all()


def test_b52_merge_of_70000_rows(device_backend):
    backend, rows = device_backend, 70000
    v = np.broadcast_to((np.arange(rows) % 97).astype(np.float16)[:, None, None], (rows, 1, 64))
    outs = [backend.to(v.copy()), backend.to(v.copy() + np.float16(2))]
    lses = [backend.to(np.zeros((rows, 1), np.float32)) for _ in range(2)]
    out, lse = pagedecode.merge_states(outs, lses)
    np.testing.assert_array_equal(backend.back(out), v + np.float16(1))
    close(backend.back(lse), np.full((rows, 1), np.log(2)), 1e-6)


# B61 ----------------------------------------------------------------------------------------------


def length_mixes(gpu: bool) -> list:
    """(lengths, rows) of calls; on the CPU fewer random ones, and of smaller size."""
    rng = np.random.default_rng(61)
    mixes = [
        ([1743, 1559], [2, 3]),
        ([1, 65536, 3], [1, 2, 9]),
        ([0, 0, 129, 0], [1, 3, 4, 2]),
        ([128] * 7 + [1], [1] * 8),
        ([65536, 0, 1], [0, 5, 0]),
    ]
    for _ in range(300 if gpu else 60):
        count = int(rng.integers(1, 40 if gpu else 12))
        lengths = rng.integers(0, 3000 if gpu else 300, count) * (rng.random(count) < 0.7)
        mixes.append((lengths.tolist(), rng.integers(0, 10, count).tolist()))
    return mixes


def run_mix(backend, lengths, rows, dtype="float16") -> None:
    rng = np.random.default_rng(sum(lengths))
    probe = uniform(lengths, rows, page=16, heads=1, values="random", dtype=dtype)
    probe.check(*call(backend, probe.args))
    probe.check(*call(backend, probe.args, causal=False), causal=False)
    probe.check(*call(backend, probe.args, window_left=100), window_left=100)
    width = max([*rows, 1])
    mask = rng.random((sum(rows), width)) < 0.5
    at = offsets(rows)
    masks = [mask[at[b] : at[b] + m, :m] for b, m in enumerate(rows)]
    probe.check(*call(backend, probe.args, draft_mask=mask, max_seqlen_q=width), masks)
    packed = pack_mask(mask, rng)
    for options in ({}, {"num_splits": 4}):
        out = call(backend, probe.args, draft_mask=packed, max_seqlen_q=width, **options)
        probe.check(*out, masks)


@pytest.mark.parametrize("part", range(3))
def test_b61_length_mixes_finish(device_backend, part):
    """Each part in a process of its own, so that a hang is a failure and not a stop."""
    command = [sys.executable, str(Path(__file__).resolve()), device_backend.name, str(part)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def main(name: str, part: int) -> None:
    backend = BACKENDS[name]
    mixes = length_mixes(is_cuda(backend))
    # Part 0: the reported mixes; 1: the random ones; 2: a sample of both in another order.
    chosen = {0: mixes[:5], 1: mixes[5:], 2: (mixes[::-1][::5] + mixes[:5])}[part]
    for lengths, rows in chosen:
        run_mix(backend, lengths, rows)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
