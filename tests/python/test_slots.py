# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""slots: the slot of each query row's own key."""

import numpy as np
import pytest

from backends import BACKENDS, CPU, GPU, Guarded, convert
from cases import LENS, make_case
from isolated import python
from reference import Pages, slots_reference


def problem(lens=LENS, page=4, **options):
    args = make_case(
        np.random.default_rng(71), lens=lens, page=page, heads=(1, 1), head_dim=8, **options
    )
    return args["block_table"], args["seq_lens"], args["cu_seqlens_q"]


def slots(backend, arrays, **options):
    import pagedecode

    names = ("block_table", "seq_lens", "cu_seqlens_q")
    given = convert(backend, dict(zip(names, arrays, strict=True)))
    if backend.device == "cuda" and not {"total_q", "out"} & set(options):
        options["total_q"] = int(arrays[2][-1])
    got = pagedecode.slots(*given.values(), **options)
    backend.sync()
    return got


def check(backend, arrays, page=4, **options):
    got = slots(backend, arrays, page_size=page, **options)
    assert backend.is_mine(got)
    got = backend.back(got)
    want = slots_reference(*arrays, page_size=page, total_q=options.get("total_q"))
    assert got.dtype == np.int64 and got.shape == want.shape and (got == want).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("table", ["table", "csr"])
@pytest.mark.parametrize("page", [1, 3, 16])
def test_against_the_reference(backend, page, table, dtype):
    check(backend, problem(page=page, table=table, index_dtype=dtype), page)


def test_by_hand(backend):
    arrays = np.array([[7, 2], [5, -1]]), np.array([6, 2]), np.array([0, 3, 6])
    got = backend.back(slots(backend, arrays, page_size=4, total_q=8))
    assert got.tolist() == [31, 8, 9, -1, 20, 21, -1, -1]


def test_rows_past_the_last_offset(backend):
    arrays = problem()
    total = int(arrays[2][-1])
    for more in (0, 1, 7):
        check(backend, arrays, total_q=total + more)


def test_given_output(writable_backend):
    import pagedecode

    arrays = problem()
    total = int(arrays[2][-1])
    want = slots_reference(*arrays, page_size=4, total_q=total + 3)
    out = Guarded.make(writable_backend, (total + 3,), np.int64)
    names = ("block_table", "seq_lens", "cu_seqlens_q")
    given = convert(writable_backend, dict(zip(names, arrays, strict=True)))
    got = pagedecode.slots(*given.values(), page_size=4, out=out.array)
    writable_backend.sync()
    assert got is out.array and (out.value() == want).all()
    out.check_bands()
    wide = writable_backend.to(np.full(2 * len(want), 123))
    pagedecode.slots(*given.values(), page_size=4, out=wide[::2])
    back = writable_backend.back(wide)
    assert (back[::2] == want).all() and (back[1::2] == 123).all()


def test_index_strides(writable_backend):
    arrays = problem()
    spread = []
    for x in arrays:
        whole = np.full([2 * n for n in x.shape], -7, x.dtype)
        whole[(slice(None, None, 2),) * x.ndim] = x
        spread.append(whole[(slice(None, None, 2),) * x.ndim])
    check(writable_backend, spread)


def test_empty_batches(backend):
    none = np.zeros((0, 3), np.int32), np.zeros(0, np.int32), np.zeros(1, np.int32)
    check(backend, none)
    check(backend, none, total_q=4)
    check(backend, problem(lens=((0, 4), (0, 0))))


@pytest.mark.parametrize("name", CPU)
def test_errors(name):
    backend = BACKENDS[name]
    table, lens, cu = problem()
    wrong = {
        "block_table": [
            (table[0], lens, cu),
            (table[:2], lens, cu),
            (table.astype(np.float32), lens, cu),
            (table * 0 - 1, lens, cu),
            (table[None], lens, cu),
        ],
        "block_table|seq_lens": [(table[:, :2], lens, cu)],  # too narrow for the lengths
        "seq_lens": [(table, lens - 1, cu), (table, lens[None], cu)],
        "seq_lens|cu_seqlens_q": [(table, lens[:3], cu)],
        "cu_seqlens_q": [
            (table, lens, cu[:3]),
            (table, lens, cu + 1),
            (table, lens, cu[::-1].copy()),
            (table, lens, cu.astype(np.uint8)),
        ],
    }
    for argument, calls in wrong.items():
        for arrays in calls:
            with pytest.raises((TypeError, ValueError), match=argument):
                slots(backend, arrays, page_size=4)
    for page in (0, -4, 2.5, None, "4"):
        with pytest.raises((TypeError, ValueError), match="page_size"):
            slots(backend, (table, lens, cu), page_size=page)
    for total in (-1, int(cu[-1]) - 1, "7"):
        with pytest.raises((TypeError, ValueError), match=r"total_q|cu_seqlens_q"):
            slots(backend, (table, lens, cu), page_size=4, total_q=total)


