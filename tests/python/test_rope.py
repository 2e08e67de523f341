# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""RoPE on read: angles, pairs, positions. An angle error shows as an error of a cosine in the
LSE."""

import numpy as np
import pytest

from backends import check_call, run
from cases import BF16, CASE, E4M3, F16, F32, I8, Case, make_case, plan_of
from reference import RopeSpec, decode_reference, rotate

SPECS = {
    "default": RopeSpec(),
    "theta": RopeSpec(500000.0, 1.0, False),
    "scale": RopeSpec(10000.0, 8.0, False),
    "interleaved": RopeSpec(10000.0, 1.0, True),
    "all": RopeSpec(100000.0, 2.5, True),
}
# Allowed in the cosine: 1e-3 of the angle, beside the rounding of a rotated 16-bit q and k.
COSINE = {F32: 1.1e-3, F16: 4e-3, BF16: 3e-2}


def unit_pairs(rng, dim, dtype, spec, second):
    """Two rows of one sequence; head t of q is the first unit vector of pair t; key 0 has ones at
    the first (`second`: second) elements of all pairs. Row 1 sees key 0 only: its logit is cos
    (-sin ...)."""
    half = dim // 2
    args = make_case(
        rng, lens=((2, 2), (2, 2)), heads=(1, half), head_dim=dim, page=4, q_dtype=dtype, rope=spec
    )
    args["q"][...] = 0
    first = 2 * np.arange(half) if spec.interleaved else np.arange(half)
    other = first + 1 if spec.interleaved else first + half
    args["q"][:, np.arange(half), first] = 1
    page = args["block_table"][:, 0]
    args["k_cache"][page] = 0
    args["k_cache"][page[:, None], 0, 0, (other if second else first)[None]] = 1
    args["draft_mask"] = np.array([[1, 0], [1, 0]] * 2, bool)
    args["softmax_scale"] = 1.0
    return args


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_angle_of_a_query_far_away(device_backend, name, dtype):
    """Position 2^17 - 1 and 2^17 against key position 0: cosine and sine of each pair's angle."""
    if not device_backend.takes(Case("", dict(q_dtype=dtype))):
        return
    spec = SPECS[name]
    far = np.array([0, 2**17, 0, 2**17 - 1])
    for second in (False, True):
        args = unit_pairs(np.random.default_rng(0), 64, dtype, spec, second)
        result = run(device_backend, args, positions=far)
        angle = far[[1, 3], None] / spec.scale * spec.theta ** (-2.0 * np.arange(32) / 64)
        want = np.sin(angle) if second else np.cos(angle)
        assert np.abs(result.lse[[1, 3]] - want).max() <= COSINE[dtype]


