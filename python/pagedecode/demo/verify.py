# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's proof: plain float32 attention over contiguous keys and values must tell the same.

With a float32 cache the prompts are decoded again, one token at a time, with no pages, no drafts
and no pagedecode: the text must be the same and every logit within 1e-3. With another cache type
rounding may change the text, so the answers are replayed (teacher-forced) through plain attention
over the stored cache, dequantised: logits within 5e-2, and what is stored within one rounding of
what the replay computes. Two tokens whose reference logits are closer than both errors together are
a near tie: either may be taken, and the report says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrays import numpy_type
from .attention import LARGEST_STORED, PagedAttention, plain_attention
from .generate import Answer
from .model import Model

TOLERANCE = 1e-3  # of logits, with a float32 cache
TOLERANCE_ROUNDED = 5e-2  # with another
# Half a unit in the last place, relative; and the absolute half step of what is stored near zero.
# Besides, the replay differs by its own float32 error (some 1e-4 after thirty layers), or, with
# 16-bit queries, by what their rounding makes of that.
ROUNDING = {
    "float32": (2.0**-24, 0.0),
    "float16": (2.0**-11, 2.0**-25),
    "bfloat16": (2.0**-8, 0.0),
    "float8_e4m3fn": (2.0**-4, 2.0**-10),
    "float8_e5m2": (2.0**-3, 2.0**-17),
    "int8": (0.0, 0.5),
}
DRIFT, DRIFT_16 = 1e-4, 2e-2


@dataclass
class Proof:
    """What the comparison found."""

    how: str
    tolerance: float
    tokens: int = 0
    logit_error: float = 0.0
    near_ties: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stored_error: float | None = None  # in half units in the last place; None: not compared

    @property
    def holds(self) -> bool:
        """Whether the run is proven."""
        return not self.failures

    def compare(self, answer: Answer, index: int, reference: np.ndarray) -> None:
        """Checks one token of an answer against the reference's logits [vocabulary]."""
        token, logits = answer.tokens[index], answer.logits[index]
        self.tokens += 1
        error = float(np.abs(logits - reference).max())
        self.logit_error = max(self.logit_error, error)
        where = f"{answer.name}, token {index + 1}"
        if not error <= self.tolerance:  # a NaN fails too
            self.failures.append(f"{where}: logits differ by {error:.2e}")
        best = int(reference.argmax())
        if token != best:
            gap = float(reference[best] - reference[token])
            if gap <= 2 * self.tolerance:
                self.near_ties.append(f"{where}: {token} or {best}, {gap:.1e} apart")
            else:
                self.failures.append(f"{where}: {token}, but the reference says {best}")


