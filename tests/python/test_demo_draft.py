# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's drafts: what n-gram look-up proposes, what is accepted, how long the next one is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedecode.demo.draft import count_accepted, find_suffix, next_limit, propose

TOKENS = st.lists(st.integers(0, 4), max_size=40)


@pytest.mark.parametrize(
    ("context", "limit", "expected"),
    [
        ([], 7, []),
        ([1], 7, []),
        ([1, 1], 7, []),  # one token alone proves little
        ([1, 2, 3, 4], 7, []),
        ([1, 2, 3, 4, 1, 2], 2, [3, 4]),
        ([1, 2, 3, 4, 1, 2], 7, [3, 4, 1, 2, 3, 4, 1]),  # runs on into its own tokens
        ([1, 2, 3, 4, 1, 2], 0, []),
        ([1, 2, 3, 1, 2, 4, 1, 2], 1, [4]),  # the latest occurrence
        ([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 1, [4]),  # but a longer suffix first
        ([7, 7, 7, 7], 3, [7, 7, 7]),
    ],
)
def test_proposals(context, limit, expected):
    assert propose(context, limit) == expected


@given(TOKENS, st.integers(0, 7))
def test_a_proposal_goes_on_after_an_earlier_suffix(context, limit):
    start = find_suffix(context)
    drafted = propose(context, limit)
    if start < 0:
        assert drafted == []
        return
    assert context[start - 2 : start] == context[-2:] and start < len(context)
    assert drafted == (context + drafted)[start : start + limit]


@given(TOKENS)
def test_a_repeated_pair_is_always_found(context):
    pairs = [context[i : i + 2] for i in range(len(context) - 2)]
    assert (find_suffix(context) >= 0) == (len(context) > 2 and context[-2:] in pairs)


@pytest.mark.parametrize(
    ("drafted", "targets", "expected"),
    [([], [5], 0), ([1, 2], [1, 2, 3], 2), ([1, 2], [1, 9, 3], 1), ([1, 2], [9, 2, 3], 0)],
)
def test_only_the_leading_right_tokens_are_accepted(drafted, targets, expected):
    assert count_accepted(drafted, targets) == expected


def test_the_limit_follows_success():
    assert next_limit(7, drafted=0, accepted=0, max_draft=7) == 7
    assert next_limit(7, drafted=7, accepted=2, max_draft=7) == 3
    assert next_limit(3, drafted=3, accepted=3, max_draft=7) == 6
    assert next_limit(6, drafted=6, accepted=6, max_draft=7) == 7
    assert next_limit(1, drafted=1, accepted=0, max_draft=7) == 1
