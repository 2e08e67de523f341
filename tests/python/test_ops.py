# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""check, workspace_size and `workspace=`, backends, explain, PAGEDECODE_CHECK."""

import numpy as np
import pytest

from backends import BACKENDS, Result, bits_equal, convert, run, written
from cases import CASE, CASES, F16, make_case
from isolated import python

SPREAD = [
    "plain",
    "float32",
    "long",
    "splits-100",
    "everything-fp8",
    "mask-wide",
    "heads-1x128",
    "invariant-long",
    "all-empty",
    "dim-256",
]


def cases_of(backend):
    return [CASE[name] for name in SPREAD if backend.takes(CASE[name])]


def test_check_accepts_what_decode_accepts(backend):
    import pagedecode

    for case in CASES[::5]:
        if backend.takes(case):
            assert pagedecode.check(**convert(backend, case.build())) is None


def test_check_takes_positional_arguments(backend):
    import pagedecode

    args = convert(backend, CASE["plain"].build())
    names = ("q", "k_cache", "v_cache", "block_table", "seq_lens")
    first = [args.pop(name) for name in names]
    assert pagedecode.check(*first, **args) is None
    assert isinstance(pagedecode.workspace_size(*first, **args), int)
    assert pagedecode.explain(*first, **args) is not None
    backend.back(pagedecode.decode(*first, **args))


CONTENT = {
    "seq_lens": lambda a: dict(seq_lens=np.array([10**4, 3], np.int32)),
    "seq_lens ": lambda a: dict(seq_lens=np.array([-1, 3], np.int32)),
    "block_table": lambda a: dict(block_table=np.full_like(a["block_table"], 10**6)),
    "block_table ": lambda a: dict(block_table=np.full_like(a["block_table"], -1)),
    "cu_seqlens_q": lambda a: dict(cu_seqlens_q=np.array([0, 4, 3], np.int32)),
    "cu_seqlens_q ": lambda a: dict(cu_seqlens_q=np.array([1, 2, 5], np.int32)),
    "cu_seqlens_q  ": lambda a: dict(cu_seqlens_q=np.array([0, 2, 6], np.int32)),
    "max_seqlen_q": lambda a: dict(max_seqlen_q=2),
}


@pytest.mark.parametrize("name", CONTENT)
def test_check_finds_contents(backend, name):
    """What needs a look at the contents: found by `check` on every device, by decode on the CPU."""
    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((2, 37), (3, 9)))
    given = convert(backend, {**args, **CONTENT[name](args)})
    with pytest.raises(ValueError, match=name.strip()):
        pagedecode.check(**given)
    if backend.device == "cpu":
        with pytest.raises(ValueError, match=name.strip()):
            pagedecode.decode(**given)


def test_workspace_size_is_a_size(backend):
    import pagedecode

    for case in cases_of(backend):
        args = case.build()
        size = pagedecode.workspace_size(**convert(backend, args))
        assert type(size) is int and size >= 0
        for name in ("k_cache", "v_cache", "q", "seq_lens", "block_table"):
            if isinstance(args[name], np.ndarray):
                args[name] = np.zeros_like(args[name])  # contents do not count
        assert pagedecode.workspace_size(**convert(backend, args)) == size


@pytest.mark.parametrize("name", SPREAD)
def test_workspace_of_exactly_that_size(writable_backend, name):
    """`workspace_size` bytes are enough, nothing past them is touched, and the bits are the
    same."""
    import pagedecode

    backend, case = writable_backend, CASE[name]
    if not backend.takes(case):
        return
    args = case.build()
    want = run(backend, args)
    size = pagedecode.workspace_size(**convert(backend, args))
    whole = np.full(size + 8192, 0xA5, np.uint8)
    whole[4096 : 4096 + size] = 0
    whole = backend.to(whole)
    space = whole[4096 : 4096 + size]
    given = convert(backend, args)
    for _ in range(3):
        out, lse = pagedecode.decode(**given, workspace=space, return_lse=True)
        backend.sync()
        rows = written(args)
        got = Result(backend.back(out), backend.back(lse)).rows(rows)
        assert got.same_bits(want.rows(rows))
    back = backend.back(whole)
    assert (back[:4096] == 0xA5).all() and (back[4096 + size :] == 0xA5).all()
    if size:
        for small in (whole[4096 : 4096 + size - 1], whole[:0]):
            with pytest.raises(ValueError, match="workspace"):
                pagedecode.decode(**given, workspace=small)


