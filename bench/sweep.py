# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The sweep: 132 cases that no one tuned for, by rule and not by chance.

Every (cache type, q, group, head dim) once; page size, layout and shape turn with them so that
every pair of values of any two properties occurs. Then long sequences. From 8 MB a call to 4 GB."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .cases import Case

DTYPES = ("bf16", "e4m3")
QS = (1, 2, 4, 8, 16)
HEADS = {1: (16, 16), 4: (32, 8), 8: (64, 8), 16: (64, 4)}  # group: query heads, KV heads
HEAD_DIMS = (64, 128, 256)
PAGES = (1, 16, 64)
LAYOUTS = ("NHD", "HND")
SHAPES = (  # batch, kv, skewed
    (1, 8192, False),
    (1, 131072, False),
    (2, 32768, False),
    (8, 8192, False),
    (16, 4096, False),
    (32, 2048, False),
    (64, 1024, False),
    (256, 512, False),
    (256, 1024, False),
    (32, 8192, True),
    (128, 1024, True),
)


def sweep() -> Iterator[Case]:
    grid = itertools.product(
        enumerate(DTYPES), enumerate(QS), enumerate(HEADS), enumerate(HEAD_DIMS)
    )
    for n, ((t, dtype), (i, q), (g, group), (j, d)) in enumerate(grid):
        hq, hkv = HEADS[group]
        batch, kv, skew = SHAPES[4 * n % len(SHAPES)]
        page, layout = PAGES[(i + g + j) % len(PAGES)], LAYOUTS[(i + g + t) % len(LAYOUTS)]
        yield Case(dtype, q, batch, kv, hq, hkv, d, page, layout, skew)
    for dtype, q, page in itertools.product(DTYPES, (1, 4, 16), (16, 64)):
        yield Case(dtype, q, 4, 131072, page=page)
