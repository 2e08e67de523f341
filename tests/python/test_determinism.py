# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Rule 10: bits that repeat, rows that do not feel their neighbours, and `batch_invariant`."""

import numpy as np
import pytest

from backends import Result, run
from cases import BF16, CASE, E4M3, F16, F32, I8, Case, make_case
from reference import Pages

VARIANTS = {
    "plain": {},
    "f32": dict(q_dtype=F32),
    "bf16-window": dict(q_dtype=BF16, window_left=100),
    "fp8": dict(k_dtype=E4M3, k_scale="heads", v_scale="heads"),
    "int8-softcap": dict(q_dtype=BF16, k_dtype=I8, k_scale="float", softcap=2.0),
    "sinks-alibi": dict(sinks=True, alibi=True),
    "rope": dict(rope=True),
    "hnd": dict(layout="HND"),
    "group-8": dict(heads=(2, 8)),
    "dim-128": dict(head_dim=128, q_dtype=BF16),
}


@pytest.mark.parametrize(
    "name", ["long", "splits-7", "everything-fp8", "mask-wide", "invariant-long"]
)
def test_the_same_call_gives_the_same_bits(device_backend, name):
    case = CASE[name]
    args = case.build()
    want = run(device_backend, args)
    for _ in range(10):
        assert run(device_backend, args).same_bits(want)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("mode", [{}, dict(num_splits=3), dict(batch_invariant=True)], ids=str)
def test_rows_do_not_feel_their_neighbours(device_backend, name, mode):
    """Other contents of the other rows of q, NaN included, leave a row's bits alone."""
    options = dict(dict(lens=((6, 300), (3, 20)), heads=(2, 3)), **VARIANTS[name])
    if not device_backend.takes(Case("", options)):
        return
    args = make_case(np.random.default_rng(51), **options)
    want = run(device_backend, args, **mode)
    for seed, others in enumerate(([0, 1, 2, 4, 5], [1, 2, 3, 4, 5, 6, 7, 8], [0, 6])):
        q = args["q"].copy()
        noise = np.random.default_rng(seed).standard_normal(q[others].shape) * 50
        q[others] = np.nan if seed == 1 else noise.astype(q.dtype)
        keep = np.setdiff1d(np.arange(9), others)
        got = run(device_backend, args, q=q, **mode)
        assert got.rows(keep).same_bits(want.rows(keep))


def pick(args, order, **changes):
    """The batch with sequences `order` only, in that order."""
    cu = args["cu_seqlens_q"]
    rows = np.concatenate([np.arange(cu[b], cu[b + 1]) for b in order])
    return dict(
        args,
        q=args["q"][rows],
        block_table=args["block_table"][order],
        seq_lens=args["seq_lens"][order],
        cu_seqlens_q=np.cumsum([0, *(cu[b + 1] - cu[b] for b in order)]).astype(np.int32),
        batch_invariant=True,
        **changes,
    ), rows


LENS = ((4, 1500), (1, 40), (3, 700), (1, 1), (8, 90), (2, 0))


@pytest.mark.parametrize("name", VARIANTS)
def test_batch(device_backend, name):
    """Alone, first, last, permuted, repeated: a sequence's bits are its own."""
    options = dict(dict(lens=LENS, heads=(2, 3), head_dim=64), **VARIANTS[name])
    if not device_backend.takes(Case("", options)):
        return
    args = make_case(np.random.default_rng(52), **options)
    want = run(device_backend, args, batch_invariant=True)
    orders = ([0], [2], [4], [5, 4, 3, 2, 1, 0], [2, 0], [0] * 20 + [3], [3] * 30 + [0, 2])
    for order in orders:
        given, rows = pick(args, order)
        assert run(device_backend, given).same_bits(want.rows(rows)), order


