# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What the bench writes."""

import dataclasses
import json

import pytest

from bench import published, report
from bench.cases import table
from bench.sweep import sweep

ENVIRONMENT = {
    "date": "2026-11-30",
    "commit": "0123abc",
    "changed": False,
    "torch": "2.11",
    "gpu": published.GPU,
    "driver": "580.1",
    "cuda": "13.0",
}


def rows(cases, scale=1.0):
    """A ceiling of 100 us, ours at 104 x scale, a 16-bit peer at 300 us, an fp8 one at 120 us."""
    return [
        {
            "name": c.name,
            "case": dataclasses.asdict(c),
            "gpu": published.GPU,
            "bytes": 400_000_000,
            "us": {"read:1": 101.0, "read:4": 100.0, "pagedecode": 104 * scale, "a": 300, "b": 120},
            "error": {
                "pagedecode": 1.6e-3,
                "a": 2.4e-3,
                "b": 3.6e-2 if c.kv_dtype == "e4m3" else 0,
            },
            "why": {},
        }
        for c in cases
    ]


def test_table():
    cases = [c for c in table() if c.q in (8, 16)]  # vllm-fa3's times are published for these
    text = report.markdown(rows(cases), ENVIRONMENT)
    assert text.startswith(
        "NVIDIA H200, driver 580.1, CUDA 13.0, torch 2.11, 2026-11-30, commit 0123abc. batch 16, "
        "kv length 8192, heads 64/8, D 128, page 64, layout NHD.\n"
    )
    lines = text.splitlines()
    ours = "| 400 | 100.0 | **104.0** | 3846 | 96 % | 1.6e-3 |"
    assert f"| bf16 | 8 {ours} b 120.0 | 1.15 | b 120.0 | 1.15 | 112.0 | yes |" in lines
    assert f"| e4m3 | 8 {ours} vllm-fa3* 94.2 | 0.91 | a 300.0 | 2.88 | 94.2 | no: peer |" in lines
    assert "| e4m3 | 16 | **104.0** (1.6e-3) | 300.0 (2.4e-3) | 120.0 (3.6e-2) | 137.6 |" in lines
    assert "slower than the best peer in 1 of 4 rows" in lines
    assert "targets: 3 of 4 rows meet theirs" in lines


def test_missing_times_are_dashes():
    few = rows(list(table())[:1])
    few[0]["us"] = {"read:1": 10.0}
    text = report.markdown(few, ENVIRONMENT)
    assert "| 10.0 | **-** | - | - | - | hpc* 15.4 | - |" in text
    assert f"pagedecode did not run: {few[0]['name']}" in text


def test_sweep_lists_the_worst_rows(tmp_path):
    many = rows(sweep())
    many[17]["us"]["pagedecode"] = 1000.0
    text = report.write(tmp_path / "sweep.json", many, ENVIRONMENT, plot=False)
    after = text.split("Slowest against the read:\n\n")[1].splitlines()
    assert "**1000.0**" in after[2] and len([x for x in after[2:12] if x.startswith("|")]) == 10
    assert "slower than the best peer in 1 of 132 rows" in text
    assert json.loads((tmp_path / "sweep.json").read_text())["rows"] == many
    assert (tmp_path / "sweep.md").read_text() == text


@pytest.mark.parametrize("cases", [table, sweep])
def test_plots(cases, tmp_path):
    pytest.importorskip("matplotlib")
    report.write(tmp_path / "x.json", rows(cases()), ENVIRONMENT, plot=True)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
