# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""What the demo shows: text that streams whole, drafts in green, figures and verdicts in words."""

import io

import pytest
from rich.console import Console

from pagedecode.demo.generate import Answer, Totals
from pagedecode.demo.report import LINE, Stream, proof_lines, summary, table
from pagedecode.demo.verify import Proof


class Letters:
    """A tokeniser whose token is a code point; 0 ends an answer, 1 is half a character."""

    end = 0

    def decode(self, tokens):
        text = "".join("\N{REPLACEMENT CHARACTER}" if t == 1 else chr(t) for t in tokens)
        return text.replace("\N{REPLACEMENT CHARACTER}é", "é")


def show(text, *, terminal, step=3, accepted=1, width=80):
    """Streams a text some tokens a call; the console's output and the styled text."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width, height=30)
    answer = Answer("a", [])
    tokens = [*map(ord, text), 0]
    with Stream(console, [answer], Letters()) as stream:
        while len(answer.tokens) < len(tokens):
            new = tokens[len(answer.tokens) : len(answer.tokens) + step]
            answer.tokens += new
            answer.finished = answer.tokens[-1] == 0
            stream.listen(answer, new, min(accepted, len(new) - 1))
        return out, stream._texts["a"]


WORDS = "Some words that fill a line and then go on for quite a while, " * 4


@pytest.mark.parametrize("text", ["one line", "two\nlines", WORDS, "x" * 200, "a\r\x07b\x0cc", ""])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_whole_text_is_shown_once(text, terminal):
    out, styled = show(text, terminal=terminal)
    kept = "".join(c for c in text if c not in "\r\x07\x0c")  # rich drops control characters
    assert styled.plain == kept
    if not terminal:
        lines = [line.partition(" | ")[2] for line in out.getvalue().splitlines()]
        assert "".join(lines).replace(" ", "") == kept.replace("\n", "").replace(" ", "")
        assert all(len(line) <= LINE for line in lines)


def test_only_drafted_text_is_green():
    _, styled = show("abcdef", terminal=True, step=3, accepted=2)
    green = [styled.plain[span.start : span.end] for span in styled.spans if span.style]
    assert green == ["ab", "de"]


def test_half_a_character_waits_for_the_rest():
    out, styled = show("a\x01éb", terminal=False, step=1, accepted=0)
    assert styled.plain == "aéb"
    assert "\N{REPLACEMENT CHARACTER}" not in out.getvalue()


def test_table_and_summary_have_the_figures():
    first, second = Answer("copy", [], list(range(12))), Answer("story", [], list(range(8)))
    first.calls, first.drafted, first.accepted = 3, 10, 9
    first.seconds, first.attention_seconds = 2.0, 0.5
    second.calls, second.seconds = 8, 4.0
    totals = Totals(calls=9, seconds=5.0, attention_seconds=0.5)
    out = io.StringIO()
    Console(file=out, width=120).print(table([first, second], totals))
    rows = [line.replace("│", " ").split() for line in out.getvalue().splitlines()]
    assert ["copy", "12", "3", "10", "9", "4.00", "2.0", "25%"] in rows
    assert ["story", "8", "8", "0", "0", "1.00", "4.0", "0%"] in rows
    assert ["all", "20", "11", "10", "9", "1.82", "5.0", "10%"] in rows
    assert "take 20 calls; they took 11" in summary([first, second], totals)


def test_verdicts_are_in_words():
    proof = Proof("compared", 1e-3, tokens=5, logit_error=2e-5)
    assert proof_lines(proof)[0].startswith("Proof: proven. 5 tokens compared: same text")
    proof.near_ties.append("a, token 1: 3 or 4, 1.0e-04 apart")
    assert "Near tie: a, token 1: 3 or 4, 1.0e-04 apart" in proof_lines(proof)
    assert "same text" not in proof_lines(proof)[0]
    proof.failures += ["wrong"] * 12
    lines = proof_lines(proof)
    assert lines[0].startswith("Proof: NOT PROVEN") and lines[-1] == "... and 2 more"
