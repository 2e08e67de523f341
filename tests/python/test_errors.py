# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Every wrong argument of decode: a ValueError or TypeError that names it, and nothing written."""

import contextlib

import numpy as np
import pytest

from backends import BACKENDS, NUMPY, SENTINEL, convert
from cases import CASE, E4M3, F16, F32, I8, make_case
from reference import Pages

HQ, HKV, D, TOTAL, B = 6, 2, 64, 9, 3


def base(**options):
    return make_case(
        np.random.default_rng(81), lens=((2, 37), (4, 9), (3, 20)), poisoned=False, **options
    )


def mask(rows=TOTAL, width=4):
    return np.ones((rows, width), bool)


# argument -> changes of a right call (lens (2, 37), (4, 9), (3, 20); page 16; float16).
WRONG = {
    "q": [
        lambda a: dict(q=a["q"][0]),
        lambda a: dict(q=a["q"][:, :, None, None]),
        lambda a: dict(q=a["q"][None]),  # 4-d beside cu_seqlens_q
        lambda a: dict(cu_seqlens_q=None),  # 3-d without it
        lambda a: dict(q=a["q"].astype(np.float64)),
        lambda a: dict(q=a["q"].astype(np.int32)),
        lambda a: dict(q=a["q"].astype(np.complex64)),
        lambda a: dict(q=a["q"].astype(bool)),
        lambda a: dict(q=a["q"].astype(E4M3)),
        lambda a: dict(q=a["q"].astype(I8)),
        lambda a: dict(q=a["q"][:, :5]),  # 5 heads over 2
        lambda a: dict(q=a["q"][..., :60]),
        lambda a: dict(q=a["q"][:, :0]),
    ],
    "q|k_cache": [lambda a: dict(q=a["q"][..., :32])],
    "k_cache": [
        lambda a: dict(k_cache=a["k_cache"][0]),
        lambda a: dict(k_cache=a["k_cache"][None]),
        lambda a: dict(k_cache=a["k_cache"].astype(np.float64)),
        lambda a: dict(k_cache=a["k_cache"].astype(np.int16)),
        lambda a: dict(k_cache=a["k_cache"].astype(np.int32)),
        lambda a: dict(k_cache=a["k_cache"].astype(np.uint8)),
        lambda a: dict(k_cache=a["k_cache"].astype(bool)),
        lambda a: dict(k_cache=a["k_cache"][..., :32]),
        lambda a: dict(k_cache=a["k_cache"][:, :, :0], v_cache=a["v_cache"][:, :, :0]),
        lambda a: dict(k_cache=a["k_cache"][:, :0], v_cache=a["v_cache"][:, :0]),
    ],
    "v_cache": [
        lambda a: dict(v_cache=a["v_cache"][0]),
        lambda a: dict(v_cache=a["v_cache"].astype(np.float64)),
        lambda a: dict(v_cache=a["v_cache"].astype(np.uint8)),
        lambda a: dict(v_cache=a["v_cache"][..., :32]),
        lambda a: dict(v_cache=a["v_cache"][:, :8]),
        lambda a: dict(v_cache=a["v_cache"][:, :, :1]),
        lambda a: dict(v_cache=a["v_cache"][:2]),
    ],
    "block_table": [
        lambda a: dict(block_table=a["block_table"][0]),
        lambda a: dict(block_table=a["block_table"][:2]),
        lambda a: dict(block_table=a["block_table"].astype(np.float32)),
        lambda a: dict(block_table=np.where(a["block_table"] < 10, 10**6, a["block_table"])),
        lambda a: dict(block_table=np.full_like(a["block_table"], -1)),
        lambda a: dict(block_table=np.full_like(a["block_table"], len(a["k_cache"]))),
        lambda a: dict(block_table=np.full(a["block_table"].shape, 2**40)),
    ],
    "block_table|indptr": [
        lambda a: dict(block_table=Pages(np.array([0, 3, 4]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([0, 4, 3, 6]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([-1, 3, 4, 6]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([[0, 3, 4, 6]]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([0.0, 3, 4, 6]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([0, 3, 4, 60]), np.arange(6))),
        lambda a: dict(block_table=Pages(np.array([0, 3, 4, 6]), np.arange(6.0))),
        lambda a: dict(block_table=Pages(np.array([0, 3, 4, 6]), np.arange(6)[None])),
        lambda a: dict(block_table=Pages(np.array([0, 3, 4, 6]), np.arange(6) + 10**6)),
        lambda a: dict(block_table=Pages(np.array([0, 3, 4, 6]), np.arange(6) - 6)),
    ],
    "block_table|seq_lens": [
        lambda a: dict(block_table=a["block_table"][:, :2]),  # 37 keys need 3 pages
        lambda a: dict(block_table=a["block_table"][:, :0]),
        lambda a: dict(block_table=Pages(np.array([0, 2, 3, 5]), np.arange(5))),
    ],
    "seq_lens|cu_seqlens_q": [lambda a: dict(seq_lens=a["seq_lens"][:2])],
    "seq_lens": [
        lambda a: dict(seq_lens=a["seq_lens"][None]),
        lambda a: dict(seq_lens=a["seq_lens"].astype(np.float32)),
        lambda a: dict(seq_lens=np.array([37, -1, 20])),
        lambda a: dict(seq_lens=np.array([37, 9, 10**6])),
        lambda a: dict(seq_lens=np.array([37, 9, 2**40])),
    ],
    "cu_seqlens_q": [
        lambda a: dict(cu_seqlens_q=np.array([0, 2, 6])),
        lambda a: dict(cu_seqlens_q=np.array([[0, 2, 6, 9]])),
        lambda a: dict(cu_seqlens_q=np.array([0.0, 2, 6, 9])),
        lambda a: dict(cu_seqlens_q=np.array([0, 6, 2, 9])),
        lambda a: dict(cu_seqlens_q=np.array([1, 2, 6, 9])),
        lambda a: dict(cu_seqlens_q=np.array([0, 2, 6, 10])),
        lambda a: dict(cu_seqlens_q=np.array([-1, 2, 6, 9])),
        lambda a: dict(cu_seqlens_q=np.array([0, 2, 6, 2**40])),
    ],
    "max_seqlen_q": [
        lambda a: dict(max_seqlen_q=3),
        lambda a: dict(max_seqlen_q=0),
        lambda a: dict(max_seqlen_q=-1),
        lambda a: dict(max_seqlen_q=4.0),
        lambda a: dict(max_seqlen_q="4"),
    ],
    "kv_layout": [
        lambda a: dict(kv_layout="nhd"),
        lambda a: dict(kv_layout="DHN"),
        lambda a: dict(kv_layout=""),
        lambda a: dict(kv_layout=None),
        lambda a: dict(kv_layout=1),
    ],
    "kv_dtype": [
        lambda a: dict(kv_dtype="float8_e4m3fn"),  # of a float16 cache
        lambda a: dict(kv_dtype="float16"),
        lambda a: dict(kv_dtype="e4m3", **raw(a)),
        lambda a: dict(kv_dtype="int8", **raw(a)),
        lambda a: dict(kv_dtype=("float8_e4m3fn",), **raw(a)),
        lambda a: dict(kv_dtype=("float8_e4m3fn", "bfloat16"), **raw(a)),
        lambda a: dict(kv_dtype=3, **raw(a)),
    ],
    "kv_dtype|k_cache": [lambda a: raw(a)],
    "softmax_scale": [
        lambda a: dict(softmax_scale=float("nan")),
        lambda a: dict(softmax_scale=float("inf")),
        lambda a: dict(softmax_scale="1"),
        lambda a: dict(softmax_scale=[0.1]),
    ],
    "causal": [lambda a: dict(causal="yes"), lambda a: dict(causal=np.ones(3))],
    "draft_mask": [
        lambda a: dict(draft_mask=mask(width=3)),
        lambda a: dict(draft_mask=mask(width=5)),
        lambda a: dict(draft_mask=mask(width=31)),
        lambda a: dict(draft_mask=mask(width=33)),
        lambda a: dict(draft_mask=mask(width=64)),
        lambda a: dict(draft_mask=mask(width=9)),
        lambda a: dict(draft_mask=mask(rows=8)),
        lambda a: dict(draft_mask=mask(rows=10)),
        lambda a: dict(draft_mask=mask().ravel()),
        lambda a: dict(draft_mask=mask()[None]),
        lambda a: dict(draft_mask=mask(width=0)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 2), np.uint32)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 0), np.uint32)),
        lambda a: dict(draft_mask=np.ones((8, 1), np.uint32)),
        lambda a: dict(draft_mask=np.ones(TOTAL, np.uint32)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 4), np.uint8)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 1), np.int32)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 1), np.uint64)),
        lambda a: dict(draft_mask=np.ones((TOTAL, 4), F32)),
        lambda a: dict(draft_mask=mask(), max_seqlen_q=5),  # the width is max_seqlen_q's
        lambda a: dict(draft_mask=mask().tolist()),
    ],
    "positions": [
        lambda a: dict(positions=np.arange(8)),
        lambda a: dict(positions=np.arange(10)),
        lambda a: dict(positions=np.arange(9)[None]),
        lambda a: dict(positions=np.arange(9.0)),
        lambda a: dict(positions=np.arange(9).astype(np.uint16)),
        lambda a: dict(positions=list(range(9))),
    ],
    "window_left": [
        lambda a: dict(window_left=-2),
        lambda a: dict(window_left=-100),
        lambda a: dict(window_left=1.5),
        lambda a: dict(window_left="3"),
        lambda a: dict(window_left=None),
    ],
    "softcap": [
        lambda a: dict(softcap=-1.0),
        lambda a: dict(softcap=float("nan")),
        lambda a: dict(softcap=float("inf")),
        lambda a: dict(softcap="2"),
        lambda a: dict(softcap=None),
    ],
    "alibi_slopes": [
        lambda a: dict(alibi_slopes=np.ones(5, F32)),
        lambda a: dict(alibi_slopes=np.ones(2, F32)),
        lambda a: dict(alibi_slopes=np.ones(6, np.float64)),
        lambda a: dict(alibi_slopes=np.ones(6, F16)),
        lambda a: dict(alibi_slopes=np.ones((1, 6), F32)),
        lambda a: dict(alibi_slopes=0.5),
    ],
    "sinks": [
        lambda a: dict(sinks=np.ones(7, F32)),
        lambda a: dict(sinks=np.ones(6, np.float64)),
        lambda a: dict(sinks=np.ones(6, F16)),
        lambda a: dict(sinks=np.ones((6, 1), F32)),
        lambda a: dict(sinks=1.0),
    ],
    "k_scale": [
        lambda a: dict(k_scale=0.0),
        lambda a: dict(k_scale=float("nan")),
        lambda a: dict(k_scale=float("inf")),
        lambda a: dict(k_scale=-0.5),
        lambda a: dict(k_scale=np.ones(3, F32)),
        lambda a: dict(k_scale=np.ones(6, F32)),
        lambda a: dict(k_scale=np.ones(2, np.float64)),
        lambda a: dict(k_scale=np.ones((2, 1), F32)),
        lambda a: dict(k_scale="1"),
    ],
    "v_scale": [
        lambda a: dict(v_scale=0),
        lambda a: dict(v_scale=float("nan")),
        lambda a: dict(v_scale=-1.0),
        lambda a: dict(v_scale=np.ones(4, F32)),
        lambda a: dict(v_scale=np.ones(2, F16)),
        lambda a: dict(v_scale=np.ones(2, np.int32)),
    ],
    "lse_base": [
        lambda a: dict(lse_base="10"),
        lambda a: dict(lse_base=2),
        lambda a: dict(lse_base=None),
        lambda a: dict(lse_base=""),
    ],
    "num_splits": [
        lambda a: dict(num_splits=0),
        lambda a: dict(num_splits=-1),
        lambda a: dict(num_splits=1.0),
        lambda a: dict(num_splits="2"),
    ],
    "num_splits|batch_invariant": [lambda a: dict(num_splits=1, batch_invariant=True)],
    "stream": [
        lambda a: dict(stream=0),
        lambda a: dict(stream=1),
        lambda a: dict(stream="0"),
    ],
    "no_such_option": [lambda a: dict(no_such_option=None)],
}


