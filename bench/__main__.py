# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""One command for every number:

python -m bench                         CPU cases, all providers, results/cpu.{json,md,png}
python -m bench --device cuda           the 28 rows of the field
python -m bench --host                  host time of a call
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys

import torch

from . import environment, host_time, report
from .cases import CASE_SETS
from .problem import Problem
from .providers import DEFAULTS, PROVIDERS, Unavailable
from .timing import Run, time_cpu, time_cuda_graph

MAX_CHECK_BYTES = 4e9


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cases", choices=sorted(CASE_SETS), help="default: cpu, or table on cuda")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--providers", help="comma-separated: " + ", ".join(PROVIDERS))
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results"
    )
    parser.add_argument("--stem", help="name of the result files; default: the case set's")
    parser.add_argument("--commit", help="where there is no repository to ask")
    parser.add_argument("--no-plot", action="store_true")
    parser.add_argument("--host", action="store_true", help="host time of a call instead")
    return parser.parse_args()


def measure(problem: Problem, providers: list[str]) -> report.Row:
    row: report.Row = {
        "name": problem.case.name,
        "case": dataclasses.asdict(problem.case),
        "device": problem.device,
        "bytes": problem.bytes,
        "us": {},
        "error": {},
        "why": {},
    }
    runs: dict[str, Run] = {}
    for name in providers:
        try:
            for label, run in PROVIDERS[name](problem).items():
                out = run(0)
                if isinstance(out, torch.Tensor) and problem.bytes < MAX_CHECK_BYTES:
                    row["error"][label] = problem.error(0, out)
                runs[label] = run
        except Unavailable as e:
            row["why"][name] = str(e)
        except Exception as e:  # a peer that fails on a case is a result, not the end of the run
            if name == report.OURS:
                raise
            row["why"][name] = repr(e)[:300]
    if problem.device == "cpu":
        row["us"] = time_cpu(runs, problem.sets)
        return row
    for label, run in runs.items():
        row["us"][label] = time_cuda_graph(run, problem.sets)
    return row


def main() -> int:
    options = _options()
    if options.host:
        for name, us in host_time.measure().items():
            print(f"{name:32} {us:6.1f} us")
        return 0
    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench: --device cuda, but torch sees no GPU", file=sys.stderr)
        return 2
    cases = options.cases or ("cpu" if options.device == "cpu" else "table")
    names = options.providers.split(",") if options.providers else DEFAULTS[options.device]
    unknown = [n for n in names if n not in PROVIDERS]
    if unknown:
        print(f"bench: unknown providers {unknown}, known {list(PROVIDERS)}", file=sys.stderr)
        return 2
    where = environment.describe(options.device, options.commit)
    rows = []
    for case in CASE_SETS[cases]():
        if options.only not in case.name:
            continue
        problem = Problem(case, options.device)
        row = measure(problem, list(names))
        rows.append(row)
        times = " ".join(f"{k} {v:.1f}" for k, v in row["us"].items())
        print(f"{case.name} ({problem.bytes / 1e6:.0f} MB x {problem.sets}): {times}", flush=True)
        for reason in row["why"].values():
            print(f"  {reason}", flush=True)
        del problem
        if options.device == "cuda":
            torch.cuda.empty_cache()
    print(report.markdown(rows, where))
    print(report.summary(rows))
    report.write(options.out, options.stem or cases, rows, where, not options.no_plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
