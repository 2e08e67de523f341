# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What the user sees: the answers as they grow, then the table and the proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import require
from .generate import Answer, Cost, Totals
from .tokenizer import Tokenizer
from .verify import Proof

HEADINGS = (
    "tokens",
    "model calls",
    "drafted",
    "accepted",
    "tokens a call",
    "seconds",
    "in attention",
)
DRAFTED = "green"  # text that a draft got right
LINE = 66  # characters of text a line without a terminal, after the name


class Stream:
    """Answers side by side on a terminal; elsewhere line by line, each with its prompt's name."""

    def __init__(self, console: Any, answers: Sequence[Answer], tokenizer: Tokenizer) -> None:
        text = require("rich.text").Text
        self._console = console
        self._tokenizer = tokenizer
        self._texts = {answer.name: text() for answer in answers}
        self._taken = dict.fromkeys(self._texts, 0)  # characters of the answer in its Text
        self._printed = dict.fromkeys(self._texts, 0)  # characters of its Text printed as lines
        self._live: Any = None
        if console.is_terminal:
            self._live = require("rich.live").Live(
                console=console, auto_refresh=False, transient=True
            )

    def __enter__(self) -> Stream:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            for name, text in self._texts.items():
                self._console.print(self._panel(name, text))

    def listen(self, answer: Answer, new: list[int], accepted: int) -> None:
        """Shows what one call of the model added to an answer."""
        own = len(answer.tokens) - len(new) + accepted
        self._extend(answer, own, DRAFTED)
        self._extend(answer, len(answer.tokens), "")
        if self._live:
            self._live.update(self._view(), refresh=True)
        else:
            self._print_lines(answer)

    def _extend(self, answer: Answer, count: int, style: str) -> None:
        tokens = [token for token in answer.tokens[:count] if token != self._tokenizer.end]
        whole = self._tokenizer.decode(tokens)
        if not answer.finished:
            whole = whole.rstrip("\N{REPLACEMENT CHARACTER}")  # a character's bytes still to come
        self._texts[answer.name].append(whole[self._taken[answer.name] :], style=style)
        self._taken[answer.name] = len(whole)

    def _view(self) -> Any:
        """All answers' last lines, as many as the terminal has room for."""
        text_class = require("rich.text").Text
        room = max(1, (self._console.height - 1) // len(self._texts) - 2)
        panels = []
        for name, text in self._texts.items():
            lines = list(text.wrap(self._console, self._console.width - 4))
            panels.append(self._panel(name, text_class("\n").join(lines[-room:])))
        return require("rich.console").Group(*panels)

    def _panel(self, name: str, text: Any) -> Any:
        return require("rich.panel").Panel(text, title=name, title_align="left", border_style="dim")

    def _print_lines(self, answer: Answer) -> None:
        plain = self._texts[answer.name].plain
        while rest := plain[self._printed[answer.name] :]:
            line, newline, _ = rest.partition("\n")
            if len(line) > LINE:
                line, newline = line[: line.rfind(" ", 1, LINE) + 1] or line[:LINE], ""
            elif not newline and not answer.finished:
                return
            self._printed[answer.name] += len(line + newline)
            self._console.print(f"{answer.name:>10} | {line}", markup=False, highlight=False)


def table(answers: Sequence[Answer], totals: Totals) -> Any:
    """The figures of each prompt, and their sums."""
    made = require("rich.table").Table(box=require("rich.box").SIMPLE_HEAD, collapse_padding=True)
    made.add_column("prompt", no_wrap=True)
    for heading in HEADINGS:
        longest_word = max(map(len, heading.split()))  # fits 80 columns, no word cut
        made.add_column(heading, justify="right", min_width=longest_word)
    for answer in answers:
        counts = [len(answer.tokens), answer.calls, answer.drafted, answer.accepted]
        made.add_row(answer.name, *_figures(counts, answer))
    made.add_section()
    made.add_row("all", *_figures(_sums(answers), totals))
    return made


def summary(answers: Sequence[Answer], totals: Totals) -> str:
    """The gain in words."""
    tokens, calls, _, _ = _sums(answers)
    return (
        f"One token at a time the answers take {tokens} calls; they took {calls}. In one batch the "
        f"model ran {totals.calls} times, {totals.seconds:.1f} s, "
        f"{tokens / totals.seconds:.0f} tokens/s."
    )


def _sums(answers: Sequence[Answer]) -> list[int]:
    rows = [(len(a.tokens), a.calls, a.drafted, a.accepted) for a in answers]
    return [sum(column) for column in zip(*rows, strict=True)]


def _figures(counts: Sequence[int], cost: Cost) -> list[str]:
    gain = f"{counts[0] / max(counts[1], 1):.2f}"
    share = cost.attention_seconds / cost.seconds if cost.seconds else 0.0
    return [*map(str, counts), gain, f"{cost.seconds:.1f}", f"{share:.0%}"]


def proof_lines(proof: Proof) -> list[str]:
    """The proof in plain words, near ties and failures one a line."""
    verdict = "proven" if proof.holds else "NOT PROVEN"
    same = "same text" if not proof.near_ties and proof.holds else f"{proof.tokens} tokens compared"
    lines = [
        f"Proof: {verdict}. {proof.tokens} tokens {proof.how}: {same}, "
        f"logits within {proof.logit_error:.1e} (allowed {proof.tolerance:.0e}), "
        f"{proof.seconds:.1f} s."
    ]
    if proof.stored_error is not None:
        lines.append(
            f"Stored keys and values are within {proof.stored_error:.2f} roundings of the replay's."
        )
    lines += [f"Near tie: {tie}" for tie in proof.near_ties]
    shown = proof.failures[:10]
    lines += [f"Failure: {failure}" for failure in shown]
    if len(proof.failures) > len(shown):
        lines.append(f"... and {len(proof.failures) - len(shown)} more")
    return lines
