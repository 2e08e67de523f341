# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Where and on what a result was measured."""

from __future__ import annotations

import datetime
import pathlib
import platform
import subprocess

import torch

import pagedecode


def _output(*command: str) -> str:
    try:
        root = pathlib.Path(__file__).parent
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def describe(device: str, commit: str | None = None) -> dict[str, object]:
    """`commit` overrides what git says, for a machine that has the files but no repository: then
    these files are taken to be that commit's."""
    info: dict[str, object] = {
        "date": datetime.date.today().isoformat(),
        "commit": commit or _output("git", "rev-parse", "--short=12", "HEAD"),
        "changed": not commit
        and bool(_output("git", "status", "--porcelain", "--untracked-files=no")),
        "pagedecode": pagedecode.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": device,
        "cpu": _cpu_model(),
        "threads": torch.get_num_threads(),
    }
    if device == "cuda":
        query = ("--query-gpu=driver_version", "--format=csv,noheader", "-i", "0")
        info["gpu"] = torch.cuda.get_device_name()
        info["driver"] = _output("nvidia-smi", *query)
        info["cuda"] = torch.version.cuda
    return info
