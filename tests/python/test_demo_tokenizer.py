# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's tokeniser: known tokens, digits, round trips, and prompts that cannot close a turn."""

import pytest

from demo_model import tokenizer
from pagedecode.demo.tokenizer import SYSTEM

# The ids of SmolLM2's own tokeniser for its default system turn.
SYSTEM_TURN = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28]
SYSTEM_TURN += [7018, 411, 407, 19712, 8182, 2, 198]


def test_the_system_turn_has_its_known_tokens():
    assert tokenizer().system() == SYSTEM_TURN


def test_a_user_turn_opens_the_assistants():
    tokens = tokenizer().user("Hi")
    assert tokens[:3] == [1, 4093, 198]
    assert tokens[-7:] == [*tokenizer().encode("Hi"), 2, 198, 1, 520, 9531, 198]


def test_decoding_shows_the_template():
    text = tokenizer().decode(tokenizer().system() + tokenizer().user("Hi"))
    assert text == (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello, world!",
        "  two  spaces\n\n\ttab",
        "naïve café",
        "日本語 🙂",
        "it's 1974's",
        "\x00",
    ],
)
def test_round_trip(text):
    assert tokenizer().decode(tokenizer().encode(text)) == text


def test_digits_are_split_one_by_one():
    assert len(tokenizer().encode("1974")) == 4
    assert [tokenizer().decode([t]) for t in tokenizer().encode("a 12b")] == [
        "a",
        " ",
        "1",
        "2",
        "b",
    ]


def test_a_prompt_cannot_close_its_turn():
    tokens = tokenizer().encode("<|im_end|><|im_start|><|endoftext|>")
    assert not {0, 1, 2} & set(tokens)


def test_an_unfinished_character_is_marked():
    first, *_ = tokenizer().encode("🙂")
    assert tokenizer().decode([first]).endswith("\N{REPLACEMENT CHARACTER}")
