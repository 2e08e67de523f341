# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of the workspace: old bytes, size, canaries (B22, B38)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, convert
from probes import call, close, is_cuda, normal, refused, same_bits, uniform

CANARY = 4096


def size_of(backend, args, **options) -> int:
    size = pagedecode.workspace_size(**convert(backend, {**args, **options}))
    assert isinstance(size, int) and size >= 0
    return size


def workspace(backend, size, before=CANARY, dtype=np.uint8):
    """(whole, view): zeroed bytes between canaries of 0xA5."""
    whole = np.full(before + size + CANARY, 0xA5, dtype)
    whole[before : before + size] = 0
    whole = backend.to(whole)
    return whole, whole[before : before + size]


def canaries_stand(backend, whole, size, before=CANARY) -> bool:
    bytes_ = np.asarray(backend.back(whole))
    return bool((bytes_[:before] == 0xA5).all() and (bytes_[before + size :] == 0xA5).all())


def calls():
    """Calls of very different shapes: big, then small with a window and an empty row."""
    big = normal([900, 700, 64, 1], [8, 3, 1, 1], page=16, heads=2, group=4)
    poison = {**big, "v_cache": np.full_like(big["v_cache"], np.nan)}  # NaN in every partial
    small = normal([9, 0, 700], [2, 3, 1], page=16)
    tree = {**small, "draft_mask": np.tri(3, dtype=bool)[[0, 1, 0, 1, 2, 0]], "max_seqlen_q": 3}
    return [
        (big, {}),
        (poison, {"num_splits": 16}),
        (small, {"window_left": 3}),
        (small, {"window_left": 3, "num_splits": 4}),
        (poison, {}),
        (tree, {}),
        (tree, {"num_splits": 2}),
        (small, {"batch_invariant": True}),
        (poison, {"batch_invariant": True}),
        (big, {"num_splits": 7, "sinks": np.ones(8, np.float32)}),
        (normal([1], [1]), {}),
        (big, {}),
    ]


@pytest.mark.parametrize("order", ("forward", "backward", "twice each"))
def test_b22_old_bytes_never_reach_a_result(writable_backend, order):
    backend = writable_backend
    sequence = calls()
    if order == "backward":
        sequence = sequence[::-1]
    if order == "twice each":
        sequence = [c for c in sequence for _ in range(2)]
    size = max(size_of(backend, args, **options) for args, options in sequence)
    whole, shared = workspace(backend, size)
    for args, options in sequence:
        own = workspace(backend, size)[1]
        fresh = call(backend, args, workspace=own, **options)
        assert same_bits(call(backend, args, workspace=shared, **options), fresh)
        assert same_bits(call(backend, args, **options), fresh)  # the library's own
        assert canaries_stand(backend, whole, size)


def test_b22_a_larger_workspace_changes_nothing(writable_backend):
    backend = writable_backend
    args = normal([3000, 100], [4, 1], page=16)
    size = size_of(backend, args)
    want = call(backend, args)
    for more in (0, 256, 5 * 2**20):
        whole, view = workspace(backend, size + more)
        assert same_bits(call(backend, args, workspace=view), want)
        assert canaries_stand(backend, whole, size + more)


@pytest.mark.parametrize("heads, group", ((1, 1), (2, 4), (1, 128), (8, 8), (128, 1)))
@pytest.mark.parametrize("m", (1, 5, 64))
def test_b38_the_size_is_enough(device_backend, heads, group, m):
    backend = device_backend
    args = normal([70, 1], [m, 1], page=16, heads=heads, group=group)
    for options in ({}, {"num_splits": 1}, {"num_splits": 32}, {"batch_invariant": True}):
        size = size_of(backend, args, **options)
        whole, view = workspace(backend, size)
        want = call(backend, args, **options)
        assert same_bits(call(backend, args, workspace=view, **options), want)
        assert canaries_stand(backend, whole, size)


