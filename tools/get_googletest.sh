#!/bin/sh
# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# GoogleTest from the system where apt-get may be used; where it may not, CMake fetches it.
[ -e /usr/include/gtest/gtest.h ] && exit 0
command -v apt-get >/dev/null || exit 0
if [ "$(id -u)" = 0 ]; then
  sudo=
elif sudo -n true 2>/dev/null; then
  sudo="sudo -n"
else
  echo "GoogleTest: not installed and no right to use apt-get: CMake will fetch it"
  exit 0
fi
echo "GoogleTest: installing libgtest-dev with apt-get"
{ $sudo apt-get update -qq && $sudo apt-get install -y -qq libgtest-dev; } >/dev/null ||
  echo "GoogleTest: apt-get failed: CMake will fetch it"
exit 0
