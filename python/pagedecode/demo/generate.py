# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Greedy speculative decoding of several prompts in one batch.

Each call of the model takes, for every unfinished prompt, its last token and a draft of its own
length, all in one flat batch. The model's choice after each row tells how much of a draft was
right: the right part is kept with one token more, the rest is dropped from the cache. The text is
the one that decoding a token at a time gives; only the number of calls differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from . import draft
from .attention import PagedAttention
from .model import Model
from .pages import Pages

PREFIX = "the shared system turn"


@dataclass(kw_only=True)
class Cost:
    """What calls of the model took."""

    calls: int = 0
    seconds: float = 0.0
    attention_seconds: float = 0.0


@dataclass
class Answer(Cost):
    """One prompt, its answer so far, and what the calls that it took part in cost."""

    name: str
    prompt: list[int]  # the system turn included
    tokens: list[int] = field(default_factory=list)
    logits: list[np.ndarray] = field(default_factory=list)  # [vocabulary] behind each token
    finished: bool = False
    limit: int = 0  # the next draft's length
    drafted: int = 0
    accepted: int = 0

    @property
    def context(self) -> list[int]:
        """Prompt and answer."""
        return self.prompt + self.tokens


@dataclass(frozen=True)
class Options:
    """How to generate."""

    max_tokens: int
    max_draft: int
    end: int  # the token that ends an answer
    keep_logits: bool = True


@dataclass
class Totals(Cost):
    """What the whole batch cost; a call serves every unfinished prompt."""

    copied_slots: int = 0


# Called after each model call with the answers that grew: (answer, new tokens, of which drafted).
Listener = Callable[[Answer, list[int], int], None]


def pages_needed(answers: list[Answer], options: Options, page_size: int) -> int:
    """The most pages that the batch can hold: each answer's, and the shared page before copies."""
    most = [len(answer.prompt) + options.max_tokens + options.max_draft for answer in answers]
    return 1 + sum(-(-tokens // page_size) for tokens in most)


class Generator:
    """The loop's state: the model, its paged attention and the answers."""

    def __init__(self, model: Model, attention: PagedAttention, pages: Pages, options: Options):
        self.totals = Totals()
        self._model = model
        self._attention = attention
        self._pages = pages
        self._options = options

    def run(self, answers: list[Answer], shared: int, listen: Listener) -> None:
        """Answers every prompt; their first `shared` tokens are equal and computed once."""
        self._fill_prefix(answers, shared)
        for answer in answers:
            answer.limit = self._options.max_draft
        while active := [answer for answer in answers if not answer.finished]:
            drafts = [self._propose(answer) for answer in active]
            feeds = [
                answer.tokens[-1:] + tokens if answer.tokens else answer.prompt[shared:]
                for answer, tokens in zip(active, drafts, strict=True)
            ]
            logits = self._verify(active, feeds, drafts)
            moves = []
            for answer, fed, tokens, rows in zip(active, feeds, drafts, logits, strict=True):
                new, accepted = self._take(answer, tokens, rows)
                kept = range(len(fed) - len(tokens) + accepted)
                moves.append(self._pages.keep(answer.name, len(fed), kept))
                listen(answer, new, accepted)
            self._attention.move(moves)

    def _fill_prefix(self, answers: list[Answer], shared: int) -> None:
        """Computes the shared tokens once and forks their pages; writes copy a page when due."""
        self._pages.append(PREFIX, shared)
        self._attention.begin([PREFIX], [shared])
        started, before = time.perf_counter(), self._attention.seconds
        tokens = np.array(answers[0].prompt[:shared])
        self._model.forward(tokens, np.arange(shared), self._attention, np.array([shared - 1]))
        self._count([], started, before)
        for answer in answers:
            self._pages.fork(PREFIX, answer.name)
        self._pages.free(PREFIX)

    def _propose(self, answer: Answer) -> list[int]:
        room = self._options.max_tokens - len(answer.tokens) - 1
        if not answer.tokens:
            return []
        return draft.propose(answer.context, min(answer.limit, room))

    def _verify(
        self, active: list[Answer], feeds: list[list[int]], drafts: list[list[int]]
    ) -> list[np.ndarray]:
        """One call of the model: logits after each prompt's last token and draft tokens."""
        started, before = time.perf_counter(), self._attention.seconds
        counts = [len(feed) for feed in feeds]
        names = [answer.name for answer in active]
        lengths = self._pages.seq_lens(names)
        copies = [self._pages.append(a, n) for a, n in zip(names, counts, strict=True)]
        self.totals.copied_slots += sum(source.size for source, _ in copies)
        self._attention.move(copies)
        self._attention.begin(names, counts)
        positions = [np.arange(at, at + n) for at, n in zip(lengths, counts, strict=True)]
        ends = np.cumsum(counts)
        needed = [np.arange(end - 1 - len(d), end) for end, d in zip(ends, drafts, strict=True)]
        logits = self._model.forward(
            np.concatenate([np.array(feed) for feed in feeds]),
            np.concatenate(positions),
            self._attention,
            np.concatenate(needed),
        )
        self._count(active, started, before)
        return np.split(logits, np.cumsum([len(rows) for rows in needed])[:-1])

    def _take(
        self, answer: Answer, draft_tokens: list[int], logits: np.ndarray
    ) -> tuple[list[int], int]:
        """Adds what one call has shown to be the answer; tells it and how much was drafted."""
        choices = [int(token) for token in logits.argmax(axis=-1)]
        accepted = draft.count_accepted(draft_tokens, choices)
        if self._options.end in choices[:accepted]:  # the answer ends inside the draft
            accepted = choices.index(self._options.end)
        new = choices[: accepted + 1]
        answer.limit = draft.next_limit(
            answer.limit, len(draft_tokens), accepted, self._options.max_draft
        )
        answer.drafted += len(draft_tokens)
        answer.accepted += accepted
        answer.tokens += new
        if self._options.keep_logits:
            answer.logits += list(logits[: len(new)])
        full = len(answer.tokens) >= self._options.max_tokens
        answer.finished = full or answer.tokens[-1] == self._options.end
        return new, accepted

    def _count(self, active: list[Answer], started: float, attention_before: float) -> None:
        seconds = time.perf_counter() - started
        in_attention = self._attention.seconds - attention_before
        costs: list[Cost] = [self.totals, *active]
        for cost in costs:
            cost.calls += 1
            cost.seconds += seconds
            cost.attention_seconds += in_attention
