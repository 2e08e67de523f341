# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""PagedCache: against a model that keeps every token of every sequence in a list.

The test plays the device: it holds a memory of num_pages * P tokens, performs the moves and writes
that the cache asks for, and reads sequences back through `block_table`. A page that is shared and
should have been copied, freed too early or handed out twice shows as a wrong token.
"""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

NAMES = st.sampled_from(["a", 7, ("b", 1), frozenset([2]), None, 3.5, "c"])


class Device:
    """The memory, and what to do with the results of the cache's methods."""

    def __init__(self, num_pages, page):
        self.page, self.memory = page, np.full(num_pages * page, -1)
        self.next_token = 0

    def move(self, pairs):
        src, dst = (np.asarray(x) for x in pairs)
        assert src.shape == dst.shape and src.ndim == 1
        assert src.dtype in (np.int32, np.int64) and dst.dtype in (np.int32, np.int64)
        keep = (src >= 0) & (dst >= 0)
        self.memory[dst[keep]] = self.memory[src[keep]]

    def write(self, slots):
        assert isinstance(slots, np.ndarray) and slots.dtype in (np.int32, np.int64)
        assert len(set(slots.tolist())) == len(slots) and (slots >= 0).all()
        made = np.arange(self.next_token, self.next_token + len(slots))
        self.next_token += len(slots)
        self.memory[slots] = made
        return made.tolist()

    def read(self, cache, seq):
        n = int(cache.seq_lens([seq])[0])
        table = cache.block_table([seq])[0]
        index = np.arange(n)
        return self.memory[table[index // self.page] * self.page + index % self.page].tolist()


def pages_of(cache, seqs, lengths, page):
    """The distinct live pages of sequences."""
    live = set()
    for seq, n in zip(seqs, lengths, strict=True):
        live |= set(cache.block_table([seq])[0, : -(-n // page)].tolist())
    return live


class CacheMachine(RuleBasedStateMachine):
    @initialize(num_pages=st.integers(1, 9), page=st.integers(1, 5))
    def start(self, num_pages, page):
        import pagedecode

        self.cache = pagedecode.PagedCache(num_pages, page)
        self.device, self.model = Device(num_pages, page), {}
        self.num_pages, self.page = num_pages, page

    def snapshot(self):
        seqs = list(self.model)
        return (
            [self.cache.block_table([s])[0].tolist() for s in seqs],
            self.cache.seq_lens(seqs).tolist(),
            self.cache.num_free,
        )

    def refused(self, error, call):
        before = self.snapshot()
        with pytest.raises(error):
            call()
        assert self.snapshot() == before, "a refused call changes nothing"

    def some(self, data, known=True):
        seqs = list(self.model) if known else ["unknown", ("x", 0)]
        return data.draw(st.sampled_from(seqs))

    def pages_needed(self, seq, count):
        n = len(self.model.get(seq, []))
        need = -(-(n + count) // self.page) - -(-n // self.page)
        if count and n % self.page:
            last = self.cache.block_table([seq])[0, n // self.page]
            others = [s for s in self.model if s != seq]
            lengths = [len(self.model[s]) for s in others]
            need += int(last in pages_of(self.cache, others, lengths, self.page))
        return need

    @rule(seq=NAMES, count=st.integers(0, 9))
    def append(self, seq, count):
        if self.pages_needed(seq, count) > self.cache.num_free:
            self.refused(MemoryError, lambda: self.cache.append(seq, count))
            return
        slots, pairs = self.cache.append(seq, count)
        assert len(slots) == count
        self.device.move(pairs)
        self.model.setdefault(seq, []).extend(self.device.write(slots))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def keep(self, data):
        seq = self.some(data)
        tokens = self.model[seq]
        count = data.draw(st.integers(0, len(tokens)))
        accepted = [i for i in range(count) if data.draw(st.booleans())]
        form = data.draw(st.sampled_from([list, tuple, np.array]))
        try:
            pairs = self.cache.keep(seq, count, form(accepted) if accepted else accepted)
        except MemoryError:  # a shared page would have to be copied, and there is no room
            assert len(self.model) > 1
            return
        self.device.move(pairs)
        draft = tokens[len(tokens) - count :]
        self.model[seq] = tokens[: len(tokens) - count] + [draft[i] for i in accepted]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data):
        seq = self.some(data)
        length = data.draw(st.integers(0, len(self.model[seq])))
        self.cache.truncate(seq, length)
        del self.model[seq][length:]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), new=NAMES)
    def fork(self, data, new):
        if new in self.model:
            return
        seq = self.some(data)
        self.cache.fork(seq, new)
        self.model[new] = list(self.model[seq])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def free(self, data):
        seq = self.some(data)
        self.cache.free(seq)
        del self.model[seq]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def beyond_the_length(self, data):
        seq = self.some(data)
        n = len(self.model[seq])
        for call in (
            lambda: self.cache.truncate(seq, n + 1),
            lambda: self.cache.truncate(seq, -1),
            lambda: self.cache.keep(seq, n + 1, []),
            lambda: self.cache.keep(seq, n, [n]),
            lambda: self.cache.keep(seq, min(n, 1), [-1]),
            lambda: self.cache.append(seq, -1),
        ):
            self.refused(ValueError, call)

    @rule(data=st.data())
    def unknown(self, data):
        seq = self.some(data, known=False)
        for call in (
            lambda: self.cache.truncate(seq, 0),
            lambda: self.cache.keep(seq, 0, []),
            lambda: self.cache.fork(seq, "new"),
            lambda: self.cache.free(seq),
            lambda: self.cache.block_table([seq]),
            lambda: self.cache.seq_lens([seq]),
        ):
            self.refused(KeyError, call)

    @invariant()
    def every_token_is_where_it_should_be(self):
        if not hasattr(self, "cache"):
            return
        for seq, tokens in self.model.items():
            assert self.device.read(self.cache, seq) == tokens

    @invariant()
    def pages_add_up(self):
        if not hasattr(self, "cache"):
            return
        seqs, lengths = list(self.model), [len(x) for x in self.model.values()]
        live = pages_of(self.cache, seqs, lengths, self.page)
        assert all(0 <= p < self.num_pages for p in live)
        assert self.cache.num_free == self.num_pages - len(live)

    @invariant()
    def tables_of_a_batch(self):
        if not hasattr(self, "cache"):
            return
        seqs = list(self.model)
        lens = self.cache.seq_lens(seqs)
        assert isinstance(lens, np.ndarray) and lens.dtype in (np.int32, np.int64)
        assert lens.tolist() == [len(x) for x in self.model.values()]
        need = -(-lens // self.page)
        widest = int(need.max(initial=0))
        for width in (None, widest, widest + 3):
            table = self.cache.block_table(seqs, width=width)
            assert table.shape[0] == len(seqs) and table.dtype in (np.int32, np.int64)
            assert table.shape[1] >= widest and (width is None or table.shape[1] == width)
            for row, seq, count in zip(table, seqs, need, strict=True):
                assert (row[:count] == self.cache.block_table([seq])[0, :count]).all()
        if widest:
            with pytest.raises(ValueError):
                self.cache.block_table(seqs, width=widest - 1)


CacheMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30)
TestModel = CacheMachine.TestCase


def make(num_pages=8, page=4):
    import pagedecode

    return pagedecode.PagedCache(num_pages, page), Device(num_pages, page)


def test_slots_are_table_entries():
    cache, _ = make()
    slots, (src, dst) = cache.append("s", 10)
    table = cache.block_table(["s"])[0]
    index = np.arange(10)
    assert (slots == table[index // 4] * 4 + index % 4).all() and len(src) == len(dst) == 0
    assert cache.seq_lens(["s"]).tolist() == [10] and cache.num_free == 5
    more, _ = cache.append("s", 3)
    assert more[:2].tolist() == [table[2] * 4 + 2, table[2] * 4 + 3]


def test_copy_on_write():
    """Two forks write on: each gets its own copy of the shared partial page, once."""
    cache, device = make()
    tokens = device.write(cache.append("a", 6)[0])
    cache.fork("a", "b")
    assert cache.num_free == 6
    slots, (src, dst) = cache.append("b", 1)
    assert len(src) == len(dst) == 2 and cache.num_free == 5
    device.move((src, dst))
    own = device.write(slots)
    assert device.read(cache, "b") == tokens + own and device.read(cache, "a") == tokens
    slots, (src, dst) = cache.append("a", 1)
    assert len(src) == 0 and cache.num_free == 5, "the last owner writes in place"


def test_full_pages_are_shared_without_copies():
    cache, _ = make()
    cache.append("a", 8)
    cache.fork("a", "b")
    _, (src, _) = cache.append("b", 1)
    assert len(src) == 0 and cache.num_free == 5
    cache.free("a")
    assert cache.num_free == 5
    cache.free("b")
    assert cache.num_free == 8


def test_keep_a_path_of_a_tree():
    cache, device = make()
    prefix, draft = device.write(cache.append("s", 5)[0]), device.write(cache.append("s", 6)[0])
    pairs = cache.keep("s", 6, [0, 2, 5])
    device.move(pairs)
    assert device.read(cache, "s") == prefix + [draft[i] for i in (0, 2, 5)]
    assert cache.seq_lens(["s"]).tolist() == [8] and cache.num_free == 6


def test_keep_in_a_page_that_is_shared():
    """A fork taken of the draft keeps its tokens when the other side compacts."""
    cache, device = make()
    tokens = device.write(cache.append("a", 6)[0])
    cache.fork("a", "b")
    device.move(cache.keep("a", 4, [1, 3]))
    assert device.read(cache, "a") == [*tokens[:2], tokens[3], tokens[5]]
    assert device.read(cache, "b") == tokens


def test_out_of_pages_changes_nothing():
    cache, device = make(3, 4)
    device.write(cache.append("a", 9)[0])
    for seq, count in (("a", 4), ("b", 1), ("a", 10**6), ("a", 2**62)):
        with pytest.raises(MemoryError):
            cache.append(seq, count)
    assert cache.num_free == 0 and cache.seq_lens(["a"]).tolist() == [9]
    with pytest.raises(KeyError):
        cache.seq_lens(["b"])
    assert len(cache.append("a", 3)[0]) == 3, "what fits still fits"


def test_no_memory_for_the_slots_changes_nothing(monkeypatch):
    cache, device = make(4, 4)
    tokens = device.write(cache.append("a", 6)[0])
    cache.fork("a", "b")
    table = cache.block_table(["a", "b"]).tolist()

    def fails(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(cache, "_slots", fails)
        for seq in ("b", "c"):  # with a copy, and a sequence that would begin
            with pytest.raises(MemoryError):
                cache.append(seq, 5)
    assert cache.num_free == 2 and cache.block_table(["a", "b"]).tolist() == table
    with pytest.raises(KeyError):
        cache.seq_lens(["c"])
    slots, pairs = cache.append("b", 2)
    device.move(pairs)
    assert device.read(cache, "b")[:6] == tokens and len(device.write(slots)) == 2
    assert device.read(cache, "a") == tokens


def test_copy_on_write_without_room():
    cache, device = make(2, 4)
    tokens = device.write(cache.append("a", 6)[0])
    cache.fork("a", "b")
    with pytest.raises(MemoryError):
        cache.append("b", 1)
    assert device.read(cache, "a") == tokens and device.read(cache, "b") == tokens
    cache.free("a")
    slots, (src, _) = cache.append("b", 1)
    assert len(src) == 0 and len(slots) == 1


def test_truncate_then_append_does_not_touch_the_fork():
    cache, device = make()
    tokens = device.write(cache.append("a", 7)[0])
    cache.fork("a", "b")
    cache.truncate("b", 5)
    slots, pairs = cache.append("b", 2)
    device.move(pairs)
    own = device.write(slots)
    assert device.read(cache, "a") == tokens
    assert device.read(cache, "b") == tokens[:5] + own


def test_wrong_arguments():
    import pagedecode

    for wrong in ((4, 0), (-1, 4), (4, -2)):
        with pytest.raises(ValueError):
            pagedecode.PagedCache(*wrong)
    for wrong in ((2.5, 4), ("4", 4), (4, None)):
        with pytest.raises((TypeError, ValueError)):
            pagedecode.PagedCache(*wrong)
    cache, _ = make()
    with pytest.raises(TypeError):
        cache.append(["unhashable"], 1)
    for count in (-1, 1.5, "2"):
        with pytest.raises((TypeError, ValueError)):
            cache.append("s", count)


def test_no_sequences():
    cache, _ = make()
    assert cache.block_table([]).shape[0] == 0 and cache.seq_lens([]).shape == (0,)
    assert cache.block_table([], width=5).shape == (0, 5)
    assert cache.num_free == 8


def test_a_round_of_speculative_decoding(rng):
    """append -> slots -> decode -> keep -> move with real arrays equals the plain reference."""
    import pagedecode
    from reference import decode_reference

    cache, page = pagedecode.PagedCache(12, 4), 4
    shape = (12, page, 2, 16)
    k_cache, v_cache = (np.full(shape, np.nan, np.float32) for _ in range(2))
    history = {"x": [], "y": []}

    def feed(seq, count):
        slots, (src, dst) = cache.append(seq, count)
        pagedecode.move(k_cache, v_cache, src, dst)
        k, v = (rng.standard_normal((count, 2, 16)).astype(np.float32) for _ in range(2))
        pagedecode.append(k, v, k_cache, v_cache, slots)
        history[seq] += list(zip(k, v, strict=True))

    feed("x", 5)
    cache.fork("x", "y")
    history["y"] = list(history["x"])
    for accepted in ([0, 2], [1], [0, 1, 2, 3], []):
        for seq in ("x", "y"):
            feed(seq, 4)
            tail = history[seq][-4:]
            pagedecode.move(k_cache, v_cache, *cache.keep(seq, 4, accepted))
            history[seq] = history[seq][:-4] + [tail[i] for i in accepted]
        lens = cache.seq_lens(["x", "y"])
        q = rng.standard_normal((2, 1, 4, 16)).astype(np.float32)
        out = pagedecode.decode(q, k_cache, v_cache, cache.block_table(["x", "y"]), lens)
        for i, seq in enumerate(("x", "y")):
            plain_k, plain_v = (np.stack(x)[None] for x in zip(*history[seq], strict=True))
            table = np.zeros((1, 1), np.int32)
            want, _ = decode_reference(q[i : i + 1], plain_k, plain_v, table, lens[i : i + 1])
            assert np.abs(out[i] - want[0]).max() < 1e-4
        if cache.num_free < 6:
            break


def test_keep_in_a_full_pool():
    """A copy goes to a page that the same call drops: a rejected draft needs no free page."""
    cache, device = make(3, 2)
    base = device.write(cache.append("base", 2)[0])
    cache.fork("base", "b")
    draft = device.write(cache.append("b", 1)[0])
    cache.append("z", 1)
    assert cache.num_free == 0
    device.move(cache.keep("b", 3, [2]))
    assert device.read(cache, "b") == draft and device.read(cache, "base") == base
    assert cache.num_free == 0
    cache.free("base")
    assert cache.num_free == 1


def test_keep_swaps_by_way_of_a_dropped_page():
    cache, device = make(5, 2)
    base = device.write(cache.append("base", 4)[0])
    cache.fork("base", "b")
    draft = device.write(cache.append("b", 6)[0])
    assert cache.num_free == 0
    tokens = base + draft
    device.move(cache.keep("b", 10, [9, 8, 4]))
    assert device.read(cache, "b") == [tokens[9], tokens[8], tokens[4]]
    assert device.read(cache, "base") == base and cache.num_free == 1


def test_keep_without_room_changes_nothing():
    cache, device = make(1, 4)
    tokens = device.write(cache.append("a", 4)[0])
    cache.fork("a", "b")
    with pytest.raises(MemoryError, match="out of pages"):
        cache.keep("b", 4, [3, 1])
    assert device.read(cache, "a") == tokens and device.read(cache, "b") == tokens
    assert cache.num_free == 0


def test_errors_name_the_argument():
    import pagedecode

    cache, _ = make()
    cache.append("a", 3)
    for call, error, text in (
        (lambda: pagedecode.PagedCache(1.5, 2), TypeError, "num_pages: got a float, want an int"),
        (lambda: pagedecode.PagedCache(True, 1), TypeError, "num_pages: got a bool, want an int"),
        (lambda: pagedecode.PagedCache(2, "2"), TypeError, "page_size: got a str, want an int"),
        (lambda: pagedecode.PagedCache(2, 2**70), ValueError, f"page_size: got {2**70}, want 1"),
        (lambda: pagedecode.PagedCache(2, 10**5000), ValueError, "page_size: got an int of 1"),
        (lambda: cache.append("a", 1.0), TypeError, "count: got a float, want an int"),
        (lambda: cache.append("a", True), TypeError, "count: got a bool, want an int"),
        (lambda: cache.append([], 1), TypeError, "seq: got a list, want a hashable"),
        (lambda: cache.append("a", -(10**5000)), ValueError, "count: got an int of"),
        (lambda: cache.append("a", 10**5000), MemoryError, "out of pages: an int of"),
        (lambda: cache.fork("a", {}), TypeError, "new_seq: got a dict, want a hashable"),
        (lambda: cache.free({}), TypeError, "seq: got a dict, want a hashable"),
        (lambda: cache.truncate("a", "1"), TypeError, "length: got a str, want an int"),
        (lambda: cache.truncate("a", 10**5000), ValueError, "length: got an int of"),
        (lambda: cache.keep("a", None, []), TypeError, "count: got a NoneType, want an int"),
        (lambda: cache.keep("a", 2, 5), TypeError, "accepted: got a int, want a list"),
        (lambda: cache.keep("a", 2, [0, 1.0]), TypeError, r"accepted\[1\]: got a float"),
        (lambda: cache.keep("a", 2, [True]), TypeError, r"accepted\[0\]: got a bool"),
        (lambda: cache.keep("a", 2, [2**70]), ValueError, rf"accepted\[0\]: got {2**70}, want"),
        (lambda: cache.block_table(None), TypeError, "seqs: got a NoneType, want a list"),
        (lambda: cache.block_table("ab"), TypeError, "seqs: got 'ab', want a list"),
        (lambda: cache.seq_lens("ab"), TypeError, "seqs: got 'ab', want a list"),
        (lambda: cache.block_table(["a"], 2.0), TypeError, "width: got a float, want an int"),
        (lambda: cache.block_table(["a"], 2**70), ValueError, f"width: got {2**70}, want 1 to"),
    ):
        with pytest.raises(error, match=f"^{text}"):
            call()
    assert cache.seq_lens(["a"]).tolist() == [3] and cache.num_free == 7


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))]
)
def test_copies_are_caches_of_their_own(again):
    cache, device = make()
    tokens = device.write(cache.append("a", 6)[0])
    cache.fork("a", "b")
    other = again(cache)
    slots, pairs = other.append("b", 1)
    assert len(pairs[0]) == 2 and other.num_free == 5
    other.free("a")
    assert cache.num_free == 6 and cache.seq_lens(["a", "b"]).tolist() == [6, 6]
    assert device.read(cache, "b") == tokens
    assert cache.append("a", 1)[0].shape == slots.shape


def test_repr():
    cache, _ = make()
    cache.append("a", 6)
    assert repr(cache) == "PagedCache(num_pages=8, page_size=4): 1 sequences, 6 pages free"
