# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Bug cases of what caches and tables hold: dead slots, dead entries, bad lengths, page sizes
(B03, B17, B33, B58)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pagedecode
from backends import convert
from probes import HUGE, call, close, csr, is_cuda, normal, refused, same_bits, uniform
from reference import Pages, decode_reference

DEAD = {"nan": np.nan, "+inf": np.inf, "-inf": -np.inf, "ff": "ff", "large": 448.0}


@pytest.mark.parametrize("kv", (None, "float8_e4m3fn", "float8_e5m2", "int8"))
@pytest.mark.parametrize("which", ("both", "k", "v"))
def test_b03_dead_slots_never_matter(backend, which, kv):
    for splits in (None, 2):
        for m in (1, 4):
            probe = uniform([13, 6, 1], [m, m, 1], kv=kv, dead=0.0)
            clean = call(backend, probe.args, num_splits=splits)
            probe.check(*clean)
            close(clean[1][m - 1], np.full(4, 2.564949), 1e-3)
            for name, dead in DEAD.items():
                if kv == "int8" and name in ("+inf", "-inf", "large"):
                    continue  # int8 has neither; 127 and 0xFF remain
                poison = {"both": {"dead": dead}, "k": {"dead_k": dead}, "v": {"dead_v": dead}}
                dirty = uniform([13, 6, 1], [m, m, 1], kv=kv, **{"dead": 0.0, **poison[which]})
                assert same_bits(call(backend, dirty.args, num_splits=splits), clean), name


@pytest.mark.parametrize(
    "options",
    [{"causal": False}, {"window_left": 3}, {"softcap": 2.0}, {"rope": pagedecode.Rope()},
     {"alibi_slopes": np.full(4, 0.25, np.float32)}, {"sinks": np.zeros(4, np.float32)},
     {"draft_mask": np.tri(4, dtype=bool), "max_seqlen_q": 4}, {"batch_invariant": True}],
    ids=lambda o: next(iter(o)),
)  # fmt: skip
def test_b03_dead_slots_never_matter_under_any_option(backend, options):
    args = normal([13, 70], [1, 3], page=16, dead=0.0)
    clean = call(backend, args, **options)
    for dead in (np.nan, np.inf, "ff"):
        dirty = normal([13, 70], [1, 3], page=16, dead=dead)
        assert same_bits(call(backend, dirty, **options), clean)


