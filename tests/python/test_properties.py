# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Random problems over shapes, strides, masks and types against the reference, and properties that
need none.

Derandomized: the same examples on every run. HYPOTHESIS_PROFILE=explore draws others.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backends import NUMPY, Result, check_call, run
from cases import CACHE_DTYPES, Q_DTYPES, make_case
from reference import RopeSpec

LENGTHS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 6), st.sampled_from([1, 17, 33, 40])),
        st.one_of(st.integers(0, 20), st.sampled_from([15, 16, 17, 31, 32, 33, 64, 65, 129, 200])),
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def problems(draw, dtypes=True):
    """Options of make_case, every one of them drawn."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    options = dict(
        lens=draw(LENGTHS),
        heads=(draw(st.integers(1, 3)), draw(st.one_of(st.integers(1, 9), st.just(16)))),
        head_dim=8 * draw(st.one_of(st.integers(1, 16), st.sampled_from([8, 16, 24, 32]))),
        page=draw(st.one_of(st.integers(1, 20), st.sampled_from([16, 64, 100]))),
        q_dtype=pick(*Q_DTYPES),
        layout=pick("NHD", "HND"),
        storage=pick("plain", "plain", "padded", "transposed"),
        table=pick("table", "csr"),
        extra=draw(st.integers(0, 3)),
        index_dtype=pick(np.int32, np.int64),
        extra_rows=draw(st.integers(0, 2)),
        hint=draw(st.booleans()),
        mask=pick(None, None, "tree", "random", "tree-packed", "random-packed"),
        tree_positions=draw(st.booleans()),
        alibi=draw(st.booleans()),
        sinks=draw(st.booleans()),
        rope=pick(None, None, RopeSpec(), RopeSpec(500.0, 2.0, True)),
        causal=draw(st.booleans()),
        window_left=pick(-1, -1, 0, 1, 7, 40),
        softcap=pick(0.0, 0.0, 0.7, 20.0),
        softmax_scale=pick(None, 0.05, -0.2),
        lse_base=pick("e", "2"),
    )
    if dtypes:
        options.update(
            k_dtype=pick(None, *CACHE_DTYPES),
            v_dtype=pick(None, *CACHE_DTYPES),
            k_scale=pick(None, "float", "one", "heads"),
            v_scale=pick(None, "float", "one", "heads"),
        )
    how = pick({}, {}, dict(num_splits=draw(st.integers(1, 9))), dict(batch_invariant=True))
    return {**options, **how}


def usable(options):
    """A mask needs a query row; without one its width would be 0."""
    if options["mask"] and max(m for m, _ in options["lens"]) == 0:
        return {**options, "mask": None}
    return options


SEED = st.integers(0, 2**16)


@settings(max_examples=300)
@given(options=problems(), seed=SEED, out_dtype=st.sampled_from([None, *Q_DTYPES]))
def test_against_the_reference(options, seed, out_dtype):
    args = make_case(np.random.default_rng(seed), **usable(options))
    check_call(NUMPY, args, out_dtype=out_dtype)


@settings(max_examples=60)
@given(options=problems(), seed=SEED, data=st.data())
def test_order_of_the_batch(options, seed, data):
    """With batch_invariant, a permutation of the sequences permutes the rows' bits."""
    options = {**usable(options), "batch_invariant": True, "table": "table", "extra_rows": 0}
    options.pop("num_splits", None)
    args = make_case(np.random.default_rng(seed), **options)
    want = run(NUMPY, args)
    cu = args["cu_seqlens_q"]
    order = data.draw(st.permutations(range(len(cu) - 1)))
    rows = np.concatenate([np.arange(cu[b], cu[b + 1]) for b in order]).astype(int)
    changed = dict(
        args,
        block_table=args["block_table"][order],
        seq_lens=args["seq_lens"][order],
        cu_seqlens_q=np.cumsum([0, *(cu[b + 1] - cu[b] for b in order)]).astype(cu.dtype),
    )
    for name in ("q", "draft_mask", "positions"):
        if name in args:
            changed[name] = args[name][rows]
    assert run(NUMPY, changed).same_bits(want.rows(rows))


@settings(max_examples=60)
@given(options=problems(), seed=SEED, factor=st.sampled_from([0.25, 2.0, 8.0]))
def test_linear_in_the_values(options, seed, factor):
    """out scales with v_scale by a power of two, bit for bit; LSE does not move."""
    options = {**usable(options), "v_scale": None}
    args = make_case(np.random.default_rng(seed), **options)
    one = run(NUMPY, args, out_dtype=np.float32, v_scale=1.0)
    other = run(NUMPY, args, out_dtype=np.float32, v_scale=factor)
    cu = args["cu_seqlens_q"]
    rows = slice(0, int(cu[-1]))
    want = Result(one.out * np.float32(factor), one.lse).rows(rows)
    got = other.rows(rows)
    scale = np.abs(want.out).max(initial=1e-30)
    assert np.abs(got.out - want.out).max(initial=0) <= 1e-6 * scale
    assert got.lse.tobytes() == want.lse.tobytes()


@settings(max_examples=60)
@given(options=problems(dtypes=False), seed=SEED)
def test_convex_combination(options, seed):
    """Without sinks each output lies between the least and the largest visible value."""
    options = {**usable(options), "sinks": False}
    args = make_case(np.random.default_rng(seed), **options)
    ones = {**args, "v_cache": np.where(np.isfinite(args["v_cache"].astype(float)), 1, np.nan)}
    ones["v_cache"] = ones["v_cache"].astype(args["v_cache"].dtype)
    got = run(NUMPY, ones, out_dtype=np.float32)
    written = int(args["cu_seqlens_q"][-1])
    empty = np.isneginf(got.lse[:written])
    assert (got.out[:written][empty] == 0).all()
    assert np.abs(got.out[:written][~empty] - 1).max(initial=0) < 5e-3


@settings(max_examples=100)
@given(options=problems(), seed=SEED)
def test_verifying_is_single_steps(options, seed):
    """With batch_invariant, m rows at once have the bits of m calls of one row each."""
    options = {**options, "mask": None, "causal": True, "table": "table", "extra_rows": 0}
    options.update(batch_invariant=True, hint=False)
    options.pop("num_splits", None)
    args = make_case(np.random.default_rng(seed), **options)
    want = run(NUMPY, args)
    steps = [(b, n - m + i) for b, (m, n) in enumerate(options["lens"]) for i in range(m)]
    singles = dict(
        args,
        block_table=args["block_table"][[b for b, _ in steps]],
        seq_lens=np.array([max(j + 1, 0) for _, j in steps], args["seq_lens"].dtype),
        cu_seqlens_q=np.arange(len(steps) + 1, dtype=args["cu_seqlens_q"].dtype),
    )
    assert run(NUMPY, singles).same_bits(want)


@settings(max_examples=100)
@given(options=problems(), seed=SEED, data=st.data())
def test_rows_do_not_feel_their_neighbours(options, seed, data):
    """One row of q changed, to NaN or to other numbers: all others keep their bits."""
    args = make_case(np.random.default_rng(seed), **usable(options))
    total = int(args["cu_seqlens_q"][-1])
    if total < 2:
        return
    want = run(NUMPY, args)
    row = data.draw(st.integers(0, total - 1))
    q = args["q"].copy()
    q[row] = data.draw(st.sampled_from([np.nan, np.inf, 0.0, 30.0, -1000.0]))
    others = np.delete(np.arange(total), row)
    assert run(NUMPY, args, q=q).rows(others).same_bits(want.rows(others))
