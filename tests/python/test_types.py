# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Types and shapes: every pair of types, exact conversions, scales, head dims, groups, page
sizes."""

import itertools

import numpy as np
import pytest

from backends import BACKENDS, bits_equal, check_call, run
from cases import (
    BF16,
    CACHE_DTYPES,
    E4M3,
    E5M2,
    F16,
    F32,
    I8,
    ONE_BYTE,
    Q_DTYPES,
    Case,
    make_case,
)
from reference import decode_reference

SMALL = ((2, 9), (3, 17), (1, 1), (0, 4))


@pytest.mark.parametrize("k_dtype", CACHE_DTYPES, ids=str)
@pytest.mark.parametrize("q_dtype", Q_DTYPES, ids=str)
def test_every_pair_of_types(device_backend, q_dtype, k_dtype):
    """All q x K x V x out types that the device takes; each of K and V its own."""
    for i, v_dtype in enumerate(CACHE_DTYPES):
        case = Case("", dict(q_dtype=q_dtype, k_dtype=k_dtype, v_dtype=v_dtype))
        if not device_backend.takes(case):
            continue
        args = make_case(
            np.random.default_rng(i),
            lens=SMALL,
            head_dim=40,
            page=8,
            k_scale="heads",
            v_scale="float",
            layout="HND" if i % 2 else "NHD",
            **case.options,
        )
        for out_dtype in Q_DTYPES:
            check_call(device_backend, args, out_dtype=out_dtype)


@pytest.mark.parametrize("name", ["torch-cpu", "jax-cpu"])
def test_every_cache_type_of_other_libraries(name):
    for q_dtype, dtype in itertools.product(Q_DTYPES, CACHE_DTYPES):
        args = make_case(
            np.random.default_rng(1), lens=SMALL, q_dtype=q_dtype, k_dtype=dtype, head_dim=16
        )
        assert check_call(BACKENDS[name], args).same_bits(run(BACKENDS["numpy"], args))


def one_key_each(values, q_dtype):
    """One key and one row per 256 values: V holds them all, so `out` = p * v = v."""
    values = values.reshape(-1, 256)
    count = len(values)
    return dict(
        q=np.zeros((count, 1, 256), q_dtype),
        k_cache=np.zeros((count, 1, 1, 256), values.dtype),
        v_cache=values.reshape(count, 1, 1, 256),
        block_table=np.arange(count, dtype=np.int32)[:, None],
        seq_lens=np.ones(count, np.int32),
        cu_seqlens_q=np.arange(count + 1, dtype=np.int32),
        max_seqlen_q=1,
    )


def all_values(dtype):
    size = np.dtype(dtype).itemsize
    return np.arange(256**size, dtype=f"u{size}").view(dtype)


@pytest.mark.parametrize("q_dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("dtype", [E4M3, E5M2, I8, F16], ids=str)
def test_every_value_converts_exactly(device_backend, dtype, q_dtype):
    """All 256 (65536) values of a type as V of a single key come out as they are, NaN as NaN."""
    if dtype == F16 and q_dtype != F16:
        return  # V may be rounded to q's 16 bits
    args = one_key_each(all_values(dtype), q_dtype)
    got = run(device_backend, args, out_dtype=F32).out.ravel()
    want = all_values(dtype).astype(np.float32)
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all() and (got[~nan] == want[~nan]).all()
    scaled = run(device_backend, args, out_dtype=F32, v_scale=0.5).out.ravel()
    assert (scaled[~nan] == want[~nan] * np.float32(0.5)).all()


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_normal_values_convert_exactly(numpy_backend, dtype):
    values = all_values(BF16).astype(dtype)
    if dtype == F32:
        values = np.random.default_rng(0).standard_normal(65536).astype(F32)
    keep = np.abs(values.astype(np.float32)) >= np.finfo(np.float32).tiny
    keep |= ~np.isfinite(values.astype(np.float32))
    values = np.where(keep, values, np.zeros(1, dtype))
    got = run(numpy_backend, one_key_each(values, F32)).out.ravel()
    want = values.astype(np.float32)
    nan = np.isnan(want)
    assert (np.isnan(got) == nan).all() and (got[~nan] == want[~nan]).all()


@pytest.mark.parametrize("dtype", ONE_BYTE, ids=str)
def test_every_key_value(device_backend, dtype):
    """All 256 values as one element of a single key: LSE is the logit itself."""
    values = all_values(dtype)
    args = one_key_each(np.zeros((256, 256), dtype), F16)
    args["q"][..., 0] = 1
    args["k_cache"][:, 0, 0, 0] = values
    for options in (dict(softmax_scale=1.0), dict(softmax_scale=0.5, k_scale=np.array([2.0], F32))):
        lse = run(device_backend, args, **options).lse.ravel().astype(np.float64)
        want = values.astype(np.float64)
        nan = np.isnan(want) | np.isinf(want)
        assert ((np.isnan(lse) | np.isinf(lse)) == nan).all()
        error = np.abs(lse[~nan] - want[~nan])
        # CUDA: exp2 and log2 are good to a few units of the last place of 4, the softmax headroom.
        absolute = 2e-6 if device_backend.device == "cuda" else 1e-7
        assert (error <= 1e-6 * np.abs(want[~nan]) + absolute).all()


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_uint8_with_a_name(backend, name):
    """uint8 caches under `kv_dtype` are the float8 caches, bit for bit; the two types differ."""
    args = make_case(np.random.default_rng(2), k_dtype=E4M3, k_scale="float", poisoned=False)
    args = {**args, "k_cache": args["k_cache"].view(name), "v_cache": args["v_cache"].view(name)}
    raw = dict(args, k_cache=args["k_cache"].view(np.uint8), v_cache=args["v_cache"].view(np.uint8))
    want = run(backend, args)
    assert run(backend, raw, kv_dtype=name).same_bits(want)
    assert run(backend, raw, kv_dtype=(name, name)).same_bits(want)
    other = ({"float8_e4m3fn", "float8_e5m2"} - {name}).pop()
    assert not bits_equal(run(backend, raw, kv_dtype=(name, other)).out, want.out)
    mixed = dict(args, v_cache=args["v_cache"].view(other))
    assert run(backend, raw, kv_dtype=(name, other)).same_bits(run(backend, mixed))


def test_scale_forms_agree(backend):
    """float, float32 [1] and float32 [Hkv] of equal values are the same call."""
    for dtype in (E4M3, I8, F16):
        args = make_case(np.random.default_rng(3), k_dtype=dtype, v_dtype=dtype, lens=SMALL)
        want = check_call(backend, args, k_scale=0.25, v_scale=0.375)
        for count in (1, 2):
            k, v = np.full(count, 0.25, F32), np.full(count, 0.375, F32)
            assert check_call(backend, args, k_scale=k, v_scale=v).same_bits(want)
        check_call(backend, args, k_scale=np.array([0.25, 0.5], F32))
        check_call(backend, args, v_scale=np.array([2.0, 0.125], F32))
        check_call(backend, args, k_scale=np.float32(0.25), v_scale=1)


def test_scale_strides(writable_backend):
    args = make_case(np.random.default_rng(3), k_dtype=E4M3, lens=SMALL, heads=(3, 2))
    wide = np.array([0.25, 9, 0.5, 9, 1.0, 9], F32)
    want = check_call(writable_backend, args, k_scale=wide[::2].copy(), v_scale=wide[::2].copy())
    got = check_call(writable_backend, args, k_scale=wide[::2], v_scale=wide[::2])
    assert got.same_bits(want)
    if writable_backend.device == "cuda":
        return
    same = np.broadcast_to(np.array(0.5, F32), 3)
    check_call(writable_backend, args, k_scale=same, v_scale=same)


def test_per_head_options_strides(writable_backend):
    args = make_case(np.random.default_rng(3), lens=SMALL)
    wide = np.linspace(0.1, 1.2, 12, dtype=F32)
    for name in ("sinks", "alibi_slopes"):
        want = check_call(writable_backend, args, **{name: wide[::2].copy()})
        assert check_call(writable_backend, args, **{name: wide[::2]}).same_bits(want)
        if writable_backend.device == "cpu":
            check_call(writable_backend, args, **{name: np.broadcast_to(wide[3], 6)})


@pytest.mark.parametrize("head_dim", range(8, 257, 8))
def test_head_dims(device_backend, head_dim):
    """Every multiple of 8 up to 256, the default scale being that of the true D."""
    for i, (q, k, v) in enumerate([(F16, F16, F16), (BF16, E4M3, E4M3), (F32, F32, I8)]):
        if not device_backend.takes(Case("", dict(q_dtype=q, k_dtype=k, v_dtype=v))):
            continue
        args = make_case(
            np.random.default_rng(head_dim + i),
            lens=((2, 19), (1, 40), (3, 1)),
            head_dim=head_dim,
            q_dtype=q,
            k_dtype=k,
            v_dtype=v,
            heads=(2, 2),
        )
        base = check_call(device_backend, args)
        if q == F16:
            again = run(device_backend, args, softmax_scale=head_dim**-0.5)
            assert again.same_bits(base)


GROUPS = [*range(1, 18), 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128]


@pytest.mark.parametrize("group", GROUPS)
def test_groups(device_backend, group):
    """Head i reads KV head i // group, whatever the group."""
    args = make_case(
        np.random.default_rng(group), lens=((1, 5), (3, 18)), heads=(2, group), head_dim=16
    )
    check_call(device_backend, args)
    args["v_cache"][...] = np.arange(1, 3).reshape(1, 1, 2, 1)
    args["k_cache"][...] = 1
    out = run(device_backend, args).out.astype(float)
    assert (out == (np.arange(2 * group) // group + 1)[None, :, None]).all()


@pytest.mark.parametrize("page", [1, 2, 3, 5, 8, 13, 16, 64, 128, 480, 512, 1072])
def test_page_sizes(device_backend, page):
    lens = ((1, page), (2, page + 1), (3, max(2 * page - 1, 1)), (1, 1), (2, 45), (0, page))
    for layout in ("NHD", "HND"):
        args = make_case(
            np.random.default_rng(page), lens=lens, page=page, layout=layout, heads=(2, 2)
        )
        check_call(device_backend, args)


def test_page_sizes_agree(device_backend):
    """The same logical sequences on other pages, within rounding."""
    want = None
    for page in (16, 1, 7, 100):
        args = make_case(np.random.default_rng(0), lens=((2, 45), (3, 99)), page=page)
        fill = np.random.default_rng(9)
        for n, b in ((45, 0), (99, 1)):
            for cache in (args["k_cache"], args["v_cache"]):
                data = fill.standard_normal((n, 2, 64)).astype(F16)
                for j in range(n):
                    cache[args["block_table"][b, j // page], j % page] = data[j]
        args["q"] = np.random.default_rng(1).standard_normal((5, 6, 64)).astype(F16)
        got = check_call(device_backend, args)
        want = want or got
        assert np.abs(got.out.astype(float) - want.out.astype(float)).max() < 4e-3


def test_float32_cache_is_not_rounded(numpy_backend):
    """float32 q and caches reach 1e-5: no 16-bit detour for Q, K, P or V on any path."""
    for k_dtype, v_dtype in itertools.product((F32, BF16, F16), repeat=2):
        args = make_case(
            np.random.default_rng(7),
            lens=((1, 300), (8, 500), (40, 60)),
            q_dtype=F32,
            k_dtype=k_dtype,
            v_dtype=v_dtype,
            head_dim=128,
        )
        check_call(numpy_backend, args)


def test_probabilities_keep_16_bits(device_backend):
    """With an fp8 cache P is not rounded to 8 bits: many unequal weights sum to a smooth value."""
    args = make_case(np.random.default_rng(7), lens=((4, 400),), k_dtype=E4M3, v_dtype=E4M3)
    want, _ = decode_reference(**args)
    got = run(device_backend, args, out_dtype=F32).out
    assert np.abs(got - want).max() < 2e-3 * 4
