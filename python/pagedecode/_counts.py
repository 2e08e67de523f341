# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Counts that callers give: an int of the wrong type or size is refused by the argument's name."""

from __future__ import annotations

import operator
from typing import Any

COUNT_MAX = 2**31 - 1  # of rows, pages and tokens


def int_of(value: Any, name: str) -> int:
    """An int, or what stands for one (a NumPy integer); bools are none."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}: got a {type(value).__name__}, want an int") from None


def count_of(value: Any, name: str, low: int = 0, high: int = COUNT_MAX) -> int:
    """An int from `low` to `high`."""
    count = int_of(value, name)
    if not low <= count <= high:
        raise ValueError(f"{name}: got {shown(count)}, want {low} to {high}")
    return count


def shown(number: int) -> str:
    """Its digits; of a giant only how many bits it has (Python refuses to print some)."""
    if number.bit_length() <= 256:
        return str(number)
    return f"an int of {number.bit_length()} bits"
