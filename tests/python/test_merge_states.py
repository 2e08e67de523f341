# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""merge_states: against the reference, empty states, associativity, in place, strides, bases."""

import math

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from backends import BACKENDS, NUMPY, Guarded, Result, bits_equal, check_call, compare, run
from cases import BF16, E4M3, F16, F32, TOLERANCE, make_case
from reference import merge_reference

EMPTY = -np.inf


def states(rng, count, shape=(9, 3, 16), dtype=F32, empty=0.3, spread=3.0):
    """`count` random states; some are empty, with poison in their out."""
    outs = [rng.standard_normal(shape).astype(dtype) for _ in range(count)]
    lses = [(rng.standard_normal(shape[:2]) * spread).astype(F32) for _ in range(count)]
    for out, lse in zip(outs, lses, strict=True):
        gone = rng.random(shape[:2]) < empty
        lse[gone] = EMPTY
        out[gone] = np.nan
    return outs, lses


def merge(backend, outs, lses, **options):
    import pagedecode

    options = {k: backend.to(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    got = pagedecode.merge_states(
        [backend.to(x) for x in outs], [backend.to(x) for x in lses], **options
    )
    backend.sync()
    return Result(backend.back(got[0]), backend.back(got[1]))


def check(backend, outs, lses, **options):
    got = merge(backend, outs, lses, **options)
    assert got.out.dtype == outs[0].dtype and got.lse.dtype == F32
    want = merge_reference(outs, lses, **options)
    compare(got, want, 5 * TOLERANCE[outs[0].dtype], 1e-4)
    return got


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_against_the_reference(backend, count, dtype):
    if not backend.holds(dtype):
        return
    for seed, base in ((0, "e"), (1, "2")):
        outs, lses = states(np.random.default_rng(seed), count, dtype=dtype)
        check(backend, outs, lses, lse_base=base)


@pytest.mark.parametrize("shape", [(0, 3, 16), (1, 1, 8), (5, 1, 256), (2, 128, 24), (70, 2, 64)])
def test_shapes(backend, shape):
    outs, lses = states(np.random.default_rng(2), 3, shape)
    assert check(backend, outs, lses).out.shape == shape


def test_two_empty_states(backend):
    outs, lses = states(np.random.default_rng(0), 2, empty=1.0)
    got = merge(backend, outs, lses)
    assert (got.out == 0).all() and np.isneginf(got.lse).all()


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_an_empty_state_is_neutral(backend, dtype):
    """x and nothing is x, bit for bit, in either order and among several."""
    if not backend.holds(dtype):
        return
    rng = np.random.default_rng(3)
    x, s = rng.standard_normal((40, 3, 16)).astype(dtype), rng.standard_normal((40, 3)).astype(F32)
    s[:10] *= 20000
    x[5], x[6] = 0, -0.0
    nothing, none = np.full_like(x, np.nan), np.full_like(s, EMPTY)
    for base in ("e", "2"):
        for outs, lses in (
            ([x], [s]),
            ([x, nothing], [s, none]),
            ([nothing, x], [none, s]),
            ([nothing, x, nothing, nothing], [none, s, none, none]),
        ):
            got = merge(backend, outs, lses, lse_base=base)
            assert bits_equal(got.out, x) and bits_equal(got.lse, s)


def test_empty_states_between_do_not_matter(backend):
    outs, lses = states(np.random.default_rng(4), 2, empty=0)
    want = merge(backend, outs, lses)
    nothing, none = np.full_like(outs[0], np.inf), np.full_like(lses[0], EMPTY)
    got = merge(backend, [nothing, outs[0], nothing, outs[1]], [none, lses[0], none, lses[1]])
    assert got.same_bits(want)


def test_extreme_lses(backend):
    """Very negative, very positive and very different finite LSEs."""
    out = [np.ones((4, 1, 8), F32), np.full((4, 1, 8), 3, F32)]
    lse = [
        np.array([[-22626.0], [80000.0], [-1e30], [0]], F32),
        np.array([[-22626.0], [80000.0], [1e30], [-150]], F32),
    ]
    got = merge(backend, out, lse)
    want = [math.log(2) - 22626, math.log(2) + 80000, 1e30, 0]
    assert np.allclose(got.out[:, 0, 0], [2, 2, 3, 1])
    assert np.allclose(got.lse[:, 0], want, rtol=2e-7, atol=1e-6)


def test_nan_states_show(backend):
    outs, lses = states(np.random.default_rng(4), 2, empty=0)
    outs[0][2, 1, 3] = np.nan
    got = merge(backend, outs, lses)
    assert np.isnan(got.out[2, 1, 3]) and np.isnan(got.out).sum() == 1


def test_associative(backend):
    outs, lses = states(np.random.default_rng(5), 4)
    whole = merge(backend, outs, lses)
    left = merge(backend, outs[:2], lses[:2])
    right = merge(backend, outs[2:], lses[2:])
    tree = merge(backend, [left.out, right.out], [left.lse, right.lse])
    chain = Result(outs[0], lses[0])
    for out, lse in zip(outs[1:], lses[1:], strict=True):
        chain = merge(backend, [chain.out, out], [chain.lse, lse])
    for other in (tree, chain):
        compare(other, (whole.out.astype(float), whole.lse.astype(float)), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
def test_prefix_and_suffix_are_the_whole(device_backend, dtype):
    """Two decode calls over parts of the keys, merged, are the call over all of them."""
    if device_backend.device == "cuda" and dtype == F32:
        return
    args = make_case(
        np.random.default_rng(6), lens=((1, 96), (3, 37), (2, 16)), page=16, q_dtype=dtype
    )
    whole = check_call(device_backend, args)
    head = dict(args, causal=False, seq_lens=np.array([48, 32, 0], np.int32))
    tail_table = np.full_like(args["block_table"], -1)
    for b, pages in enumerate((3, 2, 0)):
        width = args["block_table"].shape[1] - pages
        tail_table[b, :width] = args["block_table"][b, pages:]
    tail = dict(args, block_table=tail_table, seq_lens=np.array([48, 5, 16], np.int32))
    for base in ("e", "2"):
        parts = [run(device_backend, x, lse_base=base) for x in (head, tail)]
        got = merge(device_backend, [p.out for p in parts], [p.lse for p in parts], lse_base=base)
        assert np.abs(got.out.astype(float) - whole.out.astype(float)).max() < 8 * TOLERANCE[dtype]
        unit = np.log(2) if base == "2" else 1
        assert np.abs(got.lse * unit - whole.lse).max() < 2e-3


@pytest.mark.parametrize("dtype", [F16, F32], ids=str)
def test_in_place_and_given_outputs(writable_backend, dtype):
    import pagedecode

    backend = writable_backend
    outs, lses = states(np.random.default_rng(7), 3, dtype=dtype)
    want = merge(backend, outs, lses)
    for target in range(3):
        o, s = [backend.to(x.copy()) for x in outs], [backend.to(x.copy()) for x in lses]
        got = pagedecode.merge_states(o, s, out=o[target], lse=s[target])
        assert got[0] is o[target] and got[1] is s[target]
        assert Result(backend.back(o[target]), backend.back(s[target])).same_bits(want)
    out = Guarded.make(backend, outs[0].shape, dtype)
    lse = Guarded.make(backend, lses[0].shape, F32)
    given = [backend.to(x) for x in outs], [backend.to(x) for x in lses]
    got = pagedecode.merge_states(*given, out=out.array, lse=lse.array)
    assert got[0] is out.array and got[1] is lse.array
    assert Result(out.value(), lse.value()).same_bits(want)
    out.check_bands()
    lse.check_bands()
    only = pagedecode.merge_states(*given, out=out.array)
    assert only[0] is out.array and bits_equal(backend.back(only[1]), want.lse)


def test_strides(writable_backend):
    """Any strides of outs, lses and of what is given to be written, different ones in one call."""
    import pagedecode

    backend = writable_backend
    outs, lses = states(np.random.default_rng(8), 3)
    want = merge(backend, outs, lses)
    wide = np.full((18, 4, 32), 7, F32)
    wide[::2, 1:, 16:] = outs[0]
    heads_first = np.ascontiguousarray(outs[1].transpose(1, 0, 2)).transpose(1, 0, 2)
    tall = np.full((9, 6), 7, F32)
    tall[:, ::2] = lses[1]
    forms = [wide[::2, 1:, 16:], heads_first, outs[2]]
    lse_forms = [np.asfortranarray(lses[0]), tall[:, ::2], lses[2]]
    assert merge(backend, forms, lse_forms).same_bits(want)
    big, lse = backend.to(np.full((9, 5, 24), 123, F32)), backend.to(np.full((3, 9), 123, F32))
    out = big[:, 1:4, :16]
    back = lse.T
    pagedecode.merge_states(
        [backend.to(x) for x in forms], [backend.to(x) for x in lse_forms], out=out, lse=back
    )
    backend.sync()
    assert Result(backend.back(out), backend.back(back)).same_bits(want)
    rest = backend.back(big).copy()
    rest[:, 1:4, :16] = 123
    assert (rest == 123).all()


def test_negative_strides():
    outs, lses = states(np.random.default_rng(8), 2)
    want = merge(NUMPY, outs, lses)
    forms = [x[::-1, ::-1].copy()[::-1, ::-1] for x in outs]
    lse_forms = [x[::-1, ::-1].copy()[::-1, ::-1] for x in lses]
    assert merge(NUMPY, forms, lse_forms).same_bits(want)
    same = np.broadcast_to(outs[0][:1], outs[0].shape)
    assert merge(NUMPY, [same, outs[1]], lses).same_bits(merge(NUMPY, [same.copy(), outs[1]], lses))


def test_a_given_base(backend):
    """The same states in base 2 give the base-2 logarithm of the same sum."""
    outs, lses = states(np.random.default_rng(9), 3)
    nat = merge(backend, outs, lses)
    two = merge(backend, outs, [x / np.float32(np.log(2)) for x in lses], lse_base="2")
    assert np.abs(nat.out - two.out).max() < 1e-5
    live = np.isfinite(nat.lse)
    assert np.abs(nat.lse[live] - two.lse[live] * np.log(2)).max() < 1e-5
    ones, zeros = np.ones((1, 1, 8), F32), np.zeros((1, 1, 8), F32)
    got = merge(backend, [ones, zeros], [np.log(np.array([[n]], F32)) for n in (96, 32)])
    assert np.allclose(got.out, 0.75) and np.allclose(got.lse, np.log(128))


@pytest.mark.parametrize("name", ["numpy", "torch-cpu", "jax-cpu"])
def test_read_only_inputs_and_library_of_the_result(name):
    import pagedecode

    backend = BACKENDS[name]
    outs, lses = states(np.random.default_rng(9), 2)
    for x in (*outs, *lses):
        x.setflags(write=name != "numpy")
    got = pagedecode.merge_states(tuple(map(backend.to, outs)), tuple(map(backend.to, lses)))
    assert isinstance(got, tuple) and all(backend.is_mine(x) for x in got)


def test_errors(backend):
    import pagedecode

    outs, lses = states(np.random.default_rng(9), 2, empty=0)
    wrong = {
        "outs": [
            ([], []),
            ([outs[0][0], outs[1][0]], lses),
            ([outs[0], outs[1][:5]], lses),
            ([outs[0], outs[1][..., :8]], lses),
            ([x.astype(np.int32) for x in outs], lses),
            ([x.astype(np.int8) for x in outs], lses),
            ([outs[0].astype(E4M3), outs[1].astype(E4M3)], lses),
        ],
        "lse": [
            (outs, lses[:1]),
            (outs, [lses[0], lses[1][:5]]),
            (outs, [lses[0], lses[1][:, :1]]),
            (outs, [x.astype(np.float64) for x in lses]),
            (outs, [x.astype(F16) for x in lses]),
            (outs, [lses[0], lses[1].ravel()]),
        ],
    }
    for name, calls in wrong.items():
        for o, s in calls:
            with pytest.raises((TypeError, ValueError), match=name):
                merge(backend, o, s)
    with pytest.raises((TypeError, ValueError), match="lse_base"):
        merge(backend, outs, lses, lse_base="10")
    if not backend.writable:
        return
    given = [backend.to(x) for x in outs], [backend.to(x) for x in lses]
    for name, bad in {
        "out": [np.zeros((9, 3, 8), F32), np.zeros((9, 3, 16), np.float64), np.zeros(5, F32)],
        "lse": [np.zeros((9, 2), F32), np.zeros((9, 3), np.float64), np.zeros(5, F32)],
    }.items():
        for x in bad:
            with pytest.raises((TypeError, ValueError), match=name):
                pagedecode.merge_states(*given, **{name: backend.to(x)})


def test_outputs_that_cannot_be_written():
    import pagedecode

    outs, lses = states(np.random.default_rng(9), 2)
    fixed = np.full((9, 3, 16), 123, F32)
    fixed.setflags(write=False)
    with pytest.raises((TypeError, ValueError), match="out"):
        pagedecode.merge_states(outs, lses, out=fixed)
    same = as_strided(np.full((1, 3, 16), 123, F32), (9, 3, 16), (0, 64, 4))
    with pytest.raises(ValueError, match="out"):
        pagedecode.merge_states(outs, lses, out=same)
    assert (fixed == 123).all() and (same == 123).all()
