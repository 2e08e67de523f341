# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Times of a peer that is on no registry: Tencent hpc-ops (commit 6e2eced) on one NVIDIA H200,
2026-11-30, dynamic decode, the better of two split settings, Q quantised and the schedule kernel
(50 to 105 us) outside the timed call. Constants, shown as such; q at most 4."""

from __future__ import annotations

from ..cases import Case

HPC_OPS_US: dict[tuple[str, int, int, int, bool], float] = {
    # (KV dtype, q, batch, kv, skewed): microseconds; 64 query heads, 8 KV heads, D 128, page 64
    ("bf16", 1, 1, 8192, False): 15.4,
    ("bf16", 1, 1, 131072, False): 130.6,
    ("bf16", 1, 16, 4096, False): 72.3,
    ("bf16", 1, 64, 1024, False): 72.8,
    ("bf16", 1, 64, 8192, False): 519.2,
    ("bf16", 1, 32, 8192, True): 265.3,
    ("bf16", 4, 1, 8192, False): 18.5,
    ("bf16", 4, 1, 131072, False): 135.6,
    ("bf16", 4, 16, 4096, False): 73.0,
    ("bf16", 4, 64, 1024, False): 88.5,
    ("bf16", 4, 64, 8192, False): 512.9,
    ("bf16", 4, 32, 8192, True): 264.8,
    ("e4m3", 1, 1, 8192, False): 12.0,
    ("e4m3", 1, 1, 131072, False): 70.3,
    ("e4m3", 1, 16, 4096, False): 39.5,
    ("e4m3", 1, 64, 1024, False): 40.4,
    ("e4m3", 1, 64, 8192, False): 260.1,
    ("e4m3", 1, 32, 8192, True): 136.4,
    ("e4m3", 4, 1, 8192, False): 16.7,
    ("e4m3", 4, 1, 131072, False): 82.7,
    ("e4m3", 4, 16, 4096, False): 46.3,
    ("e4m3", 4, 64, 1024, False): 61.0,
    ("e4m3", 4, 64, 8192, False): 298.1,
    ("e4m3", 4, 32, 8192, True): 159.5,
}


def hpc_ops_us(case: Case) -> float | None:
    if (case.hq, case.hkv, case.d, case.page, case.layout) != (64, 8, 128, 64, "NHD"):
        return None
    return HPC_OPS_US.get((case.kv_dtype, case.q, case.batch, case.kv, case.skew))
