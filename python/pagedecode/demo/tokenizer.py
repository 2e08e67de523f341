# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Text to tokens and back: byte-level BPE from the GGUF metadata, and the ChatML template.

The file's pre-tokeniser "smollm" splits digits one by one, then applies GPT-2's rule. Special
tokens are placed by id and never parsed out of a text, so that a prompt cannot close its own turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .errors import DemoError, require
from .weights import field

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Tokenizer:
    """The model's tokeniser; `end` is the token that ends a turn."""

    def __init__(self, reader: Any) -> None:
        kind = field(reader, "tokenizer.ggml.model"), field(reader, "tokenizer.ggml.pre")
        if kind != ("gpt2", "smollm"):
            raise DemoError(f"the model file's tokeniser is {kind}, want ('gpt2', 'smollm')")
        tokenizers = require("tokenizers")
        self._pieces: list[str] = field(reader, "tokenizer.ggml.tokens")
        merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
        vocabulary = {piece: token for token, piece in enumerate(self._pieces)}
        self._bpe: Any = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
        self._bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [
                tokenizers.pre_tokenizers.Digits(individual_digits=True),
                tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        self._bpe.decoder = tokenizers.decoders.ByteLevel()
        self.start = vocabulary["<|im_start|>"]
        self.end = int(field(reader, "tokenizer.ggml.eos_token_id"))

    def encode(self, text: str) -> list[int]:
        """The tokens of a plain text."""
        tokens: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; an unfinished UTF-8 sequence becomes U+FFFD."""
        text: str = self._bpe.decode(list(tokens), skip_special_tokens=False)
        return text

    def system(self) -> list[int]:
        """The ChatML turn that every prompt starts with."""
        return self._turn("system", SYSTEM)

    def user(self, prompt: str) -> list[int]:
        """The user's turn and the opening of the assistant's."""
        return [*self._turn("user", prompt), self.start, *self.encode("assistant\n")]

    def _turn(self, role: str, text: str) -> list[int]:
        return [self.start, *self.encode(f"{role}\n{text}"), self.end, *self.encode("\n")]
