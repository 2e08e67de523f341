# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The options of `python -m bench`, with measuring left out."""

import dataclasses
import json
import sys

import pytest
import torch

from bench import __main__ as bench
from bench.cases import cpu, cpu_smoke, smoke


class NoProblem:
    bytes, sets = 8, 2

    def __init__(self, case, device):
        self.case, self.device = case, device


@pytest.fixture
def run(monkeypatch, tmp_path):
    """run(*options) -> (exit status, {set of cases: names of the rows written}, providers)."""
    asked = []

    def measure(problem, providers, repeats):
        asked.append(list(providers))
        case = problem.case
        return {
            "name": case.name,
            "case": dataclasses.asdict(case),
            "gpu": None,
            "bytes": problem.bytes,
            "sets": problem.sets,
            "us": {"read": 1.0, "pagedecode": 2.0},
            "error": {"pagedecode": 1e-3},
            "why": {},
        }

    monkeypatch.setattr(bench, "Problem", NoProblem)
    monkeypatch.setattr(bench, "measure", measure)

    def call(*options):
        asked.clear()
        for old in tmp_path.glob("*"):
            old.unlink()
        argv = ["bench", "--out", str(tmp_path), "--no-plot", "--commit", "0123abc", *options]
        monkeypatch.setattr(sys, "argv", argv)
        status = bench.main()
        files = {x.stem: json.loads(x.read_text()) for x in tmp_path.glob("*.json")}
        assert all(x["environment"]["commit"] == "0123abc" for x in files.values())
        assert not list(tmp_path.glob("*.png"))
        return status, {k: [r["name"] for r in x["rows"]] for k, x in files.items()}, asked

    return call


def names(cases):
    return [c.name for c in cases()]


def test_all_cases_of_each_set(run):
    assert run()[:2] == (0, {"cpu": names(cpu)})
    both = {"cpu-smoke": names(cpu_smoke), "smoke": names(smoke)}
    assert run("--cases", "cpu-smoke,smoke")[:2] == (0, both)


def test_choice_of_cases(run):
    assert run("--start", "2", "--every", "5")[1] == {"cpu": names(cpu)[2::5]}
    few = [x for x in names(cpu) if "q4-b1-" in x]
    assert len(few) == 4
    assert run("--only", "q4-b1-")[1] == {"cpu": few}
    assert run("--only", "q4-b1-", "--start", "1")[1] == {"cpu": few[1:]}


def test_providers(run):
    assert run("--cases", "smoke", "--providers", "read,pagedecode")[2] == [
        ["read", "pagedecode"]
    ] * len(names(smoke))


def test_stop_after(run, monkeypatch, capsys):
    ticks = iter(range(100))
    monkeypatch.setattr(bench, "BEGIN", 0)
    monkeypatch.setattr(bench.time, "monotonic", lambda: next(ticks))
    assert run("--stop-after", "2")[1] == {"cpu": names(cpu)[:3]}
    assert f"stopped after 3 of {len(names(cpu))} cases" in capsys.readouterr().err
    assert run("--stop-after", "0")[:2] == (2, {})


@pytest.mark.parametrize(
    "options, text",
    [
        (("--cases", "cpu,no"), "unknown cases ['no']"),
        (("--providers", "read,no"), "unknown providers ['no']"),
        (("--only", "no such case"), "no case of cpu was measured"),
    ],
)
def test_what_is_not_there(run, capsys, options, text):
    assert run(*options)[:2] == (2, {})
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("option, value", [("--start", "-1"), ("--every", "0")])
def test_numbers_out_of_range(run, capsys, option, value):
    with pytest.raises(SystemExit):
        run(option, value)
    assert f"argument {option}: got {value}, want" in capsys.readouterr().err


def test_no_gpu(run, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run("--device", "cuda")[:2] == (2, {})
    assert "--device cuda, but torch sees no GPU" in capsys.readouterr().err