def test_one_workspace_for_all_shapes(writable_backend):
    """Zeroed once, then good for any shapes in any order."""
    import pagedecode

    backend, found = writable_backend, cases_of(writable_backend)
    sizes = [pagedecode.workspace_size(**convert(backend, c.build())) for c in found]
    space = backend.to(np.zeros(max(sizes) + 64, np.uint8))
    for case in (*found, *found[::-1], *found[::3]):
        args = case.build()
        want = run(backend, args)
        assert run(backend, args).same_bits(want)
        given = convert(backend, args)
        out, lse = pagedecode.decode(**given, workspace=space, return_lse=True)
        assert bits_equal(backend.back(lse), want.lse), case.name
        assert bits_equal(backend.back(out), want.out), case.name


def test_wrong_workspaces(writable_backend):
    import pagedecode

    backend = writable_backend
    args = convert(backend, CASE["splits-7"].build())
    size = pagedecode.workspace_size(**args) + 64
    wrong = [
        np.zeros((2, size), np.uint8),
        np.zeros(size, np.int8),
        np.zeros(size, np.float32),
        np.zeros(size, np.int64),
        np.zeros(2 * size, np.uint8)[::2],
    ]
    for bad in wrong:
        with pytest.raises((TypeError, ValueError), match="workspace"):
            pagedecode.decode(**args, workspace=backend.to(bad))
    for bad in (3, b"1234", "auto"):
        with pytest.raises((TypeError, ValueError), match="workspace"):
            pagedecode.decode(**args, workspace=bad)


def test_read_only_workspace():
    import pagedecode

    args = CASE["splits-7"].build()
    space = np.zeros(pagedecode.workspace_size(**args) + 64, np.uint8)
    space.setflags(write=False)
    with pytest.raises((TypeError, ValueError), match="workspace"):
        pagedecode.decode(**args, workspace=space)


def test_memory_of_a_call_is_bounded():
    """Beside inputs and outputs at most 64 MB without batch_invariant, on large shapes too."""
    import pagedecode

    table = np.zeros((64, 4096), np.int32)
    args = dict(
        q=np.zeros((512, 64, 256), F16),
        k_cache=np.zeros((1, 16, 8, 256), F16),
        v_cache=np.zeros((1, 16, 8, 256), F16),
        block_table=table,
        seq_lens=np.full(64, 65536, np.int32),
        cu_seqlens_q=np.arange(0, 513, 8, dtype=np.int32),
        max_seqlen_q=8,
    )
    assert pagedecode.workspace_size(**args) <= 64 * 2**20


def test_backends():
    import pagedecode

    found = pagedecode.backends()
    assert set(found) >= {"cpu", "cuda"}
    for state in found.values():
        assert set(state) == {"built", "runs", "why"}
        assert type(state["built"]) is bool and type(state["runs"]) is bool
        assert isinstance(state["why"], str) and (state["why"] == "") == state["runs"]
        assert state["built"] or not state["runs"]
    assert found["cpu"] == {"built": True, "runs": True, "why": ""}


def test_explain(backend):
    import pagedecode

    for case in cases_of(backend):
        args = case.build()
        told = pagedecode.explain(**convert(backend, args))
        assert told.backend == backend.device
        for name in ("kernel", "tiles", "splits", "why"):
            assert getattr(told, name) is not None
        assert backend.device in str(told) and len(str(told)) > 20


def test_explain_tells_forced_splits(device_backend):
    import pagedecode

    args = make_case(np.random.default_rng(0), lens=((1, 4096), (1, 4000)), page=64)
    for count in (1, 2, 4):
        told = pagedecode.explain(**convert(device_backend, args), num_splits=count)
        assert str(count) in str(told.splits)


