# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What decode returns and where it writes: out=, lse=, their types and strides, and what is
refused."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from backends import BACKENDS, NUMPY, Result, bits_equal, convert, run
from cases import CASE, E4M3, F16, F32, Q_DTYPES, make_case

LENS = ((3, 37), (1, 16), (0, 5), (2, 0), (4, 2))


def base(**options):
    return make_case(np.random.default_rng(91), **{"lens": LENS, **options})


def test_forms_of_the_result(backend):
    import pagedecode

    args = base()
    given = convert(backend, args)
    out = pagedecode.decode(**given)
    assert backend.is_mine(out) and tuple(out.shape) == args["q"].shape
    both = pagedecode.decode(**given, return_lse=True)
    assert isinstance(both, tuple) and len(both) == 2 and all(backend.is_mine(x) for x in both)
    lse = backend.back(both[1])
    assert lse.dtype == F32 and lse.shape == args["q"].shape[:2]
    assert backend.back(out).dtype == F16
    assert bits_equal(backend.back(out), backend.back(both[0]))


def test_lse_of_four_dimensions_has_two(backend):
    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((3, 9), (3, 20)), ragged=False)
    out, lse = pagedecode.decode(**convert(backend, args), return_lse=True)
    assert tuple(out.shape) == (2, 3, 6, 64) and tuple(lse.shape) == (6, 6)


def test_results_are_new_and_writable():
    """Two calls do not share a result, and the caller may write into it."""
    import pagedecode

    for name in ("numpy", "torch-cpu"):
        given = convert(BACKENDS[name], base())
        one, two = pagedecode.decode(**given), pagedecode.decode(**given)
        keep = BACKENDS[name].back(two).copy()
        one[...] = 7
        assert bits_equal(BACKENDS[name].back(two), keep)


@pytest.mark.parametrize("out_dtype", Q_DTYPES, ids=str)
def test_types_of_out(writable_backend, out_dtype):
    """float32, float16 and bfloat16 through `out=`, rounded once from the same numbers."""
    if not writable_backend.holds(out_dtype):
        return
    args = base()
    exact = run(writable_backend, args, out_dtype=F32).out
    got = run(writable_backend, args, out_dtype=out_dtype).out
    assert got.dtype == out_dtype and bits_equal(got, exact.astype(out_dtype))


def test_given_lse_is_returned(writable_backend):
    import pagedecode

    backend, args = writable_backend, base()
    want = run(backend, args)
    given = convert(backend, args)
    lse = backend.to(np.full(args["q"].shape[:2], 123, F32))
    got = pagedecode.decode(**given, lse=lse)
    assert isinstance(got, tuple) and got[1] is lse
    assert Result(backend.back(got[0]), backend.back(lse)).same_bits(want)
    out = backend.to(np.full(args["q"].shape, 123, F16))
    assert pagedecode.decode(**given, out=out) is out
    assert bits_equal(backend.back(out), want.out)


def strided_outputs(shape, dtype):
    """(whole, view): `view` of `shape` within a larger array; last dimension contiguous."""
    t, h, d = shape
    wide = np.full((2 * t, h + 1, d + 16), 123, dtype)
    turned = np.full((h, t, d), 123, dtype)
    padded = np.full((t, h, 2 * d), 123, dtype)
    return {
        "wide": (wide, lambda w: w[::2, 1:, 8 : 8 + d]),
        "heads first": (turned, lambda w: w.swapaxes(0, 1)),
        "half rows": (padded, lambda w: w[..., :d]),
    }


@pytest.mark.parametrize("form", ["wide", "heads first", "half rows"])
def test_strided_outputs(writable_backend, form):
    import pagedecode

    backend, args = writable_backend, base()
    for dtype in (F16, F32):
        want = run(backend, args, out_dtype=dtype)
        whole, pick = strided_outputs(args["q"].shape, dtype)[form]
        given = backend.to(whole)
        out = pick(given)
        lse_whole = backend.to(np.full((args["q"].shape[1], 2 * len(args["q"])), 123, F32))
        lse = lse_whole[:, ::2].T
        got = pagedecode.decode(**convert(backend, args), out=out, lse=lse)
        backend.sync()
        assert got[0] is out and got[1] is lse
        assert Result(backend.back(out), backend.back(lse)).same_bits(want)
        rest = backend.back(given).copy()
        pick(rest)[...] = 123
        assert (rest == 123).all()
        assert (backend.back(lse_whole)[:, 1::2] == 123).all()


def test_strided_four_dimensional_output(writable_backend):
    import pagedecode

    backend = writable_backend
    args = make_case(np.random.default_rng(0), lens=((3, 9), (3, 20)), ragged=False)
    want = run(backend, args)
    whole = backend.to(np.full((2, 5, 8, 64), 123, F16))
    out = whole[:, 1:4, :6]
    pagedecode.decode(**convert(backend, args), out=out)
    backend.sync()
    assert bits_equal(backend.back(out), want.out)
    rest = backend.back(whole).copy()
    rest[:, 1:4, :6] = 123
    assert (rest == 123).all()


