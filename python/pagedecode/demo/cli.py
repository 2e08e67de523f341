# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Options and the run of `pagedecode demo`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import pagedecode

from .arrays import KV_DTYPES, Arrays, NumpyArrays, choose_arrays
from .attention import PagedAttention
from .errors import DemoError, require
from .generate import Answer, Generator, Options, pages_needed
from .model import Model
from .pages import Pages
from .prompts import PROMPTS
from .report import Stream, proof_lines, summary, table
from .tokenizer import Tokenizer
from .verify import prove
from .weights import Config, Weights, find_model, open_model, read_config, read_weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's options."""
    add = parser.add_argument
    add("--prompt", action="append", metavar="TEXT", help="a prompt of your own; may be repeated")
    add("--kv-dtype", choices=KV_DTYPES, help="the cache's type (cpu: float32; cuda: float16)")
    add("--page-size", type=_whole(1, 1024), default=16, metavar="P", help="tokens a page (16)")
    add("--max-draft", type=_whole(0, 7), default=7, metavar="K", help="longest draft, 0 to 7 (7)")
    add("--no-speculation", action="store_true", help="one token a call, as with --max-draft 0")
    add("--max-tokens", type=_whole(1, 8192), default=128, metavar="N", help="per prompt (128)")
    add("--seed", type=_whole(0, 2**63 - 1), default=0, help="of the shuffled pages (0)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where attention runs (cpu)")
    add("--no-proof", action="store_true", help="skip the comparison with plain attention")


def run(args: argparse.Namespace) -> int:
    """Generates, reports, proves; 0 if the proof holds."""
    kv_dtype, q_dtype = _choose_types(args)
    prompts = _name_prompts(args.prompt)
    console = require("rich.console").Console()
    started = time.perf_counter()
    arrays = choose_arrays(args.device)
    with console.status("Reading the model ..."):
        reader = open_model(find_model())
        tokenizer = Tokenizer(reader)
    system = tokenizer.system()
    options = Options(
        max_tokens=args.max_tokens,
        max_draft=0 if args.no_speculation else args.max_draft,
        end=tokenizer.end,
        keep_logits=not args.no_proof,
    )
    answers = [Answer(name, system + tokenizer.user(text)) for name, text in prompts.items()]
    _check_lengths(answers, options, read_config(reader))
    with console.status("Reading the model ..."):
        weights = read_weights(reader)
        model = Model(weights, arrays)
    pages = Pages(pages_needed(answers, options, args.page_size), args.page_size, args.seed)
    attention = PagedAttention(weights.config, arrays, pages, kv_dtype, q_dtype)
    loaded = time.perf_counter() - started
    _say(
        console,
        f"pagedecode {pagedecode.__version__}, SmolLM2-135M-Instruct, attention on the "
        f"{'CPU' if args.device == 'cpu' else 'GPU'}; {kv_dtype} cache of {pages.num_pages} "
        f"shuffled pages of {args.page_size}; drafts of up to {options.max_draft} tokens"
        f"{', shown green where right' if console.is_terminal else ''}.",
    )
    generator = Generator(model, attention, pages, options)
    with Stream(console, answers, tokenizer) as stream:
        generator.run(answers, len(system), stream.listen)
    console.print(table(answers, generator.totals))
    _say(console, summary(answers, generator.totals))
    proven = args.no_proof or _prove(console, arrays, model, weights, attention, answers)
    _say(console, f"Model loaded in {loaded:.1f} s, {time.perf_counter() - started:.1f} s in all.")
    return 0 if proven else 1


def _prove(
    console: Any,
    arrays: Arrays,
    model: Model,
    weights: Weights,
    attention: PagedAttention,
    answers: list[Answer],
) -> bool:
    reference = model if type(arrays) is NumpyArrays else Model(weights, NumpyArrays())
    with console.status("Proving: the same through plain float32 attention ..."):
        proof = prove(reference, attention, answers)
    for line in proof_lines(proof):
        _say(console, line)
    return proof.holds


def _choose_types(args: argparse.Namespace) -> tuple[str, str]:
    """Types of the cache and of the queries; a GPU takes 16-bit queries, the CPU float32."""
    if args.device == "cpu":
        return args.kv_dtype or "float32", "float32"
    cuda: dict[str, Any] = pagedecode.backends()["cuda"]
    if not cuda["runs"]:
        raise DemoError(f"--device cuda: {cuda['why']}")
    kv_dtype = args.kv_dtype or "float16"
    if kv_dtype == "float32":
        raise DemoError("--kv-dtype float32: the CUDA backend takes caches of 16 or 8 bits")
    return kv_dtype, kv_dtype if kv_dtype == "bfloat16" else "float16"


def _name_prompts(texts: list[str] | None) -> dict[str, str]:
    for text in texts or []:
        if not text.strip():
            raise DemoError("--prompt: got an empty text, want a prompt")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DemoError("--prompt: got bytes that are not UTF-8") from error
    return {f"prompt {i}": text for i, text in enumerate(texts, 1)} if texts else PROMPTS


def _check_lengths(answers: list[Answer], options: Options, config: Config) -> None:
    for answer in answers:
        if len(answer.prompt) + options.max_tokens > config.context:
            raise DemoError(
                f"--max-tokens: got {options.max_tokens} after a prompt of {len(answer.prompt)} "
                f"tokens, want both within the model's {config.context}"
            )


def _say(console: Any, text: str) -> None:
    console.print(text, markup=False, highlight=False)


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"got {text!r}, want a whole number from {least} to {most}"
            )
        return number

    return parse
