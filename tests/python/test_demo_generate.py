# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's loop over a model that follows a script: what is kept, dropped, counted and told."""

import numpy as np
import pytest

from pagedecode.demo.generate import Answer, Generator, Options, pages_needed
from pagedecode.demo.pages import Pages

END = 0
VOCABULARY = 16
SHARED = 3


class Script:
    """A model whose choice after position p of sequence s is the script's token p + 1."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.rows = []  # rows fed to each call

    def forward(self, tokens, positions, attend, rows):
        logits = np.zeros((len(rows), VOCABULARY), np.float32)
        owner = np.repeat(attend.names, attend.counts)
        for out, row in enumerate(rows):
            name = owner[row]
            script = self.scripts.get(name, [])
            after = positions[row] + 1
            choice = script[after] if after < len(script) else END
            logits[out, choice] = 1.0
        self.rows.append(list(attend.counts))
        return logits


class NoAttention:
    """Stands in for PagedAttention: remembers the call's sequences and the moves."""

    def __init__(self):
        self.seconds = 0.0
        self.moved = 0

    def begin(self, names, counts):
        self.names, self.counts = names, counts

    def move(self, moves):
        self.moved += sum(source.size for source, _ in moves)


def run(scripts, prompts, *, max_draft=7, max_tokens=50, page_size=4):
    """Generates by scripts (prompt and answer); prompts tell how many of their tokens are given."""
    options = Options(max_tokens=max_tokens, max_draft=max_draft, end=END)
    answers = [Answer(name, scripts[name][: prompts[name]]) for name in prompts]
    pages = Pages(pages_needed(answers, options, page_size), page_size, seed=0)
    model, attention, heard = Script(scripts), NoAttention(), []
    generator = Generator(model, attention, pages, options)
    generator.run(answers, SHARED, lambda answer, new, n: heard.append((answer.name, new, n)))
    lengths = pages.seq_lens([answer.name for answer in answers])
    return answers, model, attention, heard, lengths


PREFIX = [1, 2, 3]
SCRIPTS = {
    "loop": [*PREFIX, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8, END],
    "plain": [*PREFIX, 9, 10, 11, 12, 13, 14, 15, 4, 9, 5, 10, 6, END],
    "short": [*PREFIX, 4, END],
}
PROMPTS = {"loop": 9, "plain": 5, "short": 4}


@pytest.mark.parametrize("max_draft", [0, 1, 3, 7])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_any_draft_gives_the_same_text(max_draft, page_size):
    answers, _, _, heard, lengths = run(SCRIPTS, PROMPTS, max_draft=max_draft, page_size=page_size)
    for answer, length in zip(answers, lengths, strict=True):
        assert answer.context == SCRIPTS[answer.name]
        assert length == len(answer.context) - 1  # the cache holds all but the last token
        assert len(answer.logits) == len(answer.tokens)
        told = [token for name, new, _ in heard if name == answer.name for token in new]
        assert told == answer.tokens
        assert answer.calls == len(answer.tokens) - answer.accepted
        assert answer.accepted <= answer.drafted


def test_drafts_save_calls_and_have_their_own_lengths():
    answers, model, _, _, _ = run(SCRIPTS, PROMPTS)
    calls = {answer.name: answer.calls for answer in answers}
    assert calls["loop"] < 4 and calls["plain"] == 11 and calls["short"] == 1
    assert model.rows[0] == [SHARED]
    assert model.rows[1] == [9 - SHARED, 5 - SHARED, 4 - SHARED]
    assert model.rows[2] == [8, 1]  # seven drafted tokens beside none


def test_an_end_inside_a_draft_ends_the_answer():
    scripts = {"a": [*PREFIX, 5, 6, END, 7, 5, 6, END, 9]}
    answers, _, _, _, lengths = run(scripts, {"a": 8})
    assert answers[0].tokens == [6, END]
    assert lengths[0] == 9


def test_max_tokens_is_never_passed():
    for most in range(1, 9):
        answers, *_ = run(SCRIPTS, {"loop": 9}, max_tokens=most)
        assert len(answers[0].tokens) == min(most, 8)


def test_shared_pages_are_copied_before_they_are_written():
    _, _, attention, _, _ = run(SCRIPTS, PROMPTS)
    assert attention.moved == 2 * SHARED  # the last of three sequences keeps the shared page
