#!/bin/sh
# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# check_tools.sh <python> <least version> <cuda: ON|OFF>: says in one line each what the build needs
# and this machine lacks; exits 1 if anything is missing.
python=$1 least=$2 cuda=$3
missing=0
say() {
  echo "missing: $1" >&2
  missing=1
}

if ! command -v "$python" >/dev/null; then
  say "Python $least or newer ('$python' is no command; apt-get install python3, or make PYTHON=/path/to/python)"
else
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  "$python" -c "import sys; sys.exit(sys.version_info[:2] < tuple(map(int, '$least'.split('.'))))" ||
    say "Python $least or newer ($python is $version; make PYTHON=/path/to/python names another)"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    say "Python's venv module (apt-get install python3-venv)"
  "$python" -c 'import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' ||
    say "Python's headers (apt-get install python3-dev)"
fi
command -v "${CXX:-c++}" >/dev/null || say "a C++17 compiler (apt-get install g++)"
if [ "$cuda" = ON ]; then
  command -v "${CUDACXX:-nvcc}" >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    say "nvcc 12.5 or newer, since CUDA=ON or a GPU is listed (CUDA=OFF builds without)"
fi
exit $missing
