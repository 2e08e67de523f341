# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The command line: `pagedecode demo`, `pagedecode info`, `pagedecode --version`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import pagedecode

from .demo import cli
from .demo.errors import DemoError


class Parser(argparse.ArgumentParser):
    """Errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code."""
    parser = Parser(prog="pagedecode", description="Paged multi-query flash-decoding.")
    version = f"pagedecode {pagedecode.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="demo|info")
    demo = commands.add_parser("demo", help="real text by speculative decoding over a paged cache")
    commands.add_parser("info", help="the version, and which backends run here")
    cli.add_arguments(demo)
    args = parser.parse_args(argv)
    if args.command == "info":
        return info()
    if argv is None:
        limit_blas_threads()
    return run_demo(args)


def info() -> int:
    """Prints the version and the backends."""
    print(f"pagedecode {pagedecode.__version__}")
    for name, backend in pagedecode.backends().items():
        print(f"{name}: {'runs' if backend['runs'] else 'off: ' + backend['why']}")
    return 0


def run_demo(args: argparse.Namespace) -> int:
    """Runs the demo; what the user can mend is told in one line."""
    try:
        return cli.run(args)
    except (DemoError, pagedecode.Unsupported) as error:
        print(f"pagedecode demo: {error}", file=sys.stderr)
    except MemoryError:
        print("pagedecode demo: out of memory; lower --max-tokens", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


def limit_blas_threads() -> None:
    """Starts this process anew with one OpenBLAS thread, which NumPy reads when it loads.

    NOTE: on a small machine the demo's narrow products are up to 6 times faster that way: OpenBLAS'
    threads spin while they wait, and take the cores from attention's.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
