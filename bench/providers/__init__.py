# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Who is compared. A provider is a function of a Problem that returns {label: run}; run(i) makes
one call on instance i and returns its output, or None where there is none to check. It raises
Unavailable with the reason where it cannot run."""

from __future__ import annotations

from collections.abc import Callable

from ..problem import Problem
from ..timing import Run


class Unavailable(Exception):
    """Why a provider cannot run here."""


def _read(problem: Problem) -> dict[str, Run]:
    from .read import provide

    return provide(problem)


def _ours(problem: Problem) -> dict[str, Run]:
    from .ours import provide

    return provide(problem)


def _torch_sdpa(problem: Problem) -> dict[str, Run]:
    from .torch_sdpa import provide

    return provide(problem)


def _flash_attention3(problem: Problem) -> dict[str, Run]:
    from .flash_attention3 import provide

    return provide(problem)


def _flashinfer_fa2(problem: Problem) -> dict[str, Run]:
    from .flashinfer import provide_fa2

    return provide_fa2(problem)


def _flashinfer_xqa(problem: Problem) -> dict[str, Run]:
    from .flashinfer import provide_xqa

    return provide_xqa(problem)


def _vllm_flash_attention3(problem: Problem) -> dict[str, Run]:
    from .vllm_flash_attention3 import provide

    return provide(problem)


PROVIDERS: dict[str, Callable[[Problem], dict[str, Run]]] = {
    "read": _read,
    "pagedecode": _ours,
    "torch-sdpa": _torch_sdpa,
    "fa3": _flash_attention3,
    "vllm-fa3": _vllm_flash_attention3,
    "fi-fa2": _flashinfer_fa2,
    "fi-xqa": _flashinfer_xqa,
}


def defaults(device: str, cases: str) -> list[str]:
    """XQA compiles for each shape, and torch gathers every cache: neither is for a sweep."""
    if device == "cpu":
        return ["read", "pagedecode", "torch-sdpa"]
    return [x for x in PROVIDERS if cases != "sweep" or x not in ("torch-sdpa", "fi-xqa")]
