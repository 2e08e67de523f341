# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of outputs: written where they were given, or refused (B25)."""

import numpy as np
import pytest

import pagedecode
from backends import BACKENDS, convert
from probes import call, close, np_type, refused, same_bits, uniform

SHAPE, LSE_SHAPE = (5, 4, 64), (5, 4)


@pytest.fixture
def probe():
    return uniform([5, 7], [2, 3])


def untouched(backend, array) -> bool:
    return bool((np.asarray(backend.back(array)) == 123).all())


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


@pytest.mark.gpu
def test_b25_outputs_on_the_other_device_are_refused(probe):
    cpu, cuda = BACKENDS["torch-cpu"], BACKENDS["torch-cuda"]
    for here, there in ((cpu, cuda), (cuda, cpu)):
        given = convert(here, probe.args)
        out, lse = np.full(SHAPE, 123, np.float16), np.full(LSE_SHAPE, 123, np.float32)
        for name, array in (("out", there.to(out)), ("lse", there.to(lse))):
            with refused(name):
                pagedecode.decode(**given, **{name: array})
            assert untouched(there, array)


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
