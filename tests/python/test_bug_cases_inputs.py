# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of read-only and unusual arrays as inputs (B26, B66)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, NUMPY, convert
from probes import call, refused, same_bits, uniform

SHAPE, LSE_SHAPE = (5, 4, 64), (5, 4)


@pytest.fixture
def probe():
    return uniform([5, 7], [2, 3])


def untouched(backend, array) -> bool:
    return bool((np.asarray(backend.back(array)) == 123).all())


def test_b26_read_only_inputs(probe):
    want = call(NUMPY, probe.args)
    frozen = {n: a.copy() for n, a in probe.args.items()}
    for array in frozen.values():
        array.setflags(write=False)
    assert same_bits(call(NUMPY, frozen), want)
    raw = {
        n: np.frombuffer(a.tobytes(), np.uint8).view(a.dtype).reshape(a.shape)
        for n, a in probe.args.items()
    }
    assert not raw["q"].flags.writeable
    assert same_bits(call(NUMPY, raw), want)


def test_b26_read_only_options(probe):
    rng = np.random.default_rng(0)
    options = {
        "draft_mask": rng.random((5, 3)) < 0.5,
        "positions": np.array([3, 4, 4, 5, 6]),
        "alibi_slopes": np.full(4, 0.5, np.float32),
        "sinks": np.ones(4, np.float32),
        "k_scale": np.full(2, 0.5, np.float32),
        "v_scale": np.full(1, 0.5, np.float32),
    }
    want = call(NUMPY, probe.args, **options)
    for array in options.values():
        array.setflags(write=False)
    assert same_bits(call(NUMPY, probe.args, **options), want)


def test_b26_broadcast_inputs():
    one = uniform([7, 7, 7], [1, 1, 1])
    same = {**one.args, "block_table": np.broadcast_to(one.args["block_table"][:1], (3, 2))}
    same["seq_lens"] = np.broadcast_to(np.int32(7), 3)
    out, lse = call(NUMPY, same)
    one.check(out, lse)


def test_b26_read_only_bfloat16_and_float8():
    probe = uniform([5, 7], [2, 3], dtype="bfloat16", kv="float8_e4m3fn")
    for array in probe.args.values():
        array.setflags(write=False)
    probe.check(*call(NUMPY, probe.args))


def test_b26_jax_arrays_as_inputs(probe):
    # Beside arrays of its own kind, and mixed with NumPy: the result is of q's library.
    jax = BACKENDS["jax-cpu"]
    given = convert(jax, probe.args)
    out, lse = pagedecode.decode(**given, return_lse=True)
    assert jax.is_mine(out) and jax.is_mine(lse)
    mixed = {**probe.args, "k_cache": given["k_cache"], "seq_lens": given["seq_lens"]}
    assert same_bits(call(NUMPY, mixed), call(NUMPY, probe.args))
    mixed = {**probe.args, "q": given["q"]}
    assert jax.is_mine(pagedecode.decode(**mixed))
    torch = BACKENDS["torch-cpu"]
    mixed = {**probe.args, "q": convert(torch, probe.args)["q"]}
    assert torch.is_mine(pagedecode.decode(**mixed))


def test_b26_read_only_outputs_are_refused(probe):
    out, lse = np.full(SHAPE, 123, np.float16), np.full(LSE_SHAPE, 123, np.float32)
    for name, array in (("out", out), ("lse", lse)):
        array.setflags(write=False)
        with refused(name):
            pagedecode.decode(**probe.args, **{name: array})
        assert untouched(NUMPY, array)
    jax = BACKENDS["jax-cpu"]
    for name, array in (("out", jax.to(out.copy())), ("lse", jax.to(lse.copy()))):
        with pytest.raises((TypeError, ValueError)):
            pagedecode.decode(**convert(jax, probe.args), **{name: array})
        assert untouched(jax, array)