class ContiguousAttention:
    """Plain attention with each sequence's keys and values in one growing array."""

    def __init__(self, layers: int, sequences: int) -> None:
        self._kv: list[list[tuple[np.ndarray, np.ndarray] | None]] = [
            [None] * sequences for _ in range(layers)
        ]
        self._spans: list[tuple[int, int, int]] = []

    def begin(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        """Names the sequences of the next call and their numbers of rows."""
        ends = np.cumsum(counts).tolist()
        self._spans = [(s, e - n, e) for s, e, n in zip(sequences, ends, counts, strict=True)]

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Appends k and v, answers attention of q, one sequence after another."""
        out = np.empty(q.shape, dtype=np.float32)
        for sequence, start, end in self._spans:
            keys, values = k[start:end], v[start:end]
            if (past := self._kv[layer][sequence]) is not None:
                keys = np.concatenate([past[0], keys])
                values = np.concatenate([past[1], values])
            self._kv[layer][sequence] = keys, values
            out[start:end] = plain_attention(q[start:end], keys, values)
        return out


def decode_one_by_one(model: Model, answers: list[Answer], proof: Proof) -> None:
    """Greedy decoding, one token of each prompt a call, each compared with the answers.

    Where the reference would go on otherwise (a near tie or a failure) the answer's token is taken.
    """
    attention = ContiguousAttention(model.config.layers, len(answers))
    feeds = {i: answer.prompt for i, answer in enumerate(answers)}
    index = 0
    while feeds:
        counts = [len(feed) for feed in feeds.values()]
        lengths = [len(answers[i].prompt) + index for i in feeds]
        attention.begin(list(feeds), counts)
        logits = model.forward(
            np.concatenate([np.array(feed) for feed in feeds.values()]),
            np.concatenate([np.arange(at - n, at) for at, n in zip(lengths, counts, strict=True)]),
            attention,
            np.cumsum(counts) - 1,
        )
        for i, row in zip(feeds, logits, strict=True):
            proof.compare(answers[i], index, row)
        feeds = {i: [answers[i].tokens[index]] for i in feeds if index + 1 < len(answers[i].tokens)}
        index += 1


class StoredAttention:
    """Plain attention of whole sequences over what a paged cache holds of them."""

    def __init__(self, paged: PagedAttention, answers: list[Answer], proof: Proof) -> None:
        self._paged = paged
        self._answers = answers
        self._proof = proof

    def __call__(self, layer: int, q: Any, k: Any, v: Any) -> Any:
        """Attention of all rows of all answers; k and v are only compared with the stored ones."""
        out = np.empty(q.shape, dtype=np.float32)
        q = q.astype(numpy_type(self._paged.q_dtype)).astype(np.float32)
        start = 0
        for answer in self._answers:
            keys, values = self._paged.stored(layer, answer.name)
            rows = slice(start, start := start + len(keys))
            for given, stored, scale in zip(
                (k[rows], v[rows]), (keys, values), self._paged.scales(layer), strict=True
            ):
                self._compare(given, stored, scale[:, None])
            out[rows] = plain_attention(q[rows], keys, values)
        return out

    def _compare(self, given: np.ndarray, stored: np.ndarray, scale: np.ndarray) -> None:
        kind = self._paged.kv_dtype
        most = LARGEST_STORED.get(kind, np.inf) * scale
        given = np.clip(given, -most, most)
        relative, absolute = ROUNDING[kind]
        drift = DRIFT if self._paged.q_dtype == "float32" else DRIFT_16
        allowed = relative * np.abs(given) + absolute * scale + drift
        error = float((np.abs(given - stored) / allowed).max())
        self._proof.stored_error = max(self._proof.stored_error or 0.0, error)


def replay(model: Model, paged: PagedAttention, answers: list[Answer], proof: Proof) -> None:
    """The answers teacher-forced in one pass over the stored cache."""
    fed = [answer.context[:-1] for answer in answers]  # the last token was never fed
    ends = np.cumsum([len(tokens) for tokens in fed])
    rows = [
        np.arange(end - len(answer.tokens), end) for end, answer in zip(ends, answers, strict=True)
    ]
    logits = model.forward(
        np.concatenate([np.array(tokens) for tokens in fed]),
        np.concatenate([np.arange(len(tokens)) for tokens in fed]),
        StoredAttention(paged, answers, proof),
        np.concatenate(rows),
    )
    at = 0
    for answer in answers:
        for index in range(len(answer.tokens)):
            proof.compare(answer, index, logits[at])
            at += 1
    if not (proof.stored_error or 0.0) <= 2.0:
        proof.failures.append(f"stored values are {proof.stored_error:.1f} roundings off")


def prove(model: Model, paged: PagedAttention, answers: list[Answer]) -> Proof:
    """The proof that fits the cache's type; `model` runs in NumPy."""
    started = time.perf_counter()
    if paged.kv_dtype == "float32":
        proof = Proof("decoded one token at a time through plain attention", TOLERANCE)
        decode_one_by_one(model, answers, proof)
    else:
        proof = Proof(
            f"replayed through plain attention over the stored {paged.kv_dtype} cache",
            TOLERANCE_ROUNDED,
        )
        replay(model, paged, answers, proof)
    proof.seconds = time.perf_counter() - started
    return proof