@pytest.mark.gpu
def test_explain_tells_a_missing_hint():
    """A ragged call without max_seqlen_q may take larger tiles on CUDA: `explain` says so."""
    import pagedecode

    args = CASE["plain"].build()
    backend = BACKENDS["torch-cuda"]
    assert "max_seqlen_q" in str(pagedecode.explain(**convert(backend, args)))
    assert "max_seqlen_q" not in str(pagedecode.explain(**convert(backend, args), max_seqlen_q=8))


def test_they_refuse_what_decode_refuses(backend):
    import pagedecode

    args = CASE["plain"].build()
    bad = convert(backend, dict(args, window_left=-2))
    for function in (pagedecode.check, pagedecode.workspace_size, pagedecode.explain):
        with pytest.raises(ValueError, match="window_left"):
            function(**bad)
        with pytest.raises(TypeError):
            function(**convert(backend, args), no_such_option=1)
        with pytest.raises(TypeError):
            function()


def test_check_on_every_call():
    """PAGEDECODE_CHECK=1: right calls stay right, wrong ones raise."""
    python(
        """
        import numpy as np
        from backends import NUMPY, check_call
        from cases import CASES, CASE
        for case in CASES[::6]:
            check_call(NUMPY, case.build())
        args = CASE["plain"].build()
        try:
            check_call(NUMPY, args, seq_lens=args["seq_lens"] + 10**6)
        except ValueError as error:
            assert "seq_lens" in str(error)
        else:
            raise SystemExit("no error")
        """,
        PAGEDECODE_CHECK="1",
    )


@pytest.mark.gpu
def test_check_on_every_call_on_cuda():
    python(
        """
        import numpy as np
        from backends import BACKENDS, check_call
        from cases import CASE
        backend, args = BACKENDS["torch-cuda"], CASE["plain"].build()
        check_call(backend, args)
        for change in (
            dict(seq_lens=args["seq_lens"] + 10**6),
            dict(block_table=args["block_table"] * 0 + 10**6),
            dict(cu_seqlens_q=args["cu_seqlens_q"][::-1].copy()),
        ):
            try:
                check_call(backend, {**args, **change})
            except ValueError as error:
                assert next(iter(change)) in str(error)
            else:
                raise SystemExit(f"no error: {change}")
        """,
        PAGEDECODE_CHECK="1",
    )


@pytest.mark.gpu
def test_cuda_reads_no_contents_back():
    """Bad contents without checking: rows in need of a bad page id are NaN, the others right."""
    backend = BACKENDS["torch-cuda"]
    args = make_case(np.random.default_rng(0), lens=((2, 37), (3, 20), (2, 17)), hint=True)
    want = run(backend, args)
    for bad in (10**6, -1, 2**31 - 1, len(args["k_cache"])):
        table = args["block_table"].copy()
        table[1, 0] = bad
        got = run(backend, args, block_table=table)
        assert np.isnan(got.out[2:5].astype(float)).all() and np.isnan(got.lse[2:5]).all()
        keep = np.array([0, 1, 5, 6])
        assert got.rows(keep).same_bits(want.rows(keep))
    for lens in ([10**9, 20, 17], [-5, 20, 17]):
        got = run(backend, args, seq_lens=np.array(lens, np.int32))
        assert got.rows(slice(2, None)).same_bits(want.rows(slice(2, None)))


def test_values_of_the_check_variable():
    for value in ("", "0", "1"):
        python("from test_producers import CALL", PAGEDECODE_CHECK=value)
    for value in ("foo", "2", "11", "true"):
        python(
            """
            from backends import NUMPY, run
            from cases import CASE
            try:
                run(NUMPY, CASE["plain"].build())
            except ValueError as error:
                assert str(error).startswith("PAGEDECODE_CHECK: got '"), error
            else:
                raise SystemExit("no error")
            """,
            PAGEDECODE_CHECK=value,
        )