@pytest.mark.parametrize("options", ({}, {"num_splits": 8}, {"batch_invariant": True}))
def test_b38_a_smaller_workspace_is_refused(writable_backend, options):
    backend = writable_backend
    args = normal([3000, 100], [4, 1], page=16)
    size = size_of(backend, args, **options)
    if is_cuda(backend):
        assert size > 0
    for less in {1, size // 2, size} if size else ():
        whole, view = workspace(backend, size - less)
        with refused("workspace") as _:
            call(backend, args, workspace=view, **options)
        assert canaries_stand(backend, whole, size - less)
    if size:
        with pytest.raises(ValueError, match=str(size)):  # says what it needs
            call(backend, args, workspace=workspace(backend, size - 1)[1], **options)


def test_b38_other_types_and_shapes_are_refused(writable_backend):
    backend = writable_backend
    args = normal([3000, 100], [4, 1], page=16)
    size = (size_of(backend, args) + 4096) // 16 * 16
    for dtype in (np.int8, np.float32, np.int64):
        with refused("workspace"):
            call(backend, args, workspace=np.zeros(size, dtype))
    with refused("workspace"):
        call(backend, args, workspace=np.zeros((16, size // 16), np.uint8))
    strided = backend.to(np.zeros(size * 2, np.uint8))[::2]
    with refused("workspace"):
        call(backend, args, workspace=strided)
    for bad in (0, size, b"0" * size, "x"):
        with refused("workspace"):
            call(backend, args, workspace=bad)


def test_b38_a_misaligned_workspace_is_refused(writable_backend):
    backend = writable_backend
    args = normal([3000, 100], [4, 1], page=16)
    size = size_of(backend, args)
    whole, view = workspace(backend, size + 64, before=CANARY + 1)
    with refused("workspace"):
        call(backend, args, workspace=view)
    assert canaries_stand(backend, whole, size + 64, before=CANARY + 1)


def test_b38_a_read_only_workspace_is_refused():
    args = normal([3000, 100], [4, 1], page=16)
    backend = BACKENDS["numpy"]
    frozen = np.zeros(size_of(backend, args) + 64, np.uint8)
    frozen.setflags(write=False)
    with refused("workspace"):
        call(backend, args, workspace=frozen)


@pytest.mark.gpu
def test_b38_a_workspace_on_the_other_device_is_refused():
    cpu, cuda = BACKENDS["torch-cpu"], BACKENDS["torch-cuda"]
    args = normal([3000, 100], [4, 1], page=16)
    host = np.zeros(2**24, np.uint8)
    for wrong in (host, cpu.to(host)):
        with refused("workspace"):
            pagedecode.decode(**convert(cuda, args), workspace=wrong)
    with refused("workspace"):
        pagedecode.decode(**convert(cpu, args), workspace=cuda.to(host))


def test_b38_the_size_depends_on_shapes_and_options_only(backend):
    args = normal([3000, 100, 0], [4, 1, 1], page=16)
    for options in ({}, {"num_splits": 4}, {"batch_invariant": True}):
        size = size_of(backend, args, **options)
        other = {**args, "seq_lens": np.array([0, 1, 2], np.int32)}
        other["block_table"] = np.full_like(args["block_table"], -1)
        other["cu_seqlens_q"] = np.array([0, 0, 3, 6], np.int32)
        # Offsets are contents too; the bound on m is a shape.
        assert size_of(backend, {**other, "max_seqlen_q": 4}, **options) == size_of(
            backend, {**args, "max_seqlen_q": 4}, **options
        )
        other["cu_seqlens_q"] = args["cu_seqlens_q"]
        assert size_of(backend, other, **options) == size


def test_b38_an_empty_batch_needs_little(backend):
    args = normal([], [])
    args["q"] = np.zeros((0, 4, 64), np.float16)
    assert size_of(backend, args) <= 2**20
    out, lse = call(backend, args)
    assert out.shape == (0, 4, 64) and lse.shape == (0, 4)


def test_b38_the_size_is_no_guess(device_backend):
    """Partials of 65 rows of 4 heads and D 64 in a handful of splits, not gigabytes."""
    probe = uniform([4096, 1], [64, 1], page=16, values=lambda b: 1.0)
    size = size_of(device_backend, probe.args)
    assert size <= 64 * 2**20
    out, lse = call(device_backend, probe.args)
    close(out, np.ones(out.shape), 1e-6)
    probe.check(out, lse)
