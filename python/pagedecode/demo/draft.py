# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""N-gram prompt lookup: drafts without a draft model. Pure functions over token lists.

The longest suffix of the context that occurred before (up to `longest` tokens) is taken to go on as
it did then; the latest occurrence counts. A copy may run past the context's end into its own
tokens, as in LZ77, so that a loop with a short period still fills the draft.
"""

from __future__ import annotations

from collections.abc import Sequence

LONGEST = 4
SHORTEST = 2


def find_suffix(context: Sequence[int], longest: int = LONGEST, shortest: int = SHORTEST) -> int:
    """Index after the latest earlier occurrence of the context's longest suffix, or -1."""
    size = len(context)
    for n in range(min(longest, size - 1), shortest - 1, -1):
        suffix = context[size - n :]
        for end in range(size - 1, n - 1, -1):
            if context[end - 1] == suffix[-1] and context[end - n : end] == suffix:
                return end
    return -1


def propose(context: Sequence[int], limit: int) -> list[int]:
    """Up to `limit` draft tokens for what follows the context; often none."""
    if limit < 1:
        return []
    start = find_suffix(context)
    if start < 0:
        return []
    text = list(context)
    for i in range(limit):
        text.append(text[start + i])
    return text[len(context) :]


def count_accepted(draft: Sequence[int], targets: Sequence[int]) -> int:
    """How many leading draft tokens are the model's own choices."""
    accepted = 0
    while accepted < len(draft) and draft[accepted] == targets[accepted]:
        accepted += 1
    return accepted


def next_limit(limit: int, drafted: int, accepted: int, max_draft: int) -> int:
    """The next draft's length: doubled after a full success, else what was accepted plus one."""
    if drafted == 0:
        return limit
    if accepted == drafted:
        return min(max_draft, 2 * limit)
    return max(1, min(max_draft, accepted + 1))
