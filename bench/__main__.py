# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""One command for every number:

python -m bench                                 CPU cases, all providers
python -m bench --device cuda                   the 28 rows of the field
python -m bench --device cuda --cases sweep     132 cases by rule
python -m bench --host                          host time of a call
python -m bench --render bench/results/h200-table.json

The first three write JSON, Markdown and plots under bench/results/; the last one writes Markdown
and plots again from the JSON."""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

import torch

from . import environment, host_time, report
from .cases import Case, cpu, cpu_smoke, smoke, table
from .compare import OURS, Row
from .measure import measure, release
from .problem import Problem
from .providers import PROVIDERS, defaults
from .sweep import sweep
from .timing import Repeats

CASE_SETS: dict[str, Callable[[], Iterator[Case]]] = {
    "cpu": cpu,
    "cpu-smoke": cpu_smoke,
    "table": table,
    "sweep": sweep,
    "smoke": smoke,
}
MOST = Repeats(9, 30, 0.08)  # replays of a CUDA graph: 8 calls of the largest problems take 4 ms
REPEATS = {"sweep": Repeats(5, 10, 0.03)}
BEGIN = time.monotonic()
RESULTS = pathlib.Path(__file__).parent / "results"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--cases", help=f"of {', '.join(CASE_SETS)}; several with commas; default: cpu or table"
    )
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--start", type=int, default=0, help="skip so many cases")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th case")
    parser.add_argument("--providers", help="comma-separated: " + ", ".join(PROVIDERS))
    parser.add_argument(
        "--stop-after",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="start no further case then",
    )
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--commit", help="where there is no repository to ask")
    parser.add_argument("--no-plot", action="store_true")
    parser.add_argument("--host", action="store_true", help="host time of a call instead")
    parser.add_argument("--render", type=pathlib.Path, metavar="JSON")
    options = parser.parse_args()
    if options.start < 0:
        parser.error(f"argument --start: got {options.start}, want 0 or more")
    if options.every < 1:
        parser.error(f"argument --every: got {options.every}, want 1 or more")
    return options


def _measure_all(options: argparse.Namespace, cases: str, providers: list[str]) -> list[Row]:
    rows: list[Row] = []
    repeats = REPEATS.get(cases, MOST)
    chosen = [c for c in CASE_SETS[cases]() if options.only in c.name]
    chosen = chosen[options.start :: options.every]
    for case in chosen:
        if time.monotonic() - BEGIN > options.stop_after:
            print(f"bench: stopped after {len(rows)} of {len(chosen)} cases", file=sys.stderr)
            break
        try:
            problem = Problem(case, options.device)
            row = measure(problem, providers, repeats)
        except torch.AcceleratorError as e:  # an illegal access ends all work, not the report
            print(f"bench: stopped at {case.name}: {e}", file=sys.stderr)
            break
        rows.append(row)
        times = " ".join(f"{k} {v:.1f}" for k, v in row["us"].items())
        print(f"{case.name} ({problem.bytes / 1e6:.0f} MB x {problem.sets}): {times}", flush=True)
        for reason in row["why"].values():
            print(f"  {reason}", flush=True)
        del problem
        release()
    return rows


def _run(options: argparse.Namespace, cases: str, providers: list[str]) -> int:
    where = environment.describe(options.device, options.commit)
    rows = _measure_all(options, cases, providers)
    if not rows:
        print(f"bench: no case of {cases} was measured", file=sys.stderr)
        return 2
    gpu = str(where["gpu"]).split()[-1].lower() + "-" if options.device == "cuda" else ""
    path = options.out / f"{gpu}{cases}.json"
    print(report.write(path, rows, where, not options.no_plot))
    # A case that pagedecode itself could not run is an error, after the results are written.
    return 1 if any(OURS in row["why"] for row in rows) else 0


def main() -> int:
    options = _options()
    if options.host:
        for name, us in host_time.measure().items():
            print(f"{name:32} {us:6.1f} us")
        return 0
    if options.render:
        data = json.loads(options.render.read_text())
        report.write(options.render, data["rows"], data["environment"], not options.no_plot)
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench: --device cuda, but torch sees no GPU", file=sys.stderr)
        return 2
    names = (options.cases or ("cpu" if options.device == "cpu" else "table")).split(",")
    chosen = options.providers.split(",") if options.providers else []
    for what, given, known in ("cases", names, CASE_SETS), ("providers", chosen, PROVIDERS):
        unknown = [x for x in given if x not in known]
        if unknown:
            print(f"bench: unknown {what} {unknown}, known: {', '.join(known)}", file=sys.stderr)
            return 2
    return max(_run(options, cases, chosen or defaults(options.device, cases)) for cases in names)


if __name__ == "__main__":
    sys.exit(main())
