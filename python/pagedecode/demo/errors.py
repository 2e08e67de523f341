# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's one error type, and imports that say what to install."""

from __future__ import annotations

import importlib
from typing import Any


class DemoError(Exception):
    """What the user can act on: one sentence, shown without a traceback."""


def require(module: str) -> Any:
    """The imported module, or a DemoError that names the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DemoError(
            f"the demo needs the package '{module.partition('.')[0]}': "
            "in a checkout, make demo or pip install '.[demo]'"
        ) from error
