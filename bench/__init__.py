# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The benchmark: `python -m bench --help`. It measures; it never tests."""
