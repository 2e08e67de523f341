# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of outputs and of read-only or unusual arrays (B25, B26, B66)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, NUMPY, convert
from probes import call, close, np_type, refused, same_bits, uniform

SHAPE, LSE_SHAPE = (5, 4, 64), (5, 4)


@pytest.fixture
def probe():
    return uniform([5, 7], [2, 3])


def untouched(backend, array) -> bool:
    return bool((np.asarray(backend.back(array)).astype(np.float64) == 123).all())


@pytest.mark.parametrize("dtype", ("float64", "int32", "uint8", "float8_e4m3fn", "complex64"))
def test_b25_out_of_other_types_is_refused(writable_backend, probe, dtype):
    backend = writable_backend
    if backend.name.startswith("cupy") and dtype.startswith("float8"):
        dtype = "int8"  # CuPy has no float8
    given = convert(backend, probe.args)
    out = backend.to(np.full(SHAPE, 123, np.float32).astype(np_type(dtype)))
    before = backend.back(out).copy()
    with refused("out"):
        pagedecode.decode(**given, out=out)
    assert same_bits(backend.back(out), before)
    if dtype not in ("float8_e4m3fn",):
        lse = backend.to(np.full(LSE_SHAPE, 123).astype(np_type(dtype)))
        with refused("lse"):
            pagedecode.decode(**given, lse=lse)
        assert untouched(backend, lse)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_b25_lse_is_float32_only(writable_backend, probe, dtype):
    backend = writable_backend
    dtype = "float16" if backend.name.startswith("cupy") else dtype
    lse = backend.to(np.full(LSE_SHAPE, 123).astype(np_type(dtype)))
    with refused("lse"):
        pagedecode.decode(**convert(backend, probe.args), lse=lse)
    assert untouched(backend, lse)


@pytest.mark.parametrize(
    "shape",
    [
        (4, 4, 64),
        (6, 4, 64),
        (5, 4, 63),
        (5, 3, 64),
        (20, 64),
        (5, 4, 64, 1),
        (1, 5, 4, 64),
        (0, 4, 64),
    ],
)
def test_b25_out_of_other_shapes_is_refused(writable_backend, probe, shape):
    backend = writable_backend
    out = backend.to(np.full(shape, 123, np.float16))
    with refused("out"):
        pagedecode.decode(**convert(backend, probe.args), out=out)
    assert untouched(backend, out)


@pytest.mark.parametrize("shape", ((4, 4), (5, 3), (4, 5), (20,), (5, 4, 1), (1, 5, 4)))
def test_b25_lse_of_other_shapes_is_refused(writable_backend, probe, shape):
    backend = writable_backend
    lse = backend.to(np.full(shape, 123, np.float32))
    with refused("lse"):
        pagedecode.decode(**convert(backend, probe.args), lse=lse)
    assert untouched(backend, lse)


@pytest.mark.parametrize("out_type", ("float16", "bfloat16", "float32"))
def test_b25_out_takes_three_types(writable_backend, probe, out_type):
    if writable_backend.name.startswith("cupy") and out_type == "bfloat16":
        out_type = "float32"
    out, lse = call(writable_backend, probe.args, out_type=out_type)
    assert str(out.dtype) == out_type
    probe.check(out, lse) if out_type != "float32" else close(out, probe.want()[0], 2e-3)


def views(backend):
    """Strided outputs: (the whole, the view, whether it must be accepted)."""

    def make(shape, cut, must):
        whole = backend.to(np.full(shape, 123, np.float16))
        return whole, cut(whole), must

    yield make((10, 4, 64), lambda a: a[::2], True)
    yield make((5, 8, 64), lambda a: a[:, ::2], True)
    yield make((5, 4, 96), lambda a: a[..., 16:80], True)
    yield make((4, 5, 64), lambda a: a.swapaxes(0, 1), True)
    yield make((5, 4, 128), lambda a: a[..., ::2], False)
    yield make((64, 4, 5), lambda a: a.swapaxes(0, 2), False)


def test_b25_strided_out_is_written_or_refused(writable_backend, probe):
    backend = writable_backend
    given = convert(backend, probe.args)
    want = call(backend, probe.args)[0]
    for whole, view, must in views(backend):
        try:
            got = pagedecode.decode(**given, out=view)
        except (ValueError, TypeError) as error:
            assert not must and "out" in str(error)
            assert untouched(backend, whole)
        else:
            assert got is view
            assert same_bits(np.ascontiguousarray(backend.back(view)), want)
            everything = backend.back(whole)
            assert (everything == 123).sum() == everything.size - want.size


