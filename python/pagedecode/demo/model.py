# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The Llama forward pass over a flat batch of tokens, attention injected as a function.

Rows of all sequences lie one after another, T in all, so that each weight is read once a call
however many prompts and drafts there are. Only attention knows which row belongs to which sequence.
RoPE is applied here, before keys are stored; GGUF permutes the rows of Q and K for interleaved
pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import Arrays
from .weights import Layer, Weights

# (layer, q [T, Hq, D], k [T, Hkv, D], v [T, Hkv, D]) -> [T, Hq, D]
Attend = Callable[[int, Any, Any, Any], Any]


class Model:
    """The weights on a device, and the forward pass."""

    def __init__(self, weights: Weights, arrays: Arrays) -> None:
        up = arrays.upload
        self.config = weights.config
        self._arrays = arrays
        self._layers = [Layer(*(up(matrix) for matrix in vars(w).values())) for w in weights.layers]
        self._norm = up(weights.norm)
        self._head = up(weights.head)
        self._embedding = self._head.T

    def forward(
        self, tokens: np.ndarray, positions: np.ndarray, attend: Attend, rows: np.ndarray
    ) -> np.ndarray:
        """Logits, float32 [len(rows), vocabulary], of the given rows of T tokens."""
        arrays, eps = self._arrays, self.config.eps
        turns = arrays.upload(self._turns(positions))
        x = self._embedding[arrays.upload(tokens)]  # [T, width]
        for i, w in enumerate(self._layers):
            x = x + self._attention(i, w, arrays.rms_norm(x, w.attention_norm, eps), turns, attend)
            gate_up = arrays.rms_norm(x, w.mlp_norm, eps) @ w.gate_up
            hidden = self.config.hidden
            x = x + (arrays.silu(gate_up[:, :hidden]) * gate_up[:, hidden:]) @ w.down
        x = arrays.rms_norm(x[arrays.upload(rows)], self._norm, eps)
        return arrays.download(x @ self._head)

    def _attention(self, i: int, w: Layer, x: Any, turns: Any, attend: Attend) -> Any:
        c = self.config
        heads = (x @ w.qkv).reshape(len(x), c.q_heads + 2 * c.kv_heads, c.head_dim)
        values = c.q_heads + c.kv_heads
        rotated = self._arrays.rotate(heads[:, :values], turns)
        out = attend(i, rotated[:, : c.q_heads], rotated[:, c.q_heads :], heads[:, values:])
        return out.reshape(len(x), c.q_heads * c.head_dim) @ w.out

    def _turns(self, positions: np.ndarray) -> np.ndarray:  # complex64 [T, 1, D / 2]
        half = self.config.head_dim // 2
        frequency = self.config.rope_theta ** -(np.arange(half) / half)
        return np.exp(1j * positions[:, None, None] * frequency).astype(np.complex64)
