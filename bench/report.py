# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Rows of results as JSON and Markdown: our time against the ceiling, the best peers and the
targets; every peer's time with its error; geometric means; the rows where we lose."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable
from typing import Any

from . import targets
from .compare import OURS, Comparison, Peer, Row, Value, compare, geometric_mean, some_round, worst

KINDS = " A 16-bit peer rounds neither Q nor the probabilities to fp8 (error at most 1e-2)."
PUBLISHED = " *: published, not measured here."
MANY_ROWS = 60  # from here on the worst rows are listed apart


def number(x: float, digits: int = 1, suffix: str = "") -> str:
    return "-" if math.isnan(x) else f"{x:.{digits}f}{suffix}"


def error(x: float) -> str:
    """2.3e-3 rather than 2.3e-03."""
    return "-" if math.isnan(x) else f"{x:.1e}".replace("e-0", "e-")


def _peer(p: Peer | None) -> str:
    return f"{p.name} {p.us:.1f}" if p else "-"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


# What tells the cases apart: (column, cell). Columns that are the same in every row are not shown,
# but said once above the table.
Property = tuple[str, Callable[[Comparison], str]]
PROPERTIES: list[Property] = [
    ("KV", lambda c: c.case.kv_dtype),
    ("q", lambda c: str(c.case.q)),
    ("batch", lambda c: str(c.case.batch)),
    ("kv length", lambda c: f"{c.case.kv}{' skewed' if c.case.skew else ''}"),
    ("heads", lambda c: f"{c.case.hq}/{c.case.hkv}"),
    ("D", lambda c: str(c.case.d)),
    ("page", lambda c: str(c.case.page)),
    ("layout", lambda c: c.case.layout),
]


def _properties(cs: list[Comparison]) -> tuple[list[Property], str]:
    shown = [(k, f) for k, f in PROPERTIES if len({f(c) for c in cs}) > 1 or len(cs) == 1]
    same = ", ".join(f"{k} {f(cs[0])}" for k, f in PROPERTIES if (k, f) not in shown)
    return shown, same


def against_peers(rows: list[Row], cs: list[Comparison]) -> str:
    """Our time beside the ceiling, the best peer, the best 16-bit peer, and the limit."""
    shown, _ = _properties(cs)
    judged = any(targets.applies(row) for row in rows)
    head = [k for k, _ in shown]
    head += ["MB", "read", OURS, "GB/s", "of read", "error", "best peer", "speed-up"]
    head += ["best 16-bit peer", "speed-up"] if some_round(cs) else []
    head += ["limit", "met"] if judged else []
    kernels = len({c.kernel for c in cs}) > 1
    head += ["kernel"] if kernels else []
    lines = []
    for row, c in zip(rows, cs, strict=True):
        cells = [f(c) for _, f in shown]
        cells += [f"{row['bytes'] / 1e6:.0f}", number(c.read), f"**{number(c.ours)}**"]
        rate = row["bytes"] / c.ours / 1e3
        cells += [number(rate, 0 if rate >= 100 else 1), number(100 / c.over_read, 0, " %")]
        cells += [error(c.error), _peer(c.best), number(c.speedup, 2)]
        if some_round(cs):
            cells += [_peer(c.best_16_bit), number(c.speedup_16_bit, 2)]
        if judged:
            verdict = targets.verdict(c)
            cells += [number(verdict.limit_us), str(verdict)]
        cells += [c.kernel] if kernels else []
        lines.append(cells)
    return _table(head, lines)


def every_peer(cs: list[Comparison]) -> str:
    """Microseconds (relative error) of everyone."""
    shown, _ = _properties(cs)
    names = list(dict.fromkeys(p.name for c in cs for p in c.peers))
    lines = []
    for c in cs:
        cells = {
            p.name: f"{p.us:.1f}" + ("" if p.is_published else f" ({error(p.error)})")
            for p in c.peers
        }
        ours = f"**{number(c.ours)}** ({error(c.error)})"
        lines.append([f(c) for _, f in shown] + [ours] + [cells.get(n, "-") for n in names])
    return _table([k for k, _ in shown] + [OURS, *names], lines)


