# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Index arrays: int32 and int64, any stride, tables and page lists; and what is read of them."""

import itertools

import numpy as np
import pytest

from backends import BACKENDS, check_call, run
from cases import F16, make_case
from reference import Pages

INDEX = ("block_table", "seq_lens", "cu_seqlens_q")


def base(**options):
    return make_case(np.random.default_rng(31), heads=(2, 2), head_dim=32, page=8, **options)


def test_each_array_its_own_type(backend):
    """int32 and int64 in every combination, the same bits."""
    args = base()
    args["positions"] = np.random.default_rng(0).integers(0, 70, len(args["q"])).astype(np.int32)
    want = check_call(backend, args, window_left=9)
    names = (*INDEX, "positions")
    for types in itertools.product((np.int32, np.int64), repeat=4):
        changed = {n: args[n].astype(t) for n, t in zip(names, types, strict=True)}
        assert run(backend, args, window_left=9, **changed).same_bits(want)


def spread(array, step):
    """`array` as a view of every `step`-th item of each axis; the items between are huge."""
    whole = np.full([n * step for n in array.shape], np.iinfo(array.dtype).max, array.dtype)
    found = whole[(slice(None, None, step),) * array.ndim]
    found[...] = array
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_strided(writable_backend, dtype):
    args = base(index_dtype=dtype)
    want = check_call(writable_backend, args)
    for name in INDEX:
        assert run(writable_backend, args, **{name: spread(args[name], 2)}).same_bits(want)
    every = {name: spread(args[name], 3) for name in INDEX}
    assert run(writable_backend, args, **every).same_bits(want)
    fortran = np.asfortranarray(args["block_table"])
    assert run(writable_backend, args, block_table=fortran).same_bits(want)
    wide = np.full((len(fortran), 40), -1, dtype)
    wide[:, : fortran.shape[1]] = fortran
    narrow = wide[:, : fortran.shape[1]]
    assert run(writable_backend, args, block_table=narrow).same_bits(want)
    assert run(writable_backend, args, block_table=wide).same_bits(want)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_negative_and_zero_strides(numpy_backend, dtype):
    args = base(index_dtype=dtype)
    want = check_call(numpy_backend, args)
    for name in INDEX:
        flip = (slice(None, None, -1),) * args[name].ndim
        assert run(numpy_backend, args, **{name: args[name][flip].copy()[flip]}).same_bits(want)
    same = base(index_dtype=dtype, lens=((2, 20),) * 4)
    for library in ("numpy", "torch-cpu"):
        changed = dict(
            block_table=np.broadcast_to(same["block_table"][:1], same["block_table"].shape),
            seq_lens=np.broadcast_to(same["seq_lens"][:1], 4),
        )
        check_call(BACKENDS[library], same, **changed)


def test_every_id_of_a_pool_of_more_than_2_31_pages():
    """The largest int32 too; -1 is no id, whatever it is as an unsigned number."""
    import pagedecode

    page = np.ones(8, np.float32)
    shape = (2**32 + 5, 1, 1, 8)  # one page, again and again
    pool = np.lib.stride_tricks.as_strided(page, shape, (0, 32, 32, 4), writeable=False)

    def decode(page_id, dtype):
        table, lens = np.array([[page_id]], dtype), np.ones(1, np.int32)
        return pagedecode.decode(page.reshape(1, 1, 1, 8), pool, pool, table, lens)

    for page_id, dtype in ((2**31 - 1, np.int32), (2**31 - 1, np.int64), (2**32 + 4, np.int64)):
        assert (decode(page_id, dtype) == 1).all()
    for page_id, dtype in ((-1, np.int32), (-(2**31), np.int32), (2**32 + 5, np.int64)):
        with pytest.raises(ValueError, match=f"block_table: got page id {page_id} "):
            decode(page_id, dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_page_list_is_the_table(backend, dtype):
    args = base(index_dtype=dtype)
    want = check_call(backend, args)
    counts = -(-args["seq_lens"] // 8)
    indices = np.concatenate([row[:n] for row, n in zip(args["block_table"], counts, strict=True)])
    indptr = np.cumsum([0, *counts])
    for form in (
        Pages(indptr.astype(dtype), indices.astype(dtype)),
        Pages(indptr.astype(np.int64), indices.astype(np.int32)),
    ):
        assert run(backend, args, block_table=form).same_bits(want)


def test_page_list_may_hold_more_pages_than_needed(backend):
    args = base(lens=((2, 9), (1, 0), (3, 17)))
    table = args["block_table"]
    indices = np.array([*table[0, :2], -1, 2**31 - 1, *table[2, :3], -5], np.int32)
    want = check_call(backend, args)
    got = run(backend, args, block_table=Pages(np.array([0, 3, 4, 8], np.int32), indices))
    assert got.same_bits(want)


def test_page_list_strides(writable_backend):
    args = base(table="csr")
    want = check_call(writable_backend, args)
    form = Pages(*(spread(x, 2) for x in args["block_table"]))
    assert run(writable_backend, args, block_table=form).same_bits(want)


def test_page_list_need_not_start_at_zero(numpy_backend):
    """A slice of a larger list, as a batch cut out of another one has it, is either right or
    refused."""
    args = base(lens=((2, 9), (3, 17)))
    table = args["block_table"]
    indices = np.array([-1, -1, *table[0, :2], *table[1, :3]], np.int32)
    form = Pages(np.array([2, 4, 7], np.int32), indices)
    try:
        got = run(numpy_backend, args, block_table=form)
    except ValueError as error:
        assert "block_table" in str(error) or "indptr" in str(error)
    else:
        assert got.same_bits(check_call(numpy_backend, args))


def test_shared_pages(backend):
    """Two sequences may share pages, and one page may come twice in a sequence."""
    args = base(lens=((2, 20), (3, 20), (1, 24)), poisoned=False)
    args["block_table"][1, :2] = args["block_table"][0, :2]
    args["block_table"][2, :3] = args["block_table"][2, 0]
    check_call(backend, args)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.uint32, np.uint64, np.float32, F16, bool])
@pytest.mark.parametrize("name", [*INDEX, "positions"])
def test_other_types_are_refused(backend, name, dtype):
    """Neither int32 nor int64: an error that names the argument; never numbers from other bytes."""
    args = base()
    args["positions"] = np.arange(len(args["q"]), dtype=np.int32)
    with pytest.raises((TypeError, ValueError), match=name):
        run(backend, args, **{name: np.clip(args[name], 0, 100).astype(dtype)})


@pytest.mark.parametrize("name", [*INDEX, "positions"])
def test_other_ranks_and_lengths_are_refused(backend, name):
    args = base()
    args["positions"] = np.arange(len(args["q"]), dtype=np.int32)
    array = args[name]
    either = f"{name}|cu_seqlens_q" if name == "seq_lens" else name  # two that disagree
    for wrong in (array[None], array[:-1], np.concatenate([array, array[-1:]]), array[..., 0]):
        with pytest.raises((TypeError, ValueError), match=either):
            run(backend, args, **{name: wrong})


def test_lists_and_numbers_are_no_arrays():
    import pagedecode

    args = base()
    for name in (*INDEX, "q", "k_cache", "v_cache"):
        for wrong in (args[name].tolist(), 3, "text", None, object()):
            if name == "cu_seqlens_q" and wrong is None:
                continue
            with pytest.raises((TypeError, ValueError), match=name):
                pagedecode.decode(**{**args, name: wrong})
