# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of index arrays and bounds given by the host (B07, B65)."""

import numpy as np
import pytest

import pagedecode
from backends import convert
from probes import HUGE, call, close, csr, is_cuda, normal, offsets, refused, same_bits, slice_call
from reference import Pages

LENGTHS, ROWS = [9, 4, 11, 1], [2, 1, 3, 1]
MASK = np.tri(7, 3, dtype=bool)
POSITIONS = np.array([7, 8, 3, 8, 9, 9, 0])


def arguments(name, index_type=np.int32) -> dict:
    args = normal(LENGTHS, ROWS, index_type=index_type)
    if name in ("indptr", "indices"):
        args = csr(args, 4)
    if name == "positions":
        args.update(draft_mask=MASK, positions=POSITIONS.astype(index_type), max_seqlen_q=3)
    return args


def get(args, name):
    table = args["block_table"]
    return getattr(table, name) if name in ("indptr", "indices") else args[name]


def put(args, name, value) -> dict:
    if name in ("indptr", "indices"):
        table = args["block_table"]
        args = {**args, "block_table": pagedecode.PageList(table.indptr, table.indices)}
        parts = {"indptr": table.indptr, "indices": table.indices, name: value}
        return {**args, "block_table": pagedecode.PageList(**parts)}
    return {**args, name: value}


NAMES = ("cu_seqlens_q", "seq_lens", "block_table", "positions", "indptr", "indices")
MESSAGE = {"indptr": ("indptr",), "indices": ("indices",)}


@pytest.mark.parametrize("form", ("int64", "int32"))
@pytest.mark.parametrize("name", NAMES)
def test_b07_either_width_of_integer(backend, name, form):
    plain = arguments(name)
    want = call(backend, plain)
    value = get(plain, name).astype(form)
    if form == "int64":
        value[value == HUGE] = 2**40 + 1  # dead entries of the table: neither half is read
    args = put(plain, name, value)
    table = args["block_table"]
    if isinstance(table, pagedecode.PageList):
        args = {**args, "block_table": Pages(table.indptr, table.indices)}
    assert same_bits(call(backend, args), want)


@pytest.mark.parametrize("index_type", ("int32", "int64"))
@pytest.mark.parametrize("name", NAMES)
def test_b07_strided_views_are_read_by_their_stride(backend, name, index_type):
    plain = arguments(name)
    want = call(backend, plain)
    given = convert(backend, plain)
    value = get(plain, name).astype(index_type)
    for step in (2, 3):
        if value.ndim == 1:
            wide = np.full(len(value) * step, 77777, index_type)
            wide[::step] = value
            view = backend.to(wide)[::step]
        else:
            wide = np.full((len(value) * step, value.shape[1] + 5), 77777, index_type)
            wide[::step, 2:-3] = value
            view = backend.to(wide)[::step, 2:-3]
        assert same_bits(call(backend, put(given, name, view)), want)
    if value.ndim == 2:
        wide = np.full((len(value), value.shape[1] * 2), 77777, index_type)
        wide[:, ::2] = value
        assert same_bits(call(backend, put(given, name, backend.to(wide)[:, ::2])), want)
        transposed = backend.to(np.ascontiguousarray(value.T)).T
        assert same_bits(call(backend, put(given, name, transposed)), want)


@pytest.mark.parametrize("form", ("uint32", "int16", "uint8", "float32", "float64", "bool"))
@pytest.mark.parametrize("name", NAMES)
def test_b07_other_types_are_refused(backend, name, form):
    given = convert(backend, arguments(name))
    bad = backend.to(get(arguments(name), name).astype(form))
    with refused(*MESSAGE.get(name, (name,))):
        call(backend, put(given, name, bad))


# Any length is a legal list of page indices; B33 covers lists that are too short.
SHAPES = [(name, how) for name in NAMES for how in ("rank", "scalar", "short", "long")]
SHAPES = [pair for pair in SHAPES if pair[0] != "indices" or pair[1] in ("rank", "scalar")]