def raw(args):
    """The caches as uint8 [pages, P, Hkv, D]."""
    return {name: np.zeros(args[name].shape, np.uint8) for name in ("k_cache", "v_cache")}


ALL = [
    pytest.param(name, change, id=f"{name}-{i}")
    for name, changes in WRONG.items()
    for i, change in enumerate(changes)
]


def refused(backend, given, name):
    import pagedecode

    total = TOTAL
    if backend.writable:
        out = backend.to(np.full((total, HQ, D), SENTINEL, F16))
        lse = backend.to(np.full((total, HQ), SENTINEL, F32))
        given = dict(given, out=out, lse=lse)
    with pytest.raises((ValueError, TypeError), match=name):
        pagedecode.decode(**given)
    if backend.writable:
        assert (backend.back(out) == SENTINEL).all() and (backend.back(lse) == SENTINEL).all()


@pytest.mark.parametrize("name, change", ALL)
def test_wrong_argument(name, change):
    args = base()
    refused(NUMPY, convert(NUMPY, {**args, **change(args)}), name)


# What a look at contents finds is found by `check` alone on CUDA.
CONTENTS = {("block_table", i) for i in (3, 4, 5, 6)} | {("seq_lens", i) for i in (2, 3, 4)}
CONTENTS |= {("cu_seqlens_q", i) for i in (3, 4, 5, 6, 7)} | {("max_seqlen_q", 0)}
CONTENTS |= {("block_table|indptr", i) for i in (1, 2, 5, 8, 9)}
CONTENTS |= {("block_table|seq_lens", i) for i in (0, 1, 2)} | {("stream", 0), ("stream", 1)}
CONTENTS |= {("draft_mask", i) for i in range(6)} | {("draft_mask", i) for i in (10, 11, 12)}


