#!/bin/sh
# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# check_wheel.sh <wheel>: the promises that a wheel makes: one file for every Python from 3.10 on,
# under 40 MB, a module and type hints inside, and an import in a fresh environment.
set -eu
wheel=$1
fail() {
  echo "$wheel: $1" >&2
  exit 1
}

case $wheel in
  *-cp310-abi3-*.whl) ;;
  *) fail "is not tagged cp310-abi3" ;;
esac
size=$(wc -c <"$wheel")
[ "$size" -lt 40000000 ] || fail "has $size bytes, want less than 40000000"

names=$(python3 -m zipfile -l "$wheel")
for name in pagedecode/_core.abi3.so pagedecode/py.typed pagedecode/__init__.py licenses/NOTICE; do
  case $names in
    *"$name"*) ;;
    *) fail "lacks $name" ;;
  esac
done

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
cd "$venv" # not the source tree
"$venv/bin/python" -c "import pagedecode; print('imports:', pagedecode.__version__, pagedecode.backends())"
echo "$(basename "$wheel"): $size bytes"