def test_negative_output_strides_are_right_or_refused(numpy_backend):
    import pagedecode

    args = base()
    want = run(numpy_backend, args)
    out = np.full(args["q"].shape, 123, F16)
    try:
        pagedecode.decode(**args, out=out[::-1, ::-1])
    except (TypeError, ValueError) as error:
        assert "out" in str(error) and (out == 123).all()
    else:
        assert bits_equal(out[::-1, ::-1], want.out)


SHAPE = base()["q"].shape
WRONG = {
    "out": [
        np.full((SHAPE[0] + 1, *SHAPE[1:]), 123, F16),
        np.full((SHAPE[0] - 1, *SHAPE[1:]), 123, F16),
        np.full((*SHAPE[:2], 32), 123, F16),
        np.full((SHAPE[0], SHAPE[1] * SHAPE[2]), 123, F16),
        np.full((1, *SHAPE), 123, F16),
        np.full(SHAPE, 123, np.float64),
        np.full(SHAPE, 123, np.int16),
        np.full(SHAPE, 120, np.int8),
        np.full((*SHAPE[:2], 128), 123, F16)[..., ::2],
        np.asfortranarray(np.full(SHAPE, 123, F16)),
        as_strided(np.full((1, *SHAPE[1:]), 123, F16), SHAPE, (0, 128, 2)),
        as_strided(np.full(SHAPE, 123, F16), SHAPE, (128, 128, 2)),
        as_strided(np.full((SHAPE[0] * 6 + 6, 64), 123, F16), SHAPE, (128, 256, 2)),
    ],
    "lse": [
        np.full((SHAPE[0] + 1, SHAPE[1]), 123, F32),
        np.full((SHAPE[0], SHAPE[1] + 1), 123, F32),
        np.full(SHAPE[0] * SHAPE[1], 123, F32),
        np.full((*SHAPE[:2], 1), 123, F32),
        np.full(SHAPE[:2], 123, F16),
        np.full(SHAPE[:2], 123, np.float64),
        as_strided(np.full((1, SHAPE[1]), 123, F32), SHAPE[:2], (0, 4)),
    ],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_outputs(name):
    """Never converted, never a hidden copy: refused with the memory untouched."""
    import pagedecode

    args = base()
    for wrong in WRONG[name]:
        before = wrong.copy()
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.decode(**args, **{name: wrong})
        assert bits_equal(wrong.copy(), before)
    for wrong in ([0.0], 3, "out", args["q"].tolist()):
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.decode(**args, **{name: wrong})


def test_read_only_outputs():
    import pagedecode

    args = base()
    for name, array in (("out", np.full(SHAPE, 123, F16)), ("lse", np.full(SHAPE[:2], 123, F32))):
        array.setflags(write=False)
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.decode(**args, **{name: array})
        assert (array == 123).all()


def test_outputs_of_jax_are_refused():
    import pagedecode

    jax = BACKENDS["jax-cpu"]
    given = convert(jax, base())
    for name, array in (("out", np.full(SHAPE, 123, F16)), ("lse", np.full(SHAPE[:2], 123, F32))):
        target = jax.to(array)
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.decode(**given, **{name: target})
        assert (jax.back(target) == 123).all()


@pytest.mark.parametrize("shift", [0, 64, 7 * 64])
def test_out_that_overlaps_an_input(shift):
    """out on q, on a cache (one element is enough): refused, the input unchanged."""
    import pagedecode

    args = base(q_dtype=F32)
    q = args["q"]
    memory = np.zeros(2 * q.size, F32)
    memory[: q.size] = q.ravel()
    shared = memory[: q.size].reshape(q.shape)
    out = memory[shift : shift + q.size].reshape(q.shape)
    before = memory.copy()
    with pytest.raises(ValueError, match="out"):
        pagedecode.decode(**dict(args, q=shared), out=out)
    assert bits_equal(memory, before)
    lse = memory[shift : shift + q.shape[0] * q.shape[1]].reshape(q.shape[:2])
    with pytest.raises(ValueError, match="lse"):
        pagedecode.decode(**dict(args, q=shared), lse=lse)
    assert bits_equal(memory, before)


def test_out_that_overlaps_other_inputs():
    import pagedecode

    args = base(q_dtype=F32, extra=40)
    size = args["q"].size
    for name in ("k_cache", "v_cache"):
        room = np.zeros(args[name].size + size, F32)
        room[: args[name].size] = args[name].ravel()
        cache = room[: args[name].size].reshape(args[name].shape)
        out = room[args[name].size - 64 :][:size].reshape(args["q"].shape)
        with pytest.raises(ValueError, match="out"):
            pagedecode.decode(**dict(args, **{name: cache}), out=out)
    rows = args["q"].shape[:2]
    lse = np.zeros(rows, F32)
    with pytest.raises(ValueError, match="lse"):
        pagedecode.decode(**dict(args, sinks=lse[0]), lse=lse)
    both = np.zeros(size + 64, F32)
    out = both[:size].reshape(args["q"].shape)
    lse = both[size - 4 :][: rows[0] * rows[1]].reshape(rows)
    with pytest.raises(ValueError, match=r"out|lse"):
        pagedecode.decode(**args, out=out, lse=lse)


def test_neighbours_that_do_not_overlap():
    """out right behind q in the same allocation, and woven between its rows, is fine."""
    import pagedecode

    args = base()
    want = run(NUMPY, args)
    t, h, d = args["q"].shape
    memory = np.zeros((2, t, h, d), F16)
    memory[0] = args["q"]
    pagedecode.decode(**dict(args, q=memory[0]), out=memory[1])
    assert bits_equal(memory[1], want.out) and bits_equal(memory[0], args["q"])
    one = make_case(np.random.default_rng(0), lens=((1, 9),))
    both = np.zeros((1, 2, 6, 64), F16)
    both[:, 0] = one["q"]
    pagedecode.decode(**dict(one, q=both[:, 0]), out=both[:, 1])
    assert bits_equal(both[:, 1], run(NUMPY, one).out)


def test_read_only_inputs(backend):
    """Inputs are only read: frozen, frombuffer and broadcast arrays give the same bits."""
    args = base()
    want = run(backend if backend.device == "cuda" else NUMPY, args)
    frozen = {}
    for name, value in args.items():
        if isinstance(value, np.ndarray):
            value = np.frombuffer(value.tobytes(), value.dtype).reshape(value.shape)
            assert not value.flags.writeable
        frozen[name] = value
    assert run(backend, frozen).same_bits(want)


def test_inputs_are_left_alone(writable_backend):
    args = CASE["everything-fp8"].build() if writable_backend.holds(E4M3) else base()
    before = {n: v.copy() for n, v in args.items() if isinstance(v, np.ndarray)}
    given = convert(writable_backend, args)
    import pagedecode

    pagedecode.decode(**given)
    writable_backend.sync()
    for name, value in before.items():
        assert bits_equal(writable_backend.back(given[name]).view(value.dtype), value), name


def test_arrays_of_several_libraries():
    """The result belongs to the library of q, whatever the others are."""
    import pagedecode

    args = base()
    want = run(NUMPY, args)
    for mine in ("numpy", "torch-cpu", "jax-cpu"):
        for other in ("numpy", "torch-cpu", "jax-cpu"):
            given = convert(BACKENDS[other], args)
            given["q"] = BACKENDS[mine].to(args["q"])
            out, lse = pagedecode.decode(**given, return_lse=True)
            assert BACKENDS[mine].is_mine(out) and BACKENDS[mine].is_mine(lse)
            got = Result(BACKENDS[mine].back(out), BACKENDS[mine].back(lse))
            assert got.same_bits(want)


def test_any_speaker_of_dlpack():
    """An object with nothing but __dlpack__ and __dlpack_device__ is an input."""
    import pagedecode

    class Speaker:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    args = base()
    want = run(NUMPY, args)
    given = {
        n: Speaker(v) if isinstance(v, np.ndarray) and n != "q" else v for n, v in args.items()
    }
    out, lse = pagedecode.decode(**given, return_lse=True)
    assert Result(out, lse).same_bits(want)


def test_subclasses_and_parameters():
    """A NumPy subclass and a torch Parameter without gradient are arrays like others."""
    import torch

    import pagedecode

    class Mine(np.ndarray):
        pass

    args = base()
    want = run(NUMPY, args)
    out, lse = pagedecode.decode(**dict(args, q=args["q"].view(Mine)), return_lse=True)
    assert Result(np.asarray(out), np.asarray(lse)).same_bits(want)
    given = convert(BACKENDS["torch-cpu"], args)
    given["q"] = torch.nn.Parameter(given["q"], requires_grad=False)
    out, lse = pagedecode.decode(**given, return_lse=True)
    assert Result(out.numpy(), lse.numpy()).same_bits(want)


def test_memory_does_not_grow():
    """Arrays are released: a thousand calls hold no more references than one."""
    import sys

    import pagedecode

    args = base()
    pagedecode.decode(**args)
    names = [n for n, v in args.items() if isinstance(v, np.ndarray)]
    before = [sys.getrefcount(args[n]) for n in names]
    for _ in range(1000):
        pagedecode.decode(**args, return_lse=True)
        with pytest.raises(ValueError):
            pagedecode.decode(**args, window_left=-2)
    assert [sys.getrefcount(args[n]) for n in names] == before