@pytest.mark.parametrize("name, how", SHAPES)
def test_b07_other_shapes_are_refused(backend, name, how):
    plain = arguments(name)
    value = get(plain, name)
    bad = {
        "rank": value[None],
        "short": value[:-1],
        "long": np.concatenate([value, value[:1]]),
        "scalar": np.array(3, np.int32),
    }[how]
    given = convert(backend, plain)
    # Three arrays together tell B: any of them may be the one that is named.
    names = (name, "block_table", "seq_lens", "cu_seqlens_q", "indptr")
    with refused(*names if how in ("short", "long") else MESSAGE.get(name, (name,))):
        call(backend, put(given, name, backend.to(bad)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_b07_indices_on_the_other_device_are_refused(name):
    from backends import BACKENDS

    cuda, cpu = BACKENDS["torch-cuda"], BACKENDS["torch-cpu"]
    given = convert(cuda, arguments(name))
    with refused(*MESSAGE.get(name, (name,))):
        call(cuda, put(given, name, cpu.to(get(arguments(name), name))))


@pytest.mark.parametrize(
    "form", ("int32", "int64", "strided", "uint32", "int16", "float32", "2-d", "short")
)
def test_b07_slots_of_append_and_move(writable_backend, form):
    backend = writable_backend
    slots = np.array([5, -1, 9, 2], np.int64)
    x = np.random.default_rng(0).standard_normal((4, 2, 64)).astype(np.float16)
    start = np.random.default_rng(1).standard_normal((3, 4, 2, 64)).astype(np.float16)
    given = {
        "int32": lambda: backend.to(slots.astype(np.int32)),
        "int64": lambda: backend.to(slots),
        "strided": lambda: backend.to(np.repeat(slots, 3))[::3],
        "2-d": lambda: backend.to(slots[None]),
        "short": lambda: backend.to(slots[:3]),
    }.get(form, lambda: backend.to(slots.astype(form)))()
    good = form in ("int32", "int64", "strided")
    new = backend.to(x)
    for operation in ("append", "move source", "move destination"):
        k, v = backend.to(start.copy()), backend.to(start.copy())
        other = backend.to(np.array([0, 3, 6, 11], np.int64))
        want = start.copy().reshape(12, 2, 64)
        if operation == "append":
            arguments, names = (pagedecode.append, new, new, k, v, given), ("slots",)
            want[[5, 9, 2]] = x[[0, 2, 3]]
        elif operation == "move source":
            arguments, names = (pagedecode.move, k, v, given, other), ("src_slots", "dst_slots")
            want[[0, 6, 11]] = want[[5, 9, 2]]
        else:
            arguments, names = (pagedecode.move, k, v, other, given), ("src_slots", "dst_slots")
            want[[5, 9, 2]] = want[[0, 6, 11]]
        function, *values = arguments
        if good:
            function(*values)
        else:
            with refused(*names):
                function(*values)
            want = start.reshape(12, 2, 64)
        for cache in (k, v):
            assert same_bits(backend.back(cache).reshape(12, 2, 64), want)


@pytest.mark.parametrize("index_type", ("int32", "int64"))
def test_b07_slots_reads_any_integers(backend, index_type):
    args = normal([9, 4, 11, 1, 2], [2, 1, 3, 1, 4], index_type=np.dtype(index_type), width=5)
    table = args["block_table"]
    slot = lambda b, j: int(table[b, j // 4]) * 4 + j % 4  # noqa: E731
    want = [slot(0, 7), slot(0, 8), slot(1, 3), slot(2, 8), slot(2, 9), slot(2, 10), slot(3, 0)]
    want += [-1, -1, slot(4, 0), slot(4, 1)]
    given = [backend.to(args[n]) for n in ("block_table", "seq_lens", "cu_seqlens_q")]
    got = pagedecode.slots(*given, page_size=4, total_q=11)
    np.testing.assert_array_equal(backend.back(got), want)
    assert str(got.dtype).endswith("int64")
    got = pagedecode.slots(*given, page_size=4, total_q=14)
    np.testing.assert_array_equal(backend.back(got), [*want, -1, -1, -1])
    strided = [backend.to(np.repeat(args[n], 2, axis=0))[::2] for n in ("block_table", "seq_lens")]
    got = pagedecode.slots(*strided, given[2], page_size=4, total_q=11)
    np.testing.assert_array_equal(backend.back(got), want)


@pytest.mark.parametrize("bound", (4, 5, 7, 64, 4096, 131072))
def test_b65_a_larger_bound_changes_nothing(backend, bound):
    args = normal([5, 300, 40], [1, 4, 2], page=16)
    for options in ({}, {"num_splits": 3}):
        want = call(backend, args, **options)
        got = call(backend, args, max_seqlen_q=bound, **options)
        close(got[0], want[0].astype(np.float64), 2e-3, 4.0)
        close(got[1], want[1], 1e-3)
    invariant = call(backend, args, batch_invariant=True)
    assert same_bits(call(backend, args, max_seqlen_q=bound, batch_invariant=True), invariant)


@pytest.mark.parametrize("bound", (3, 1, 0, -1))
def test_b65_a_bound_that_is_too_small_is_refused(backend, bound):
    args = normal([5, 300], [1, 4], page=16)
    if not is_cuda(backend):
        with refused("max_seqlen_q"):
            call(backend, args, max_seqlen_q=bound)
    with refused("max_seqlen_q"):
        pagedecode.check(**convert(backend, args), max_seqlen_q=bound)
    if bound < 0:
        with refused("max_seqlen_q"):
            call(backend, args, max_seqlen_q=bound)
    four = normal([5, 300], [4, 4], page=16)
    four.update(q=four["q"].reshape(2, 4, 4, 64), cu_seqlens_q=None)
    with refused("max_seqlen_q"):  # the host knows m of a 4-d query
        call(backend, four, max_seqlen_q=bound)


def test_b65_each_sequence_alone_and_among_others(backend):
    args = normal([5, 300, 77, 2000], [1, 8, 3, 2], page=16)
    out, lse = call(backend, args)
    at = offsets([1, 8, 3, 2])
    for b in range(4):
        one = call(backend, slice_call(args, b))
        rows = slice(at[b], at[b + 1])
        close(out[rows], one[0].astype(np.float64), 2e-3, 4.0)
        close(lse[rows], one[1], 1e-3)