@pytest.mark.parametrize("operation", ("append", "move"))
@pytest.mark.parametrize("which", ("k_cache", "v_cache"))
@pytest.mark.parametrize("kind", ("numpy", "jax-cpu"))
def test_b26_read_only_caches_are_not_written(operation, which, kind):
    backend = BACKENDS[kind]
    caches = {n: np.full((3, 4, 2, 64), 123, np.float16) for n in ("k_cache", "v_cache")}
    if kind == "numpy":
        caches[which].setflags(write=False)
    else:
        caches[which] = backend.to(caches[which])
    x, slots = np.ones((2, 2, 64), np.float16), np.array([1, 5])
    with pytest.raises((TypeError, ValueError), match=which):
        if operation == "append":
            pagedecode.append(x, x, **caches, slots=slots)
        else:
            pagedecode.move(**caches, src_slots=slots, dst_slots=slots + 1)
    assert untouched(backend, caches[which])
    other = ({"k_cache", "v_cache"} - {which}).pop()
    assert untouched(NUMPY, caches[other])


# B66 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("q", "k_cache", "v_cache", "k_scale", "sinks"))
def test_b66_tensors_that_need_gradients_are_named(probe, name):
    import torch

    given = convert(BACKENDS["torch-cpu"], probe.args)
    given.update(k_scale=torch.ones(2), sinks=torch.zeros(4))
    given[name] = given[name].clone().requires_grad_(True)
    with refused(name) as _, torch.no_grad():
        pagedecode.decode(**given)
    with pytest.raises((ValueError, TypeError, RuntimeError), match="detach"):
        pagedecode.decode(**given)
    given[name] = given[name].detach()
    pagedecode.decode(**given)


def test_b66_a_parameter_of_a_module_after_detach(probe):
    import torch

    given = convert(BACKENDS["torch-cpu"], probe.args)
    q = torch.nn.Parameter(given["q"])
    out, lse = call(BACKENDS["torch-cpu"], {**given, "q": q.detach()})
    probe.check(out, lse)


@pytest.mark.parametrize("kind", ("meta", "sparse", "conjugate"))
def test_b66_tensors_without_plain_memory_are_refused(probe, kind):
    import torch

    given = convert(BACKENDS["torch-cpu"], probe.args)
    given["q"] = {
        "meta": lambda: given["q"].to("meta"),
        "sparse": lambda: given["q"].to_sparse(),
        "conjugate": lambda: given["q"].to(torch.complex64).conj(),
    }[kind]()
    with refused("q"):
        pagedecode.decode(**given)


@pytest.mark.gpu
def test_b66_pinned_memory_counts_as_host(probe):
    import torch

    cpu, cuda = BACKENDS["torch-cpu"], BACKENDS["torch-cuda"]
    host, device = convert(cpu, probe.args), convert(cuda, probe.args)
    pinned = {n: t.pin_memory() for n, t in host.items()}
    probe.check(*call(cpu, pinned))
    for name in ("q", "k_cache", "v_cache", "block_table", "seq_lens"):
        with refused(name, *(["k_cache"] if name == "q" else [])):  # either of the two
            pagedecode.decode(**{**device, name: pinned[name]})
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_b66_managed_memory_works_on_the_gpu(probe):
    import cupy

    backend = BACKENDS["cupy-cuda"]
    want = call(backend, probe.args)
    old = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(cupy.cuda.malloc_managed)
    try:
        managed = convert(backend, probe.args)
    finally:
        cupy.cuda.set_allocator(old)
    assert same_bits(call(backend, managed), want)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ("torch-cuda", "cupy-cuda"))
def test_b66_host_arrays_beside_gpu_arrays_are_refused(probe, kind):
    backend = BACKENDS[kind]
    given = convert(backend, probe.args)
    for name in probe.args:
        with refused(name, *(["k_cache"] if name == "q" else [])):  # either of the two
            pagedecode.decode(**{**given, name: probe.args[name]})
    with refused("k_cache", "v_cache", "q"):
        pagedecode.decode(**{**probe.args, "k_cache": given["k_cache"]})