@pytest.mark.parametrize(
    "library", ["torch-cpu", "jax-cpu", pytest.param("torch-cuda", marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_argument_of_other_libraries(name, library):
    backend, args = BACKENDS[library], base()
    for i, change in enumerate(WRONG[name]):
        if backend.device == "cuda" and (name, i) in CONTENTS:
            continue
        refused(backend, convert(backend, {**args, **change(args)}), name)


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "block_table", "seq_lens"])
def test_missing_argument(name):
    import pagedecode

    args = base()
    del args[name]
    with pytest.raises(TypeError, match=name):
        pagedecode.decode(**args)


def test_head_dims_that_are_not_supported():
    """Not a multiple of 8, above 256, or nothing: an error that names the argument and the rule."""
    import pagedecode

    for dim in (1, 4, 12, 65, 100, 260, 264, 512):
        q = np.zeros((1, 1, 2, dim), F16)
        cache = np.zeros((1, 4, 1, dim), F16)
        index = np.zeros((1, 1), np.int32), np.ones(1, np.int32)
        with pytest.raises((ValueError, TypeError), match=r"q|k_cache|head"):
            pagedecode.decode(q, cache, cache, *index)


def test_groups_that_are_not_supported():
    import pagedecode

    for heads, kv_heads in ((33, 2), (3, 2), (1, 2), (129, 1), (260, 2)):
        q = np.zeros((1, 1, heads, 8), F16)
        cache = np.zeros((1, 4, kv_heads, 8), F16)
        index = np.zeros((1, 1), np.int32), np.ones(1, np.int32)
        with pytest.raises((ValueError, TypeError), match=r"q|k_cache|head|group"):
            pagedecode.decode(q, cache, cache, *index)


def test_unsupported_is_both():
    import pagedecode

    assert issubclass(pagedecode.Unsupported, ValueError)
    assert issubclass(pagedecode.Unsupported, NotImplementedError)


def test_messages_say_what_was_given_and_wanted():
    """Three samples: the number or type that was given stands in the message."""
    import pagedecode

    args = base()
    for change, words in (
        (dict(window_left=-7), ["window_left", "-7"]),
        (dict(q=args["q"].astype(np.float64)), ["q", "float64"]),
        (dict(v_cache=args["v_cache"][..., :32]), ["v_cache", "32", "64"]),
        (dict(sinks=np.ones(7, F32)), ["sinks", "7", "6"]),
        (dict(seq_lens=np.array([37, 9, 10**6])), ["seq_lens", "1000000"]),
        (dict(kv_layout="nhd"), ["kv_layout", "nhd", "NHD", "HND"]),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            pagedecode.decode(**{**args, **change})
        text = str(caught.value)
        assert text.startswith(words[0]) and all(word in text for word in words), text


def test_a_right_call_after_errors():
    """No state is left behind: the same call after all these errors has the same bits."""
    from backends import run

    args = base()
    want = run(NUMPY, args)
    for name, changes in WRONG.items():
        for change in changes:
            with contextlib.suppress(
                Exception, pytest.fail.Exception
            ):  # test_wrong_argument judges
                refused(NUMPY, convert(NUMPY, {**args, **change(args)}), name)
    assert run(NUMPY, args).same_bits(want)


def test_tensors_that_need_gradients():
    import pagedecode

    backend = BACKENDS["torch-cpu"]
    args = convert(backend, CASE["float32"].build())
    for name in ("q", "k_cache", "v_cache"):
        given = dict(args, **{name: args[name].clone().requires_grad_(True)})
        with pytest.raises((TypeError, ValueError), match=f"(?s){name}.*detach"):
            pagedecode.decode(**given)
        given[name] = given[name].detach()
        pagedecode.decode(**given)


def test_conjugate_and_sparse_and_odd_tensors():
    """Tensors that are no plain memory: an error, no crash."""
    import torch

    import pagedecode

    args = convert(BACKENDS["torch-cpu"], base())
    for wrong in (
        args["q"].to_sparse(),
        torch.empty(args["q"].shape, device="meta", dtype=torch.float16),
        args["q"].to(torch.complex64).conj(),
    ):
        with pytest.raises((TypeError, ValueError, BufferError, RuntimeError)):
            pagedecode.decode(**dict(args, q=wrong))


def test_big_endian_and_objects():
    import pagedecode

    args = base()
    for name, wrong in (
        ("q", args["q"].astype(">f2")),
        ("seq_lens", args["seq_lens"].astype(">i4")),
        ("q", np.full(args["q"].shape, None)),
        ("seq_lens", np.array(["37", "9", "20"])),
        ("q", np.zeros(args["q"].shape, "f2,f2")),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            pagedecode.decode(**dict(args, **{name: wrong}))


@pytest.mark.gpu
def test_arrays_of_two_devices():
    import pagedecode

    args = base()
    given = convert(BACKENDS["torch-cuda"], args)
    host = convert(BACKENDS["torch-cpu"], args)
    for name in ("q", "k_cache", "v_cache", "block_table", "seq_lens", "cu_seqlens_q"):
        with pytest.raises((TypeError, ValueError), match="q" if name == "q" else name):
            pagedecode.decode(**dict(given, **{name: host[name]}))


@pytest.mark.gpu
def test_types_that_cuda_does_not_take():
    import pagedecode

    for options in (dict(q_dtype=F32), dict(k_dtype=F32), dict(v_dtype="bfloat16")):
        given = convert(BACKENDS["torch-cuda"], base(**options))
        with pytest.raises(pagedecode.Unsupported):
            pagedecode.decode(**given)


def test_return_lse_is_a_bool():
    import pagedecode

    args = base()
    for wrong in ("no", 1, 0, None, "", np.array([1, 0]), np.array(True)):
        for function in (pagedecode.decode, pagedecode.check):
            with pytest.raises(TypeError, match=r"^return_lse: got a \w+, want True or False$"):
                function(**args, return_lse=wrong)
    assert isinstance(pagedecode.decode(**args, return_lse=np.True_), tuple)
    assert isinstance(pagedecode.decode(**args, return_lse=np.False_), np.ndarray)


def test_numbers_too_large_to_hold():
    """The message tells the number that was given, not what it was cut to."""
    import pagedecode

    for change, text in (
        (dict(num_splits=2**70), f"num_splits: got {2**70}, want"),
        (dict(max_seqlen_q=-(2**70)), f"max_seqlen_q: got {-(2**70)}, want"),
        (dict(softmax_scale=10**400), "softmax_scale: got 1000000"),
        (dict(num_splits=10**5000), "num_splits: got a int that cannot be printed"),
    ):
        with pytest.raises(ValueError) as caught:
            pagedecode.decode(**{**base(), **change})
        assert str(caught.value).startswith(text), caught.value


def test_wording():
    import pagedecode

    args = base()
    for change, text in (
        (dict(draft_mask=np.ones((TOTAL, 2), np.uint32)), "want rows of 1 word for"),
        (dict(num_splits=0), "or None"),
        (dict(num_splits=2, batch_invariant=True), "want None with batch_invariant"),
        (dict(k_scale=[1.0, 1.0]), "want a number or a float32 array [1] or [Hkv]"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            pagedecode.decode(**{**args, **change})
        assert text in str(caught.value)