def summary(rows: list[Row], cs: list[Comparison]) -> str:
    lines = []
    for dtype in dict.fromkeys(c.case.kv_dtype for c in cs):
        mine = [c for c in cs if c.case.kv_dtype == dtype]
        values: list[tuple[str, list[float]]] = [
            ("time over the read", [c.over_read for c in mine]),
            ("the best peer's over the read", [c.best.us / c.read for c in mine if c.best]),
            ("speed-up over the best peer", [c.speedup for c in mine]),
        ]
        if some_round(mine):
            wide = [c.best_16_bit.us / c.read for c in mine if c.best_16_bit]
            values += [
                ("the best 16-bit peer's over the read", wide),
                ("speed-up over the best 16-bit peer", [c.speedup_16_bit for c in mine]),
            ]
        for what, x in values:
            x = [v for v in x if not math.isnan(v)]
            if x:
                mean = geometric_mean(x)
                lines.append(
                    f"{dtype}: {what}: {mean:.2f} ({min(x):.2f} to {max(x):.2f}, {len(x)} rows)"
                )
    judged = [c for r, c in zip(rows, cs, strict=True) if targets.applies(r)]
    if judged:
        met = sum(not targets.verdict(c).missed for c in judged)
        lines.append(f"targets: {met} of {len(judged)} rows meet theirs")
        for what, reached, wanted in targets.means(judged):
            verdict = "met" if reached >= wanted else "missed"
            lines.append(f"target: {what}: {reached:.2f} of {wanted:.2f}: {verdict}")
    lost = [c.case.name for c in cs if c.speedup < 1]
    compared = sum(c.best is not None for c in cs)
    if compared:
        lines.append(f"slower than the best peer in {len(lost)} of {compared} rows")
    lines += [f"  {name}" for name in lost] if len(cs) < MANY_ROWS else []
    not_run = [r["name"] for r, c in zip(rows, cs, strict=True) if math.isnan(c.ours)]
    lines += [f"{OURS} did not run: {name}" for name in not_run]
    return "Geometric means (smallest to largest)\n" + "\n".join(lines) + "\n"


def markdown(rows: list[Row], environment: dict[str, Any]) -> str:
    cs = [compare(row) for row in rows]
    gpu = environment.get("gpu")
    where = f"{gpu}, driver {environment['driver']}, CUDA {environment['cuda']}" if gpu else None
    changed = " with local changes" if environment["changed"] else ""
    _, same = _properties(cs)
    parts = [
        f"{where or environment['cpu']}, torch {environment['torch']}, {environment['date']}, "
        f"commit {environment['commit']}{changed}.{' ' + same + '.' if same else ''}\n",
        "Microseconds a call. read: a plain read of the same bytes of K and V in the same run. "
        "Errors are relative, against float64 on the stored cache."
        + (KINDS if some_round(cs) else "")
        + (PUBLISHED if any(p.is_published for c in cs for p in c.peers) else "")
        + "\n",
        against_peers(rows, cs),
        f"```\n{summary(rows, cs)}```\n",
    ]
    if len(cs) >= MANY_ROWS:
        orders: list[tuple[str, Value]] = [
            ("Slowest against the read", lambda c: 1 / c.over_read),
            ("Slowest against the best peer", lambda c: c.speedup),
        ]
        for title, value in orders:
            names = {c.case.name for c in worst(cs, value)}
            few = [(r, c) for r, c in zip(rows, cs, strict=True) if c.case.name in names]
            few.sort(key=lambda x: value(x[1]))
            parts += [f"{title}:\n", against_peers([r for r, _ in few], [c for _, c in few])]
    parts += ["Everyone's time and error:\n", every_peer(cs)]
    return "\n".join(parts)


def write(path: pathlib.Path, rows: list[Row], environment: dict[str, Any], plot: bool) -> str:
    """Writes path (.json) and its .md and .png neighbours; returns the Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    text = markdown(rows, environment)
    path.with_suffix(".md").write_text(text)
    if plot:
        from .plots import plot_bars, plot_sorted

        picture, cs = path.with_suffix(".png"), [compare(row) for row in rows]
        if len(rows) >= MANY_ROWS:
            plot_sorted(picture, cs, environment)
        else:
            plot_bars(picture, cs, environment)
    return text
