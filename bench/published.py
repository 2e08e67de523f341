# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Times of peers as they were measured on one NVIDIA H200 on 2026-11-30 (64 query heads, 8 KV
heads, D 128, page 64, NHD, causal; CUDA graphs of rotating instances, medians). Constants, shown
with a star, and only for a peer that the run itself did not measure, on the same GPU.

hpc: Tencent hpc-ops, commit 6e2eced, which is on no registry: dynamic decode, the better of two
split settings, Q quantised and the schedule kernel (50 to 105 us a step) outside the timed call; q
at most 4. vllm-fa3: FlashAttention-3 as the wheel of vllm 0.33.0 carries it (64-row tiles),
metadata precomputed, Q quantised outside the timed call. Over e4m3 caches both round Q and the
probabilities to fp8: relative error 3.6e-2."""

from __future__ import annotations

from .cases import Case, table

GPU = "NVIDIA H200"
ERROR = {"bf16": 3e-3, "e4m3": 3.6e-2}  # of both, by the cache's type: tells who keeps 16 bits

# (KV dtype, q): microseconds of their rows of the table, in its order
_Times = dict[tuple[str, int], tuple[float, ...]]
_HPC_OPS: _Times = {
    ("bf16", 1): (15.4, 130.6, 72.3, 72.8, 519.2, 265.3),
    ("bf16", 4): (18.5, 135.6, 73.0, 88.5, 512.9, 264.8),
    ("e4m3", 1): (12.0, 70.3, 39.5, 40.4, 260.1, 136.4),
    ("e4m3", 4): (16.7, 82.7, 46.3, 61.0, 298.1, 159.5),
}
_VLLM_FA3: _Times = {
    ("bf16", 1): (17.3, 137.7, 71.3, 77.5, 492.8, 283.0),
    ("bf16", 4): (18.7, 139.9, 71.0, 81.4, 496.6, 288.4),
    ("bf16", 8): (134.4,),
    ("bf16", 16): (138.8,),
    ("e4m3", 1): (16.5, 102.8, 51.4, 62.5, 349.7, 232.4),
    ("e4m3", 4): (17.0, 104.4, 51.9, 65.1, 353.1, 237.8),
    ("e4m3", 8): (94.2,),
    ("e4m3", 16): (137.6,),
}
_PEERS: dict[str, _Times] = {"hpc": _HPC_OPS, "vllm-fa3": _VLLM_FA3}


_BY_CASE: dict[Case, dict[str, float]] = {case: {} for case in table()}
for _peer, _times in _PEERS.items():
    for _key, _row in _times.items():
        _cases = [case for case in _BY_CASE if (case.kv_dtype, case.q) == _key]
        for _case, _us in zip(_cases, _row, strict=True):
            _BY_CASE[_case][_peer] = _us


def published_us(case: Case) -> dict[str, float]:
    """Microseconds by peer, for the cases that were measured."""
    return _BY_CASE.get(case, {})