def test_b03_keys_before_the_window_never_matter(backend):
    args = normal([40, 70], [1, 3], page=8, dead=0.0)
    clean = call(backend, args, window_left=5)
    for b, first in ((0, 40 - 6), (1, 70 - 3 - 5)):
        for key in range(first):
            page = args["block_table"][b, key // 8]
            args["k_cache"][page, key % 8] = np.nan
            args["v_cache"][page, key % 8] = np.inf
    assert same_bits(call(backend, args, window_left=5), clean)


@pytest.mark.parametrize("index_type", (np.int32, np.int64))
@pytest.mark.parametrize("fill", (-1, HUGE, "nan page", "int64"))
def test_b17_entries_past_the_length_are_never_followed(backend, fill, index_type):
    lengths = [9, 4, 0, 1]
    clean = normal(lengths, [2, 1, 1, 1], width=3, fill=0, dead=0.0, index_type=index_type)
    want = call(backend, clean)
    dirty = normal(lengths, [2, 1, 1, 1], width=8, index_type=index_type)
    unused = sorted(
        set(range(len(dirty["k_cache"])))
        - set(dirty["block_table"][dirty["block_table"] != HUGE].tolist())
    )
    value = {"nan page": unused[0], "int64": -(2**63) if index_type == np.int64 else -(2**31)}
    table = dirty["block_table"]
    table[table == HUGE] = value.get(fill, fill)
    assert np.isnan(dirty["k_cache"][unused[0]].astype(np.float32)).all()
    for options in ({}, {"num_splits": 3}, {"causal": False}):
        got = call(backend, dirty, **options)
        assert same_bits(got, call(backend, clean, **options))
    assert same_bits(call(backend, dirty), want)


def test_b17_page_zero_full_of_nan(backend):
    args = normal([9, 4], [2, 1], width=8, fill=-1, spare=4)
    clean = call(backend, args)
    pool = len(args["k_cache"])
    # The same data one page further on: page 0 belongs to nobody.
    moved = dict(args)
    for name in ("k_cache", "v_cache"):
        moved[name] = np.concatenate([np.full_like(args[name][:1], np.nan), args[name]])
    moved["block_table"] = np.where(args["block_table"] >= 0, args["block_table"] + 1, -1)
    moved["block_table"] = moved["block_table"].astype(np.int32)
    assert len(moved["k_cache"]) == pool + 1
    assert same_bits(call(backend, moved), clean)


@pytest.mark.parametrize("bad", ("pool", "-1", "huge", "min"))
def test_b17_bad_live_entry(backend, bad):
    args = normal([9, 4], [2, 1])
    good = call(backend, args)
    value = {"pool": len(args["k_cache"]), "-1": -1, "huge": HUGE, "min": -(2**31)}[bad]
    args["block_table"] = args["block_table"].copy()
    args["block_table"][0, 1] = value
    for form in (args, csr(args, 4)):
        if is_cuda(backend):  # nothing is read back there: the rows that need it become NaN
            out, lse = call(backend, form)
            assert np.isnan(out[:2].astype(np.float32)).all() and np.isnan(lse[:2]).all()
            close(out[2:], good[0][2:].astype(np.float64), 2e-3, 4.0)
            close(lse[2:], good[1][2:], 1e-3)
        else:
            with refused("block_table", "indices"):
                call(backend, form)
        with refused("block_table", "indices"):
            pagedecode.check(**convert(backend, form))


CHECKED = """
import numpy as np, pagedecode
from backends import BACKENDS, convert
from probes import call, normal
cuda = BACKENDS["torch-cuda"]
args = normal([9, 4], [2, 1])
call(cuda, args)
for name, index in (("block_table", (0, 1)), ("seq_lens", 0), ("cu_seqlens_q", 1)):
    bad = {**args, name: args[name].copy()}
    bad[name][index] = 1000
    try:
        call(cuda, bad)
    except ValueError as error:
        assert name in str(error), error
    else:
        raise SystemExit(name + " was not checked")
call(cuda, args)
"""


@pytest.mark.gpu
def test_b17_checked_mode_refuses_bad_contents_on_cuda():
    here = str(Path(__file__).resolve().parent)
    path = os.pathsep.join([here, *sys.path])
    environment = {**os.environ, "PAGEDECODE_CHECK": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name, value",
    [("seq_lens", [13, 4]), ("seq_lens", [-1, 4]), ("seq_lens", [-(2**31), 4]),
     ("seq_lens", [HUGE, 4]), ("cu_seqlens_q", [0, 4, 3]), ("cu_seqlens_q", [1, 2, 3]),
     ("cu_seqlens_q", [0, 2, 4]), ("cu_seqlens_q", [0, -1, 3]), ("cu_seqlens_q", [0, HUGE, 3]),
     ("cu_seqlens_q", [-1, 2, 3])],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("index_type", (np.int32, np.int64))
def test_b33_lengths_and_offsets_out_of_range(backend, name, value, index_type):
    args = normal([9, 4], [2, 1], index_type=index_type)  # a table of 3 pages of 4
    bad = {**args, name: np.array(value, index_type)}
    with refused(name):
        pagedecode.check(**convert(backend, bad))
    if is_cuda(backend):  # clamped: only that nothing breaks and nothing outside is written
        call(backend, bad)
        call(backend, args)
    else:
        with refused(name):
            call(backend, bad)


@pytest.mark.parametrize(
    "indptr, count",
    [([0, 3, 2], 4), ([1, 3, 4], 4), ([0, 3, 5], 4), ([0, -1, 4], 4), ([0, 2, 4], 4), ([0, 3], 4),
     ([0, 3, 4, 4], 4), ([0, 3, 3], 4)],
    ids=str,
)  # fmt: skip
def test_b33_page_lists_that_do_not_fit(backend, indptr, count):
    args = normal([9, 4], [2, 1])  # 3 pages and 1 page
    table = args["block_table"]
    indices = np.concatenate([table[0], table[1, :1]])[:count]
    bad = {**args, "block_table": Pages(np.array(indptr, np.int32), indices)}
    names = ("indptr", "block_table", "seq_lens")
    with refused(*names):
        pagedecode.check(**convert(backend, bad))
    if is_cuda(backend) and len(indptr) == 3:
        call(backend, bad)  # nothing is read back there, and nothing foreign is read
    else:
        with refused(*names):
            call(backend, bad)


@pytest.mark.parametrize("page", (1, 4, 16))
def test_b33_both_forms_of_the_table_are_the_same(backend, page):
    lengths = list(range(1, 34))
    args = normal(lengths, [1 + b % 3 for b in range(33)], page=page)
    assert same_bits(call(backend, args), call(backend, csr(args, page)))


def test_b33_a_page_list_may_hold_more_pages_than_needed(backend):
    args = normal([9, 4], [2, 1], fill=-1, width=5)
    long = Pages(np.array([0, 5, 10], np.int64), args["block_table"].reshape(-1).astype(np.int64))
    assert same_bits(call(backend, args), call(backend, {**args, "block_table": long}))


PAGES = (1, 2, 3, 8, 16, 32, 64, 100, 128, 256, 480, 512, 1072)


@pytest.mark.parametrize("page", PAGES)
def test_b58_any_page_size(backend, page):
    lengths = sorted({1, max(page - 1, 1), page, page + 1, 2 * page - 1, 2 * page + 1, 63, 65, 130})
    rows = [1 + b % 4 for b in range(len(lengths))]
    args = normal(lengths, rows, page=page, group=1)
    usual = normal(lengths, rows, page=16, group=1)  # the same data: one seed
    want = decode_reference(**usual)
    for options in ({}, {"num_splits": 3}):
        for form in (args, usual, csr(args, page)):
            out, lse = call(backend, form, **options)
            close(out, want[0], 2e-3, 4.0)
            close(lse, want[1], 1e-3)


@pytest.mark.parametrize("page", (1, 3, 100, 1072))
def test_b58_any_page_size_in_heads_first_layout(backend, page):
    lengths = [1, page, page + 1, 2 * page + 1]
    args = normal(lengths, [1, 2, 1, 4], page=page, layout="HND")
    plain = normal(lengths, [1, 2, 1, 4], page=page)
    assert same_bits(call(backend, args), call(backend, plain))