def test_wrong_outputs():
    import pagedecode

    arrays = problem()
    total = int(arrays[2][-1])
    frozen = np.full(total, 123)
    frozen.setflags(write=False)
    for out in (
        np.full(total, 123, np.int32),
        np.full(total - 1, 123),
        np.full((total, 1), 123),
        np.full(total, 123.0),
        np.broadcast_to(np.array([123]), total),
        frozen,
        [0] * total,
    ):
        with pytest.raises((TypeError, ValueError), match=r"out|cu_seqlens_q"):
            pagedecode.slots(*arrays, page_size=4, out=out)
        assert (np.asarray(out) == 123).all() or isinstance(out, list)


def test_a_page_list_with_too_few_pages(numpy_backend):
    form = Pages(np.array([0, 2, 3]), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match=r"block_table|indptr|seq_lens"):
        slots(numpy_backend, (form, np.array([9, 4]), np.array([0, 1, 2])), page_size=4)


def test_jax_without_64_bits():
    """int64 also where JAX makes 32-bit arrays by default, and that setting is left alone."""
    python(
        """
        import jax, numpy as np, pagedecode
        table, lens, cu = (jax.numpy.asarray(x) for x in ([[3, 1]], [6], [0, 2]))
        got = pagedecode.slots(table, lens, cu, page_size=4)
        assert isinstance(got, jax.Array) and got.dtype == np.int64, got.dtype
        assert np.asarray(got).tolist() == [4, 5]
        assert jax.numpy.asarray(np.zeros(1, np.int64)).dtype == np.int32
        """
    )


@pytest.mark.gpu
def test_total_or_output_is_needed_on_cuda():
    import pagedecode

    backend = BACKENDS["torch-cuda"]
    arrays = [backend.to(x) for x in problem()]
    with pytest.raises((TypeError, ValueError), match="total_q"):
        pagedecode.slots(*arrays, page_size=4)


@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize("page", [2**62, 2**63 - 1, (2**63 - 1) // 4])
def test_page_ids_whose_slots_do_not_fit(name, page):
    """Not somebody else's slot; one that fits is a slot, the pool being append's business."""
    backend = BACKENDS[name]
    lens, cu = np.array([3]), np.array([0, 3])
    if name != "jax-cpu":  # there the table would become int32
        with pytest.raises(ValueError, match=rf"^block_table: got page {page} for sequence 0"):
            slots(backend, (np.array([[page]]), lens, cu), page_size=4)
    got = backend.back(slots(backend, (np.array([[2**31 - 1]]), lens, cu), page_size=4))
    assert got.tolist() == [4 * (2**31 - 1) + i for i in range(3)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", GPU)
def test_what_leads_nowhere_is_no_slot_on_cuda(name):
    """Page ids whose slots do not fit, lengths and offsets out of range: -1, and no overflow."""
    backend, far = BACKENDS[name], np.iinfo(np.int64)
    table = np.array([[5, 2**62], [far.max, far.min], [7, 3], [1, 1], [2**61 - 2, 0]])
    lens = np.array([8, 5, far.max, far.min, 4])
    cu = np.array([0, 8, 13, 15, 17, 21])
    got = backend.back(slots(backend, (table, lens, cu), page_size=4, total_q=22))
    last = [4 * (2**61 - 2) + i for i in range(4)]
    assert got.tolist() == [20, 21, 22, 23, *[-1] * 13, *last, -1]
    for bad in ([far.min] * 6, [far.max] * 6, [0, far.max, 3, far.min, 9, 10], [9, 7, 5, 3, 2, 1]):
        got = backend.back(slots(backend, (table, lens, np.array(bad)), page_size=4, total_q=22))
        assert got.shape == (22,) and (got >= -1).all()
    got = backend.back(slots(backend, (table, lens, cu), page_size=2**31 - 1, total_q=22))
    assert got[:8].tolist() == [5 * (2**31 - 1) + i for i in range(8)] and (got >= -1).all()


def test_totals_that_are_none(numpy_backend):
    for total, error in ((2**60, ValueError), (2**70, ValueError), (True, TypeError)):
        with pytest.raises(error, match=r"^total_q: got "):
            slots(numpy_backend, problem(), page_size=4, total_q=total)
