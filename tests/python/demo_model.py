# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's model and tokeniser, read once for all tests, and a small run of the demo's parts."""

from functools import lru_cache
from typing import Any

from pagedecode.demo.arrays import NumpyArrays
from pagedecode.demo.attention import PagedAttention
from pagedecode.demo.generate import Answer, Generator, Options, pages_needed
from pagedecode.demo.model import Model
from pagedecode.demo.pages import Pages
from pagedecode.demo.tokenizer import Tokenizer
from pagedecode.demo.weights import Weights, find_model, open_model, read_weights

COPY = "Repeat this text exactly:\n\nA table tells where each block is, and nothing is lost."
FREE = "Why is the sky blue?"


@lru_cache
def reader() -> Any:
    """The opened model file."""
    return open_model(find_model())


@lru_cache
def tokenizer() -> Tokenizer:
    """The model's tokeniser."""
    return Tokenizer(reader())


@lru_cache
def weights() -> Weights:
    """The model's weights."""
    return read_weights(reader())


@lru_cache
def numpy_model() -> Model:
    """The model in NumPy."""
    return Model(weights(), NumpyArrays())


def generate(
    prompts: list[str],
    *,
    tokens: int,
    max_draft: int = 7,
    kv_dtype: str = "float32",
    page_size: int = 16,
    arrays: Any = None,
) -> tuple[list[Answer], PagedAttention, Generator]:
    """Answers prompts as the command does, without printing."""
    system = tokenizer().system()
    answers = [Answer(f"{i}", system + tokenizer().user(p)) for i, p in enumerate(prompts)]
    options = Options(max_tokens=tokens, max_draft=max_draft, end=tokenizer().end)
    model = Model(weights(), arrays) if arrays else numpy_model()
    pages = Pages(pages_needed(answers, options, page_size), page_size, seed=1)
    attention = PagedAttention(
        weights().config, arrays or NumpyArrays(), pages, kv_dtype, "float32"
    )
    generator = Generator(model, attention, pages, options)
    generator.run(answers, len(system), lambda *_: None)
    return answers, attention, generator