@pytest.mark.parametrize("name", VARIANTS)
def test_verifying_is_single_steps(device_backend, name):
    """m rows at once have the bits of m calls of one row, each of its own length."""
    options = dict(dict(lens=((6, 700), (4, 5), (5, 130)), heads=(2, 3)), **VARIANTS[name])
    if not device_backend.takes(Case("", options)):
        return
    args = make_case(np.random.default_rng(53), poisoned=False, **options)
    want = run(device_backend, args, batch_invariant=True)
    lens = [(b, n - m + i) for b, (m, n) in enumerate(options["lens"]) for i in range(m)]
    given = dict(
        args,
        block_table=args["block_table"][[b for b, _ in lens]],
        seq_lens=np.array([max(j + 1, 0) for _, j in lens], np.int32),
        cu_seqlens_q=np.arange(len(lens) + 1, dtype=np.int32),
        batch_invariant=True,
    )
    assert run(device_backend, given).same_bits(want)
    for row in (0, 5, 7, 12):
        b, j = lens[row]
        single = dict(
            args,
            q=args["q"][row : row + 1],
            block_table=args["block_table"][b : b + 1],
            seq_lens=np.array([max(j + 1, 0)], np.int32),
            cu_seqlens_q=np.array([0, 1], np.int32),
            batch_invariant=True,
        )
        assert run(device_backend, single).same_bits(want.rows(slice(row, row + 1)))


def test_many_rows_are_single_steps(device_backend):
    """The same across row tiles: 70 rows x group 4 against other m of the same rows."""
    args = make_case(np.random.default_rng(54), lens=((70, 300),), heads=(2, 4), poisoned=False)
    want = run(device_backend, args, batch_invariant=True)
    for m in (1, 2, 7, 33):
        given = dict(
            args,
            q=args["q"][:m],
            seq_lens=np.array([300 - 70 + m], np.int32),
            cu_seqlens_q=np.array([0, m], np.int32),
            batch_invariant=True,
        )
        assert run(device_backend, given).same_bits(want.rows(slice(0, m))), m


def test_page_ids_table_width_and_hint(device_backend):
    args = make_case(np.random.default_rng(55), lens=LENS, heads=(2, 3), q_dtype=BF16)
    want = run(device_backend, args, batch_invariant=True)
    order = np.random.default_rng(1).permutation(len(args["k_cache"]))
    back = np.argsort(order)
    live = (args["block_table"] >= 0) & (args["block_table"] < len(order))
    moved = np.where(live, back[np.where(live, args["block_table"], 0)], -1).astype(np.int32)
    changed = dict(k_cache=args["k_cache"][order], v_cache=args["v_cache"][order])
    got = run(device_backend, args, **changed, block_table=moved, batch_invariant=True)
    assert got.same_bits(want)
    wide = np.full((len(moved), 500), -1, np.int32)
    wide[:, : moved.shape[1]] = args["block_table"]
    assert run(device_backend, args, block_table=wide, batch_invariant=True).same_bits(want)
    for hint in (8, 9, 100, 4096):
        got = run(device_backend, args, max_seqlen_q=hint, batch_invariant=True)
        assert got.same_bits(want), hint
    width = args["block_table"].shape[1]
    rows = np.arange(0, len(moved) * width + 1, width, dtype=np.int32)
    form = Pages(rows, args["block_table"].ravel())
    assert run(device_backend, args, block_table=form, batch_invariant=True).same_bits(want)


def test_four_dimensional_call(device_backend):
    args = make_case(np.random.default_rng(56), lens=((4, 500), (4, 30)), poisoned=False)
    want = run(device_backend, args, batch_invariant=True)
    four = dict(args, q=args["q"].reshape(2, 4, 6, 64), batch_invariant=True)
    del four["cu_seqlens_q"]
    got = run(device_backend, four)
    assert Result(got.out.reshape(want.out.shape), got.lse).same_bits(want)


@pytest.mark.parametrize("mode", [{}, dict(num_splits=5), dict(batch_invariant=True)], ids=str)
def test_threads(numpy_backend, mode):
    """The same bits again with each number of threads; across numbers where it is promised."""
    import pagedecode

    args = make_case(np.random.default_rng(57), lens=LENS, heads=(3, 2), q_dtype=F32)
    found = []
    try:
        for count in (1, 2, 3, 7):
            pagedecode.set_num_threads(count)
            first = run(numpy_backend, args, **mode)
            assert all(run(numpy_backend, args, **mode).same_bits(first) for _ in range(3))
            found.append(first)
    finally:
        pagedecode.set_num_threads(2)
    if "batch_invariant" in mode:
        assert all(result.same_bits(found[0]) for result in found)


def test_a_split_count_is_refused_beside_it(backend):
    args = make_case(np.random.default_rng(58), lens=((2, 20),))
    with pytest.raises(ValueError, match=r"num_splits|batch_invariant"):
        run(backend, args, num_splits=2, batch_invariant=True)
    assert run(backend, args, num_splits=None, batch_invariant=True).out.dtype == F16
