# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of merge_states: empty states, bases, in place, cascades (B06, B14, B19)."""

import math

import numpy as np
import pytest

import pagedecode
from probes import call, close, normal, np_type, offsets, q_types, refused, same_bits, uniform
from reference import decode_reference

SHAPE = (5, 4, 64)


def state(seed, dtype="float16", lse=None):
    rng = np.random.default_rng(seed)
    out = rng.standard_normal(SHAPE, np.float32).astype(np_type(dtype))
    lses = rng.uniform(-4, 4, SHAPE[:2]) if lse is None else np.full(SHAPE[:2], lse)
    return out, lses.astype(np.float32)


def empty(fill, dtype="float16"):
    """A state of no keys, its out full of what must not be read."""
    return np.full(SHAPE, fill, np_type(dtype)), np.full(SHAPE[:2], -np.inf, np.float32)


def merge(backend, *states, **options):
    outs, lses = [backend.to(o) for o, _ in states], [backend.to(s) for _, s in states]
    out, lse = pagedecode.merge_states(outs, lses, **options)
    return np.asarray(backend.back(out)), np.asarray(backend.back(lse))


@pytest.mark.parametrize("base", ("e", "2"))
@pytest.mark.parametrize("fill", (0.0, np.nan, np.inf))
def test_b06_empty_states(backend, fill, base):
    for dtype in q_types(backend):
        nothing = empty(fill, dtype)
        zero = (np.zeros(SHAPE, np_type(dtype)), nothing[1])
        for count in (1, 2, 3, 5):
            got = merge(backend, *[nothing] * count, lse_base=base)
            assert same_bits(got[1], zero[1]) and (got[0].astype(np.float32) == 0).all()
        for lse in (None, -22626.0, 88.0, 0.0, -1e30):
            one = state(1, dtype, lse)
            assert same_bits(merge(backend, one, nothing, lse_base=base), one)
            assert same_bits(merge(backend, nothing, one, lse_base=base), one)
            assert same_bits(merge(backend, nothing, one, nothing, lse_base=base), one)
            assert same_bits(merge(backend, one, lse_base=base), one)
        s1, s2 = state(1, dtype), state(2, dtype)
        both = merge(backend, s1, s2, lse_base=base)
        assert same_bits(merge(backend, nothing, s1, nothing, s2, lse_base=base), both)


def test_b06_rows_and_heads_are_empty_one_by_one(backend):
    s1, s2 = state(1), state(2)
    s1[1][1:3, 2] = -np.inf
    s1[0][1:3, 2] = np.nan
    s2[1][2:4, 2] = -np.inf
    s2[0][2:4, 2] = np.inf
    out, lse = merge(backend, s1, s2)
    assert same_bits(out[1, 2], s2[0][1, 2]) and lse[1, 2] == s2[1][1, 2]
    assert same_bits(out[3, 2], s1[0][3, 2]) and lse[3, 2] == s1[1][3, 2]
    assert (out[2, 2] == 0).all() and np.isneginf(lse[2, 2])
    assert np.isfinite(out.astype(np.float32)).all() and not np.isnan(lse).any()


@pytest.mark.parametrize("place", (0, 1))
def test_b06_in_place(writable_backend, place):
    backend = writable_backend
    for first, second in (
        (state(1), empty(np.nan)),
        (empty(np.nan), state(1)),
        (state(1), state(2)),
    ):
        want = merge(backend, first, second)
        outs, lses = ([backend.to(s[i].copy()) for s in (first, second)] for i in (0, 1))
        got = pagedecode.merge_states(outs, lses, out=outs[place], lse=lses[place])
        assert got[0] is outs[place] and got[1] is lses[place]
        assert same_bits((backend.back(outs[place]), backend.back(lses[place])), want)


def test_b06_very_unequal_and_very_negative_states(backend):
    low, high = state(1, lse=-22626.0), state(2, lse=-22625.0)
    out, lse = merge(backend, low, high)
    weight = 1 / (1 + math.e)
    want = weight * low[0].astype(np.float64) + (1 - weight) * high[0].astype(np.float64)
    close(out, want, 2e-3, 4.0)
    close(lse, np.full(SHAPE[:2], -22625 + math.log1p(1 / math.e)), 4e-3)
    far = state(3, lse=500.0)
    assert same_bits(merge(backend, low, far), far)


def test_b06_merge_of_states_that_decode_made_of_nothing(backend):
    args = uniform([0, 3, 0], [2, 2, 2]).args
    none = {**args, "seq_lens": np.zeros(3, np.int32)}
    some, nothing = call(backend, args), call(backend, none)
    assert same_bits(merge(backend, some, nothing), some)
    assert same_bits(merge(backend, nothing, some), some)


def test_b06_strided_states_of_any_number(backend):
    rng = np.random.default_rng(6)
    outs = rng.standard_normal((7, 9, 6, 80), np.float32).astype(np.float16)
    lses = rng.standard_normal((7, 9, 6)).astype(np.float32)
    outs_given, lses_given = backend.to(outs), backend.to(lses)
    views = [outs_given[i, 1:6, :4, :64] for i in range(7)]
    rows = [lses_given[i, 1:6, :4] for i in range(7)]
    got = pagedecode.merge_states(views, rows)
    copies = [(outs[i, 1:6, :4, :64].copy(), lses[i, 1:6, :4].copy()) for i in range(7)]
    assert same_bits(tuple(np.asarray(backend.back(x)) for x in got), merge(backend, *copies))


