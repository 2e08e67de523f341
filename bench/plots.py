# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Plots of results: share of the ceiling and speed-up over the best peer, by row or sorted."""

from __future__ import annotations

import math
import pathlib
from typing import Any

import matplotlib

from .compare import Comparison, Value, some_round

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TICKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 5, 7, 10)
COLOURS = {"bf16": "tab:blue", "e4m3": "tab:orange"}


def _title(environment: dict[str, Any]) -> str:
    where = environment.get("gpu") or environment["cpu"]
    return f"pagedecode on {where}, commit {environment['commit']}"


def _speedups(cs: list[Comparison]) -> list[tuple[str, Value]]:
    panels: list[tuple[str, Value]] = [("speed-up over the best peer", lambda c: c.speedup)]
    if some_round(cs):
        panels.append(("speed-up over the best 16-bit peer", lambda c: c.speedup_16_bit))
    return panels


def plot_bars(path: pathlib.Path, cs: list[Comparison], environment: dict[str, Any]) -> None:
    """A bar a row. Each peer that is the best one is named."""
    labels = [
        f"{c.case.kv_dtype} q{c.case.q} g{c.case.group} {c.case.batch}x{c.case.kv}"
        + ("~" if c.case.skew else "")
        for c in cs
    ]
    y = range(len(cs))
    colours = [COLOURS[c.case.kv_dtype] for c in cs]
    speedups = _speedups(cs)
    figure, panels = plt.subplots(
        *(1, 1 + len(speedups)),
        figsize=(6 + 3 * len(speedups), 1.6 + 0.22 * len(cs)),
        sharey=True,
        constrained_layout=True,
    )
    left = panels[0]
    left.barh(y, [100 / c.over_read for c in cs], color=colours)
    left.axvline(100, color="black", linewidth=0.8)
    left.set_xlabel("share of a plain read of the same bytes, %")
    left.set_yticks(y, labels, fontsize=7)
    left.set_ylim(len(cs) - 0.4, -0.6)
    for panel, (label, value) in zip(panels[1:], speedups, strict=True):
        panel.barh(y, [value(c) for c in cs], color=colours)
        panel.axvline(1, color="black", linewidth=0.8)
        for i, c in enumerate(cs):
            peer = c.best_16_bit if "16-bit" in label else c.best
            if peer and not math.isnan(value(c)):
                panel.text(value(c), i, f" {peer.name}", va="center", fontsize=6)
        panel.set_xlabel(label)
        panel.margins(x=0.15)
    figure.suptitle(_title(environment) + ("; ~: skewed lengths" if "~" in str(labels) else ""))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_sorted(path: pathlib.Path, cs: list[Comparison], environment: dict[str, Any]) -> None:
    """Rows sorted by value, a curve for each cache type: how many rows reach how much."""
    values: list[tuple[str, Value]] = [
        ("share of a plain read of the same bytes, %", lambda c: 100 / c.over_read),
        *_speedups(cs),
    ]
    figure, panels = plt.subplots(
        1, len(values), figsize=(4.3 * len(values), 4), constrained_layout=True
    )
    for panel, (label, value) in zip(panels, values, strict=True):
        everything: list[float] = []
        for dtype, colour in COLOURS.items():
            x = [value(c) for c in cs if c.case.kv_dtype == dtype]
            x = sorted(v for v in x if not math.isnan(v))
            place = [100 * (i + 0.5) / len(x) for i in range(len(x))]
            panel.plot(place, x, ".", color=colour, label=f"{dtype}, {len(x)} rows")
            everything += x
        panel.set_xlabel("rows, sorted, %")
        panel.set_ylabel(label)
        if label.startswith("speed-up"):
            panel.axhline(1, color="black", linewidth=0.8)
            panel.set_yscale("log")
            shown = [t for t in TICKS if 0.9 * min(everything) < t < 1.1 * max(everything)]
            panel.set_yticks(shown, [f"{t:g}" for t in shown])
            panel.minorticks_off()
        else:
            panel.set_ylim(0, max(105, *everything))
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.suptitle(f"{_title(environment)}: {len(cs)} cases, sorted")
    figure.savefig(path, dpi=110)
    plt.close(figure)