def test_b25_strided_lse_is_written_or_refused(writable_backend, probe):
    backend = writable_backend
    given = convert(backend, probe.args)
    want = call(backend, probe.args)[1]
    for shape, cut in (((10, 4), lambda a: a[::2]), ((5, 8), lambda a: a[:, ::2]),
                       ((4, 5), lambda a: a.swapaxes(0, 1))):  # fmt: skip
        whole = backend.to(np.full(shape, 123, np.float32))
        view = cut(whole)
        pagedecode.decode(**given, lse=view)
        assert same_bits(np.ascontiguousarray(backend.back(view)), want)
        everything = backend.back(whole)
        assert (everything == 123).sum() == everything.size - want.size


def test_b25_out_that_overlaps_is_refused():
    args = uniform([5, 7], [2, 3]).args
    before = {n: a.copy() for n, a in args.items() if isinstance(a, np.ndarray)}
    with refused("out"):
        pagedecode.decode(**args, out=args["q"])
    with refused("out"):
        pagedecode.decode(**args, out=np.broadcast_to(np.zeros((1, 4, 64), np.float16), SHAPE))
    one = np.zeros((1, 4, 64), np.float16)
    with refused("out"):  # writable, but each row lies on the others
        pagedecode.decode(**args, out=np.lib.stride_tricks.as_strided(one, SHAPE, (0, 128, 2)))
    flat = args["v_cache"].reshape(-1)
    with refused("out"):
        pagedecode.decode(**args, out=flat[64 : 64 + 5 * 256].reshape(SHAPE))
    memory = np.zeros(5 * 256 * 2, np.uint8)
    out, lse = (
        memory.view(np.float16).reshape(SHAPE),
        memory[:80].view(np.float32).reshape(LSE_SHAPE),
    )
    with refused("lse", "out"):
        pagedecode.decode(**args, out=out, lse=lse)
    for name, array in before.items():
        assert same_bits(args[name], array), name


def test_b25_lse_alone_and_out_alone(writable_backend, probe):
    backend = writable_backend
    given = convert(backend, probe.args)
    out = backend.to(np.full(SHAPE, 123, np.float16))
    lse = backend.to(np.full(LSE_SHAPE, 123, np.float32))
    assert pagedecode.decode(**given, out=out) is out
    got = pagedecode.decode(**given, lse=lse)
    assert isinstance(got, tuple) and got[1] is lse
    assert backend.is_mine(got[0])
    both = pagedecode.decode(**given, return_lse=True)
    probe.check(*(backend.back(x) for x in both))
    assert same_bits(backend.back(got[0]), backend.back(out))
    assert same_bits(backend.back(both[1]), backend.back(lse))


@pytest.mark.parametrize("name", ("out", "lse"))
def test_b25_merge_writes_where_it_was_told(writable_backend, name):
    backend = writable_backend
    states = [uniform([5, 7], [2, 3]), uniform([3, 0], [2, 3])]
    outs, lses = zip(*(call(backend, p.args) for p in states), strict=True)
    outs, lses = [backend.to(o) for o in outs], [backend.to(s) for s in lses]
    plain = pagedecode.merge_states(outs, lses)
    wide = {"out": np.full((5, 6, 80), 123, np.float16), "lse": np.full((10, 4), 123, np.float32)}
    whole = backend.to(wide[name])
    view = whole[:, 1:5, 8:72] if name == "out" else whole[::2]
    got = pagedecode.merge_states(outs, lses, **{name: view})
    i = 0 if name == "out" else 1
    assert got[i] is view
    assert same_bits(np.ascontiguousarray(backend.back(view)), backend.back(plain[i]))
    shape = (SHAPE, LSE_SHAPE)[i]
    smaller = (*shape[:-1], shape[-1] // 2)
    dtype = (np.float16, np.float32)[i]
    for bad in (np.full(shape, 123, np.float64), np.full(smaller, 123, dtype)):
        target = backend.to(bad)
        with refused(name):
            pagedecode.merge_states(outs, lses, **{name: target})
        assert untouched(backend, target)


# B26 ----------------------------------------------------------------------------------------------


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
        with refused(name, "q"):
            pagedecode.decode(**{**device, name: pinned[name]})
    with refused("q", "k_cache"):
        pagedecode.decode(**{**device, "q": pinned["q"]})
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
        with refused(name, "q"):
            pagedecode.decode(**{**given, name: probe.args[name]})
    with refused("k_cache", "v_cache", "q"):
        pagedecode.decode(**{**probe.args, "k_cache": given["k_cache"]})
