#!/bin/sh
# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# make_venv.sh <python> <venv> <cuda: ON|OFF>: makes the environment and installs into it what the
# build needs. Builds then run without pip's build isolation: the headers keep their paths, so that a
# second build is incremental and ccache hits.
set -eu
python=$1 venv=$2 cuda=$3

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"

$pip 'pip>=23.1' # -C; Debian 12 and Ubuntu 22.04 make environments with an older one

# The requirements of the build are those of pyproject.toml.
requirements=$("$venv/bin/python" - <<'PY'
import re
text = open("pyproject.toml").read()
block = re.search(r"^requires = \[(.*?)^\]", text, re.S | re.M)[1]
print("\n".join(re.findall(r'"([^"]+)"', block)))
PY
)
# shellcheck disable=SC2086 # one word for each requirement
$pip -c tests/constraints.txt $requirements

# CMake and Ninja: the system's where they are new enough.
at_least() { # at_least <version> <least>
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}
have=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
at_least "${have:-0}" 3.25 || $pip 'cmake>=3.25,<5'
have=$(ninja --version 2>/dev/null || true)
at_least "${have:-0}" 1.10 || $pip 'ninja>=1.10'

if [ "$cuda" = ON ] && [ -z "${CUTLASS_INCLUDE_DIR:-}" ]; then
  # Only its headers are used; what it depends on is not.
  $pip --no-deps "$(sed -n 's/^CUTLASS = "\([^"]*\)".*/\1/p' cmake/pagedecode_build.py)"
fi
