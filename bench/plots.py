# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Plots of results: share of the ceiling and speed-up over the best peer, by row or sorted."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import matplotlib

from .compare import Comparison, Value

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"bf16": "tab:blue", "e4m3": "tab:orange"}


def _title(environment: dict[str, Any]) -> str:
    where = environment.get("gpu") or environment["cpu"]
    return f"pagedecode on {where}, commit {environment['commit']}"


def plot_bars(path: pathlib.Path, cs: list[Comparison], environment: dict[str, Any]) -> None:
    """A bar a row."""
    labels = [
        f"{c.case.kv_dtype} q{c.case.q} g{c.case.group} {c.case.batch}x{c.case.kv}"
        + ("~" if c.case.skew else "")
        for c in cs
    ]
    y = range(len(cs))
    colours = [COLOURS[c.case.kv_dtype] for c in cs]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 1.6 + 0.22 * len(cs)), sharey=True, constrained_layout=True
    )
    left.barh(y, [100 / c.over_read for c in cs], color=colours)
    left.axvline(100, color="black", linewidth=0.8)
    left.set_xlabel("share of a plain read of the same bytes, %")
    left.set_yticks(y, labels, fontsize=7)
    left.invert_yaxis()
    right.barh(y, [c.speedup for c in cs], color=colours)
    right.axvline(1, color="black", linewidth=0.8)
    for i, c in enumerate(cs):
        if c.best:
            text = f" {c.best.name}"
            right.text(c.speedup, i, text, va="center", fontsize=6)
    right.set_xlabel("speed-up over the best peer (named; *: published, not measured here)")
    right.margins(x=0.12)
    figure.suptitle(_title(environment))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_sorted(path: pathlib.Path, cs: list[Comparison], environment: dict[str, Any]) -> None:
    """Rows sorted by value, a curve for each cache type: how many rows reach how much."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    values: list[tuple[str, Value, float]] = [
        ("share of a plain read, %", lambda c: 100 / c.over_read, 100),
        ("speed-up over the best peer", lambda c: c.speedup, 1),
        ("speed-up over the best 16-bit peer", lambda c: c.speedup_16_bit, 1),
    ]
    for panel, (label, value, line) in zip(panels, values, strict=True):
        for dtype, colour in COLOURS.items():
            x = [value(c) for c in cs if c.case.kv_dtype == dtype]
            x = sorted(v for v in x if not math.isnan(v))
            panel.plot([100 * (i + 0.5) / len(x) for i in range(len(x))], x, ".", color=colour)
            panel.plot([], [], color=colour, label=f"{dtype}, {len(x)} rows")
        panel.axhline(line, color="black", linewidth=0.8)
        panel.set_xlabel("rows, sorted, %")
        panel.set_ylabel(label)
        if line == 1:
            panel.set_yscale("log", base=2)
            panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.suptitle(f"{_title(environment)}: the sweep")
    figure.savefig(path, dpi=110)
    plt.close(figure)
