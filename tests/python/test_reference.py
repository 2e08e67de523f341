# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The float64 reference against numbers worked out by hand: a wrong reference would hide
everything."""

import math

import numpy as np
import pytest

from cases import (
    CASES,
    E4M3,
    F16,
    F32,
    LENS,
    check_probe,
    make_case,
    pack_mask,
    plan_of,
    tree_mask,
    uniform_probe,
)
from reference import (
    RopeSpec,
    append_reference,
    decode_reference,
    merge_reference,
    move_reference,
    quantise,
    rotate,
    slots_reference,
)


def probe(lens, visible, **options):
    args = uniform_probe(np.random.default_rng(0), lens=lens, heads=(2, 2), page=4, **options)
    out, lse = decode_reference(**args)
    check_probe(args, out.astype(np.float32), lse, visible)


def test_causal_is_bottom_right():
    probe([(2, 5), (1, 3)], [range(4), range(5), range(3)])


def test_more_rows_than_keys():
    probe([(5, 2), (2, 0)], [[], [], [], [0], [0, 1], [], []])


def test_not_causal_sees_all():
    probe([(2, 5)], [range(5)] * 2, causal=False)


def test_each_row_has_its_own_window():
    probe([(4, 10)], [range(3, 7), range(4, 8), range(5, 9), range(6, 10)], window_left=3)


@pytest.mark.parametrize("packed", [False, True])
def test_draft_mask_and_positions(packed):
    mask = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool)  # two children of one root
    args = uniform_probe(np.random.default_rng(0), lens=[(3, 7)], heads=(1, 1), page=4)
    args["draft_mask"] = pack_mask(mask, np.random.default_rng(1)) if packed else mask
    out, lse = decode_reference(**args)
    check_probe(args, out, lse, [range(5), range(6), [0, 1, 2, 3, 4, 6]])
    out, lse = decode_reference(**args, positions=np.array([4, 5, 5]), window_left=1)
    check_probe(args, out, lse, [[3, 4], [4, 5], [4, 6]])


def test_two_keys_by_hand():
    """B15: k = 4 * 0.25, q = ln 3, v = 1 * 0.5 -> out 0.375, LSE ln 4."""
    args = make_case(np.random.default_rng(0), lens=[(1, 2)], heads=(1, 1), head_dim=8, page=2)
    for name in ("q", "k_cache", "v_cache"):
        args[name][...] = 0
    page = args["block_table"][0, 0]
    args["q"] = args["q"].astype(F32)
    args["q"][0, 0, 0] = math.log(3)
    args["k_cache"][page, 0, 0, 0], args["v_cache"][page, 0] = 4, 1
    out, lse = decode_reference(**args, k_scale=0.25, v_scale=0.5, softmax_scale=1.0)
    assert np.allclose(out, 0.375) and np.allclose(lse, math.log(4))
    assert np.allclose(decode_reference(**args, softmax_scale=1.0, lse_base="2")[1], np.log2(82))


def test_options_by_hand():
    args = uniform_probe(np.random.default_rng(0), lens=[(1, 3)], heads=(1, 2), head_dim=8)
    alibi = np.array([0.5, 0.5], F32)
    out, _ = decode_reference(**args, alibi_slopes=alibi)
    assert np.allclose(out[0, 0, :3], [0.186324, 0.307196, 0.506480], atol=1e-6)
    out, lse = decode_reference(**args, sinks=np.log(np.array([3.0, 1.0], F32)))
    assert np.allclose(out[0, 0, :3], 1 / 6) and np.allclose(lse[0], np.log([6, 4]))
    args["q"][...], args["softmax_scale"] = 1, 12.5  # <q, k> = 8: logit 100
    _, lse = decode_reference(**args, softcap=50.0, window_left=0)
    assert np.allclose(lse, 48.2014, atol=1e-4)


def test_sink_alone():
    args = make_case(np.random.default_rng(0), lens=[(2, 0)], sinks=True)
    out, lse = decode_reference(**args)
    assert (out == 0).all() and np.allclose(lse, args["sinks"])


def test_rotation():
    x = np.zeros((1, 1, 8))
    x[0, 0, 1] = 1  # pair 1 of 4: angle 100 ** -0.25 * 6 / 3
    half, inter = RopeSpec(100.0, 3.0, False), RopeSpec(100.0, 3.0, True)
    angle = 6 / 3 * 100.0**-0.25
    got = rotate(x, np.array([6.0]), half)[0, 0]
    assert np.allclose(got[[1, 5]], [math.cos(angle), math.sin(angle)])
    got = rotate(x, np.array([6.0]), inter)[0, 0]  # element 1 is the second of pair 0: angle 2
    assert np.allclose(got[[0, 1]], [-math.sin(2), math.cos(2)])


def test_hidden_poison_does_not_matter():
    for case in CASES:
        args = case.build()
        out, lse = decode_reference(**args)
        total = int(args["cu_seqlens_q"][-1]) if "cu_seqlens_q" in args else len(lse)
        rows = out.reshape(-1, *out.shape[-2:])[:total]
        assert not np.isnan(rows).any() and not np.isnan(lse[:total]).any(), case.name


def test_trees():
    mask, depth = tree_mask(np.random.default_rng(3), 40)
    assert (mask.sum(1) == depth + 1).all() and not np.triu(mask, 1).any() and mask.diagonal().all()
    words = pack_mask(mask)
    assert words.shape == (40, 2) and words[33, 1] >> 1 & 1 == mask[33, 33]


def test_plan_covers_the_edges():
    rows = [seq.visible.sum(1).tolist() for seq in plan_of(make_case(np.random.default_rng(0)))]
    assert rows[0] == [35, 36, 37] and rows[6] == [0, 0, 0, 1, 2] and len(rows) == len(LENS)


def test_quantise_by_hand():
    x = np.array([449, 464, 465, 3e38, np.inf, -1e4, 448, 2.0**-9, 2.0**-10, -0.0], F32)
    got = quantise(x, 1.0, E4M3).view(np.uint8).tolist()
    assert got == [0x7E] * 5 + [0xFE, 0x7E, 0x01, 0x00, 0x80]
    assert quantise(np.array([2.5, 3.5, 1e9, 0.4]), 1.0, np.int8).tolist() == [2, 4, 127, 0]


def test_append_slots_move_by_hand():
    k = np.arange(2, dtype=F16).reshape(2, 1, 1) + 1
    cache = np.zeros((3, 1, 4, 1), F16)  # HND
    got, _ = append_reference(k, k, cache, cache, [9, -1], kv_layout="HND", k_scale=0.5)
    assert got[2, 0, 1, 0] == 2 and np.count_nonzero(got) == 1
    table = np.array([[7, 2], [5, -1]])
    assert slots_reference(table, [6, 2], [0, 3, 6], page_size=4, total_q=7).tolist() == [
        *(31, 8, 9),
        *(-1, 20, 21),
        -1,
    ]
    line = np.arange(4, dtype=F16).reshape(1, 4, 1, 1)
    moved, _ = move_reference(line, line, [1, 2, 3, -1], [2, 3, 1, 0])
    assert moved.ravel().tolist() == [0, 3, 1, 2]


def test_merge_by_hand():
    ones, zeros = np.ones((1, 1, 2)), np.zeros((1, 1, 2))
    out, lse = merge_reference([ones, zeros], [np.log([[96.0]]), np.log([[32.0]])])
    assert np.allclose(out, 0.75) and np.allclose(lse, math.log(128))
    empty = np.full((1, 1), -np.inf)
    out, lse = merge_reference([ones * np.nan, zeros], [empty, empty])
    assert (out == 0).all() and np.isneginf(lse).all()
