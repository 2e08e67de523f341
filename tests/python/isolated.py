# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Runs test code in a fresh interpreter: for what is decided once a process, as the ISA level
is."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pagedecode

HERE = Path(__file__).resolve().parent
PACKAGE = Path(pagedecode.__file__).resolve().parents[1]


def python_result(code, timeout=120, **environment):
    """The finished process of `code`, which can import pagedecode and the modules of this
    folder."""
    paths = [str(HERE), str(PACKAGE), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def python(code, timeout=120, **environment):
    """Run `code`; it must end with status 0. Returns what it printed."""
    done = python_result(code, timeout, **environment)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