@pytest.mark.parametrize("interleaved", [False, True])
def test_angle_of_a_key_far_away(device_backend, interleaved):
    """Prefix keys at large indices are rotated by their index. Row at position 0; key j alone has a
    value in its column, as large as there are keys, so that the column shows exp(logit)."""
    dtype = F32 if device_backend.device == "cpu" else F16
    spec, dim, n = RopeSpec(10000.0, 1.0, interleaved), 16, 2**17 + 1
    index = np.array([1, 1000, 40001, 65537, 100003, 131000, 131070, 131071])
    args = make_case(
        np.random.default_rng(0),
        lens=((1, n),),
        heads=(1, 8),
        head_dim=dim,
        page=512,
        q_dtype=dtype,
        rope=spec,
        poisoned=False,
    )
    for name in ("q", "k_cache", "v_cache"):
        args[name][...] = 0
    first = 2 * np.arange(8) if interleaved else np.arange(8)
    args["q"][0, np.arange(8), first] = 2
    page = args["block_table"][0, index // 512]
    args["k_cache"][page, index % 512, 0] = np.isin(np.arange(dim), first).astype(dtype)
    args["v_cache"][page, index % 512, 0, np.arange(8)] = 2.0**15
    args.update(positions=np.array([0]), softmax_scale=1.0, causal=True)
    got = run(device_backend, args).out[0, :, :8].astype(np.float64)
    want = decode_reference(**args)[0][0, :, :8]
    assert (np.abs(got / want - 1) <= (2.3e-3 if dtype == F32 else 8e-3)).all()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("mask", [None, "tree"])
def test_equals_rotating_outside(device_backend, name, mask):
    """The same as rotating q and k in float64 beforehand and calling without rope."""
    dtype = F32 if device_backend.device == "cpu" else F16
    spec = SPECS[name]
    args = make_case(
        np.random.default_rng(3),
        lens=((4, 13), (2, 40), (5, 33)),
        heads=(2, 2),
        page=8,
        q_dtype=dtype,
        mask=mask,
        rope=spec,
        window_left=20,
    )
    inside = check_call(device_backend, args)
    plain = {k: v for k, v in args.items() if k != "rope"}
    plain["q"], plain["k_cache"] = args["q"].copy(), args["k_cache"].copy()
    for seq in plan_of(args):
        rows = args["q"][seq.rows].astype(np.float64)
        plain["q"][seq.rows] = rotate(rows, seq.row_pos, spec).astype(dtype)
        at = (seq.slots // 8, seq.slots % 8)
        with np.errstate(invalid="ignore"):
            keys = rotate(args["k_cache"][at].astype(np.float64), seq.key_pos, spec)
            plain["k_cache"][at] = keys.astype(dtype)
    outside = run(device_backend, plain)
    tol = 3e-5 if dtype == F32 else 1e-2
    assert np.abs(inside.out.astype(float) - outside.out.astype(float)).max() < tol
    assert np.abs(inside.lse - outside.lse).max() < tol


def test_positions_of_siblings(device_backend):
    """Custom positions [10, 11, 11, 12] of a draft: keys of the draft are rotated at theirs too."""
    args = make_case(np.random.default_rng(3), lens=((4, 14), (4, 13)), page=4, rope=True)
    args["positions"] = np.array([10, 11, 11, 12, 9, 10, 10, 10], np.int64)
    args["draft_mask"] = np.array(
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]] * 2, bool
    )
    got = check_call(device_backend, args)
    default = run(device_backend, {k: v for k, v in args.items() if k != "positions"})
    assert np.abs(got.out.astype(float) - default.out.astype(float)).max() > 0.01


def test_verifying_equals_single_steps(device_backend):
    args = make_case(np.random.default_rng(3), lens=((4, 13),), rope=RopeSpec(100.0, 1.0, True))
    want = check_call(device_backend, args).out.astype(float)
    for i in range(4):
        single = dict(
            args,
            q=args["q"][i : i + 1],
            seq_lens=np.array([10 + i], np.int32),
            cu_seqlens_q=np.array([0, 1], np.int32),
        )
        got = run(device_backend, single).out[0].astype(float)
        assert np.abs(got - want[i]).max() < 4e-3


@pytest.mark.parametrize("dim", [8, 16, 72, 80, 128, 256])
@pytest.mark.parametrize("interleaved", [False, True])
def test_head_dims(device_backend, dim, interleaved):
    for q, k in ((F16, F16), (BF16, E4M3), (F32, I8), (F16, F32)):
        if not device_backend.takes(Case("", dict(q_dtype=q, k_dtype=k))):
            continue
        args = make_case(
            np.random.default_rng(3),
            lens=((4, 40), (1, 17)),
            head_dim=dim,
            q_dtype=q,
            k_dtype=k,
            v_dtype=k,
            k_scale="heads",
            v_scale="float",
            heads=(2, 2),
            rope=RopeSpec(10000.0, 1.0, interleaved),
        )
        check_call(device_backend, args)


def test_keyword_forms(backend):
    import pagedecode

    args = CASE["rope"].build()
    want = run(backend, args)
    for rope in (pagedecode.Rope(), pagedecode.Rope(theta=10000.0, scale=1.0, interleaved=False)):
        assert run(backend, args, rope=rope).same_bits(want)
    assert not run(backend, args, rope=pagedecode.Rope(interleaved=True)).same_bits(want)
    assert not run(backend, args, rope=None).same_bits(want)


def test_wrong_ropes(backend):
    import pagedecode

    args = CASE["rope"].build()
    for wrong in (True, 10000.0, "neox", {"theta": 10000.0}):
        with pytest.raises((TypeError, ValueError), match="rope"):
            run(backend, args, rope=wrong)
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        for name in ("theta", "scale"):
            with pytest.raises(ValueError, match=r"rope|theta|scale"):
                run(backend, args, rope=pagedecode.Rope(**{name: bad}))
