# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Rows of results as JSON, a Markdown table, a summary and plots.

A row: {"case": {...}, "name", "bytes", "us": {label: time}, "error": {label: relative error},
"why": {label: reason it did not run}}. Labels "read:*" are the ceiling (the best of them counts);
"peer:variant" labels are variants of one peer (again the best counts)."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterable
from typing import Any

from .cases import Case
from .providers.published import hpc_ops_us

OURS = "pagedecode"
CEILING = "read"
Row = dict[str, Any]


def best_by_provider(row: Row) -> dict[str, float]:
    best: dict[str, float] = {}
    for label, us in row["us"].items():
        provider = label.split(":")[0]
        best[provider] = min(best.get(provider, math.inf), us)
    published = hpc_ops_us(Case(**row["case"])) if row["device"] == "cuda" else None
    if published is not None:
        best["hpc*"] = published
    return best


def peers(times: dict[str, float]) -> dict[str, float]:
    return {k: v for k, v in times.items() if k not in (OURS, CEILING)}


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(x) for x in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def markdown(rows: list[Row], environment: dict[str, Any]) -> str:
    times = [best_by_provider(row) for row in rows]
    names = list(dict.fromkeys(p for t in times for p in peers(t)))
    where = environment.get("gpu") or environment["cpu"]
    lines = [
        f"{where}, {environment['date']}, commit {environment['commit']}"
        + (" with local changes" if environment["changed"] else "")
        + ". Microseconds a call; shares are of the plain read in the same run."
        + (" hpc*: published constants, not measured here." if "hpc*" in names else ""),
        "",
        "| KV | q | batch | kv length | heads | MB | read | " + OURS + " | GB/s | of read | "
        "error | " + " | ".join(names) + " | best peer / ours |",
        "|---" * (11 + len(names) + 1) + "|",
    ]
    for row, t in zip(rows, times, strict=True):
        c = row["case"]
        ours, read = t.get(OURS, math.nan), t.get(CEILING, math.nan)
        others = peers(t)
        ratio = f"{min(others.values()) / ours:.2f}" if others else "-"
        error = row["error"].get(OURS)
        cells = [
            c["kv_dtype"],
            c["q"],
            c["batch"],
            f"{c['kv']}{' skewed' if c['skew'] else ''}",
            f"{c['hq']}/{c['hkv']}",
            f"{row['bytes'] / 1e6:.0f}",
            f"{read:.1f}",
            f"**{ours:.1f}**",
            f"{row['bytes'] / ours / 1e3:.1f}",
            f"{100 * read / ours:.0f} %",
            "-" if error is None else f"{error:.1e}",
            *(f"{others[n]:.1f}" if n in others else "-" for n in names),
            ratio,
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def summary(rows: list[Row]) -> str:
    """Geometric means over what both sides ran, and the worst row of each."""
    lines = []
    times = [best_by_provider(row) for row in rows]
    for dtype in dict.fromkeys(row["case"]["kv_dtype"] for row in rows):
        mine = [(r, t) for r, t in zip(rows, times, strict=True) if r["case"]["kv_dtype"] == dtype]
        over = [(t[OURS] / t[CEILING], r["name"]) for r, t in mine if {OURS, CEILING} <= t.keys()]
        if over:
            mean, worst = geometric_mean(x for x, _ in over), max(over)
            lines.append(f"{dtype}: {mean:.2f} x the read, at worst {worst[0]:.2f} ({worst[1]})")
        won = [(min(peers(t).values()) / t[OURS], r["name"]) for r, t in mine if peers(t)]
        if won:
            mean, worst = geometric_mean(x for x, _ in won), min(won)
            lines.append(
                f"{dtype}: {mean:.2f} x as fast as the best peer, at worst {worst[0]:.2f} "
                f"({worst[1]})"
            )
    return "\n".join(lines) + "\n"


def write(
    folder: pathlib.Path, stem: str, rows: list[Row], environment: dict[str, Any], plot: bool
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = {"environment": environment, "rows": rows}
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    text = markdown(rows, environment) + "\n```\n" + summary(rows) + "```\n"
    (folder / f"{stem}.md").write_text(text)
    if plot:
        _plot(folder / f"{stem}.png", rows, environment)


def _plot(path: pathlib.Path, rows: list[Row], environment: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    times = [best_by_provider(row) for row in rows]
    labels = [
        f"{c['kv_dtype']} q{c['q']} g{c['hq'] // c['hkv']} {c['batch']}x{c['kv']}"
        + ("~" if c["skew"] else "")
        for c in (row["case"] for row in rows)
    ]
    y = range(len(rows))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 1.5 + 0.24 * len(rows)), sharey=True, constrained_layout=True
    )
    left.barh(y, [100 * t.get(CEILING, math.nan) / t.get(OURS, math.nan) for t in times])
    left.axvline(100, color="black", linewidth=0.8)
    left.set_xlabel("share of a plain read of the same bytes, %")
    left.set_yticks(y, labels, fontsize=7)
    left.invert_yaxis()
    won = [min(peers(t).values()) / t[OURS] if peers(t) and OURS in t else math.nan for t in times]
    right.barh(y, won, color="tab:green")
    right.axvline(1, color="black", linewidth=0.8)
    right.set_xlabel("speed-up over the best peer")
    figure.suptitle(
        f"pagedecode on {environment.get('gpu') or environment['cpu']}, "
        f"commit {environment['commit']}"
    )
    figure.savefig(path, dpi=110)
