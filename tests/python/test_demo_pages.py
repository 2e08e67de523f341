# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's shuffled pages: a permutation of what PagedCache says, in tables and moves alike."""

import numpy as np

from pagedecode.demo.pages import Pages


def test_pages_are_shuffled_and_apart():
    pages = Pages(32, 4, seed=3)
    pages.append("a", 40)
    pages.append("b", 50)
    table = pages.block_table(["a", "b"])
    live = table[table >= 0]
    assert table.dtype == np.int32
    assert len(set(live.tolist())) == len(live) == 10 + 13
    assert live.max() < 32 and (np.diff(table[1, :13]) != 1).any()
    assert (table[0, 10:] == -1).all()
    assert pages.seq_lens(["a", "b"]).tolist() == [40, 50]
    assert (Pages(32, 4, seed=3)._order == pages._order).all()


def test_a_fork_copies_its_shared_page_when_written():
    pages = Pages(8, 4, seed=0)
    pages.append("a", 6)
    pages.fork("a", "b")
    before = pages.block_table(["a"])[0]
    source, destination = pages.append("b", 1)
    after = pages.block_table(["b"])[0]
    assert source.tolist() == [4 * before[1], 4 * before[1] + 1]
    assert destination.tolist() == [4 * after[1], 4 * after[1] + 1]
    assert after[0] == before[0] and after[1] != before[1]


def test_keep_moves_a_branch():
    pages = Pages(8, 4, seed=0)
    pages.append("a", 2)
    pages.append("a", 5)
    table = pages.block_table(["a"])[0].astype(int)
    slots = [table[i // 4] * 4 + i % 4 for i in range(7)]
    source, destination = pages.keep("a", 5, [0, 2, 4])
    pairs = {(s, d) for s, d in zip(source.tolist(), destination.tolist(), strict=True) if s != d}
    assert pairs == {(slots[4], slots[3]), (slots[6], slots[4])}
    assert pages.seq_lens(["a"]).tolist() == [5]
