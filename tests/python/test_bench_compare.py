# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The bench's arithmetic: who counts as best, what a target asks, what a report says."""

import dataclasses
import math

import pytest

from bench import published, targets
from bench.cases import Case
from bench.compare import compare, geometric_mean, worst
from bench.published import published_us

H200 = published.GPU


def row(case, us, error=None, gpu=H200):
    return {
        "name": case.name,
        "case": dataclasses.asdict(case),
        "gpu": gpu,
        "bytes": 1000,
        "us": us,
        "error": error or {},
        "why": {},
    }


CASE = Case("e4m3", 1, 16, 4096, page=16)  # nothing is published for it
PUBLISHED = Case("e4m3", 4, 64, 1024)


def test_best_variant_counts():
    us = {"read:1": 12, "read:2": 10, "read:4": 11, "pagedecode": 15, "peer:a": 20, "peer:b": 18}
    c = compare(row(CASE, us, {"pagedecode": 1e-3, "peer:a": 2e-3, "peer:b": 4e-3}))
    assert (c.read, c.ours, c.error) == (10, 15, 1e-3)
    assert [(p.name, p.us, p.error) for p in c.peers] == [("peer", 18, 4e-3)]
    assert c.over_read == 1.5 and c.speedup == 1.2


def test_peers_that_round_to_fp8_are_told_apart():
    us = {"read": 10, "pagedecode": 15, "fp8": 12, "wide": 30, "wrong": 1, "unchecked": 14}
    c = compare(row(CASE, us, {"pagedecode": 1e-3, "fp8": 3.6e-2, "wide": 2.4e-3, "wrong": 0.7}))
    assert (c.best.name, c.best_16_bit.name) == ("fp8", "wide")
    assert (c.speedup, c.speedup_16_bit) == (0.8, 2.0)
    assert {p.name for p in c.peers} == {"fp8", "wide", "unchecked"}


@pytest.mark.parametrize("missing", ["read", "pagedecode", "peer"])
def test_what_did_not_run_is_nan(missing):
    us = {"read": 10, "pagedecode": 15, "peer": 18}
    del us[missing]
    c = compare(row(CASE, us))
    assert math.isnan(c.over_read) == (missing != "peer")
    assert math.isnan(c.speedup) == (missing != "read")


def test_published_times_fill_in_for_peers_that_did_not_run():
    us = {"read": 30.0, "pagedecode": 50.0, "vllm-fa3": 64.0}
    c = compare(row(PUBLISHED, us, {"vllm-fa3": 3.6e-2}))
    assert [(p.name, p.us) for p in c.peers] == [("vllm-fa3", 64.0), ("hpc*", 61.0)]
    assert c.best.name == "hpc*" and c.best_16_bit is None
    assert compare(row(PUBLISHED, us, gpu="NVIDIA H100")).best.name == "vllm-fa3"
    assert compare(row(PUBLISHED, us, gpu=None)).best.name == "vllm-fa3"


def test_published_times_are_of_their_cases_only():
    assert published_us(Case("bf16", 1, 1, 8192)) == {"hpc": 15.4, "vllm-fa3": 17.3}
    assert published_us(Case("e4m3", 4, 32, 8192, skew=True)) == {"hpc": 159.5, "vllm-fa3": 237.8}
    assert published_us(Case("e4m3", 16, 16, 8192)) == {"vllm-fa3": 137.6}
    others = [dict(q=2), dict(batch=2), dict(kv=4096), dict(hq=32), dict(page=16), dict(d=64)]
    for change in [*others, dict(layout="HND"), dict(skew=True)]:
        assert published_us(dataclasses.replace(Case("bf16", 1, 1, 8192), **change)) == {}


def test_geometric_mean_and_worst_leave_out_what_is_missing():
    assert geometric_mean([2, 8, math.nan]) == pytest.approx(4)
    assert math.isnan(geometric_mean([]))
    cs = [compare(row(CASE, {"read": 10, "pagedecode": 10 * x})) for x in (1, 3, 2)]
    cs.append(compare(row(CASE, {"read": 10})))
    assert [c.over_read for c in worst(cs, lambda c: 1 / c.over_read, 2)] == [3, 2]


def judge(dtype, q, ours, peers, error=1e-3):
    """A row of a ceiling of 100 us and peers {name: (us, error)} of their own."""
    us = {"read": 100.0, "pagedecode": ours} | {k: v for k, (v, _) in peers.items()}
    errors = {"pagedecode": error} | {k: e for k, (_, e) in peers.items()}
    return targets.verdict(compare(row(Case(dtype, q, 3, 8192), us, errors)))


@pytest.mark.parametrize(
    ("dtype", "q", "limit"),
    [
        ("bf16", 1, 107.5),  # 8 rows: 1.05 x + 2.5
        ("e4m3", 4, 107.5),  # 32 rows
        ("bf16", 8, 112.0),
        ("e4m3", 8, 150.0),
        ("bf16", 16, 130.0),
        ("e4m3", 16, 200.0),  # 300 us of the best 16-bit peer, 1.5 times as fast
    ],
)
def test_limits_by_rows(dtype, q, limit):
    slow = {"wide": (300.0, 2e-3)}
    assert judge(dtype, q, limit, slow) == targets.Verdict(pytest.approx(limit), ())
    assert judge(dtype, q, limit + 1, slow).missed in (("ceiling",), ("16-bit peer",))
    assert judge(dtype, q, limit, slow, error=3.1e-3).missed == ("error",)
    assert judge(dtype, q, limit, slow, error=math.nan).missed == ("error",)


def test_the_best_peer_is_a_limit_but_in_the_hard_corner():
    fp8 = {"fp8": (101.0, 3.6e-2), "wide": (300.0, 2e-3)}
    for dtype, q in (("bf16", 1), ("e4m3", 4), ("bf16", 8), ("e4m3", 8), ("bf16", 16)):
        assert judge(dtype, q, 102.0, fp8) == targets.Verdict(101.0, ("peer",))
    assert judge("e4m3", 16, 199.0, fp8).missed == ()
    assert str(judge("e4m3", 8, 151.0, fp8)) == "no: ceiling, peer"


def test_no_limit_where_nothing_was_measured():
    verdict = targets.verdict(compare(row(CASE, {"pagedecode": 5.0}, {"pagedecode": 1e-3})))
    assert math.isnan(verdict.limit_us) and verdict.missed == ()


def test_targets_apply_to_the_table_alone():
    assert targets.applies(row(PUBLISHED, {}))
    assert not targets.applies(row(PUBLISHED, {}, gpu="NVIDIA H100"))
    assert not targets.applies(row(CASE, {}))


def test_means():
    fast = [compare(row(PUBLISHED, {"read": 30, "pagedecode": 50, "wide": 200}, {"wide": 2e-3}))]
    (over_best, over_wide) = targets.means(fast)
    assert over_best == ("e4m3: over the best peer", pytest.approx(61 / 50), 1.22)
    assert over_wide == ("e4m3: over the best 16-bit peer", pytest.approx(4), 2.2)