def test_b06_associative_within_rounding(backend):
    a, b, c = state(1), state(2), state(3)
    left, right = merge(backend, merge(backend, a, b), c), merge(backend, a, merge(backend, b, c))
    close(left[0], right[0].astype(np.float64), 4e-3, 4.0)
    close(left[1], right[1], 1e-4)
    close(left[1], merge(backend, a, b, c)[1], 1e-4)


def test_b06_states_of_different_types_are_right_or_refused(backend):
    a, b = state(1), state(2)
    outs = [backend.to(a[0]), backend.to(b[0].astype(np.float32))]
    lses = [backend.to(a[1]), backend.to(b[1])]
    try:
        out, lse = pagedecode.merge_states(outs, lses)
    except (ValueError, TypeError) as error:
        assert "outs" in str(error)
    else:
        want = merge(backend, a, b)
        close(np.asarray(backend.back(out)), want[0].astype(np.float64), 2e-3, 4.0)
        close(np.asarray(backend.back(lse)), want[1], 1e-5)


def test_b06_wrong_arguments_are_refused(backend):
    a, b = state(1), state(2)
    to = backend.to
    outs, lses = [to(a[0]), to(b[0])], [to(a[1]), to(b[1])]
    bad = [
        (([], []), ("outs", "lses")),
        ((outs, lses[:1]), ("outs", "lses")),
        ((outs, [lses[0], to(b[1][:-1])]), ("lses",)),
        ((outs, [lses[0], to(b[1].astype(np.float16))]), ("lses",)),
        (([outs[0], to(b[0][:, :-1])], lses), ("outs",)),
        (([outs[0], to(b[0][0])], lses), ("outs",)),
    ]
    for arguments, names in bad:
        with refused(*names):
            pagedecode.merge_states(*arguments)
    with refused("lse_base"):
        pagedecode.merge_states(outs, lses, lse_base="10")


@pytest.mark.parametrize("base", ("e", "2"))
def test_b14_merge_takes_the_base_that_decode_gave(backend, base):
    ones = uniform([96], [1], page=16, values=lambda b: 1.0)
    zeros = uniform([32], [1], page=16, values=lambda b: 0.0)
    states = [call(backend, p.args, lse_base=base) for p in (ones, zeros)]
    out, lse = merge(backend, *states, lse_base=base)
    close(out, np.full(out.shape, 0.75), 1e-3)  # mixed bases: 0.8299
    close(lse, np.full(lse.shape, math.log(128) / (1 if base == "e" else math.log(2))), 1e-3)


@pytest.mark.parametrize("base", ("10", "E", 2, None, ""))
def test_b14_other_bases_are_refused(backend, base):
    with refused("lse_base"):
        call(backend, uniform([4], [1]).args, lse_base=base)


@pytest.mark.parametrize("m", (1, 4))
def test_b14_prefix_and_suffix_make_the_whole(backend, m):
    """A cascade: the prefix's keys seen by all rows, the suffix with its causal block."""
    lengths = [70, 37]
    whole = normal(lengths, [m, m], page=8)
    want = call(backend, whole)
    cut = 32  # both sequences: 4 pages of prefix
    prefix = {**whole, "seq_lens": np.array([cut, cut], np.int32)}
    suffix = {**whole, "seq_lens": np.array(lengths, np.int32) - cut}
    suffix["block_table"] = np.ascontiguousarray(whole["block_table"][:, cut // 8 :])
    for base in ("e", "2"):
        states = [call(backend, prefix, causal=False, lse_base=base)]
        states.append(call(backend, suffix, lse_base=base))
        out, lse = merge(backend, *states, lse_base=base)
        close(out, want[0].astype(np.float64), 4e-3, 4.0)
        close(lse * (1 if base == "e" else math.log(2)), want[1], 2e-3)
    exact = decode_reference(**whole)
    close(out, exact[0], 4e-3, 4.0)
    assert offsets([m, m])[-1] == len(out)


def test_b19_sinks_enter_one_part_of_a_cascade(backend):
    whole = normal([70, 37], [4, 4], page=8)
    sinks = np.array([0.5, -1.0, 2.0, 3.0], np.float32)
    want = call(backend, whole, sinks=sinks)
    prefix = {**whole, "seq_lens": np.array([32, 32], np.int32)}
    suffix = {**whole, "seq_lens": np.array([38, 5], np.int32)}
    suffix["block_table"] = np.ascontiguousarray(whole["block_table"][:, 4:])
    one = call(backend, prefix, causal=False), call(backend, suffix, sinks=sinks)
    other = call(backend, prefix, causal=False, sinks=sinks), call(backend, suffix)
    for states in (one, other):
        out, lse = merge(backend, *states)
        close(out, want[0].astype(np.float64), 4e-3, 4.0)
        close(lse, want[1], 2e-3)
