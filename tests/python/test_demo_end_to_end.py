# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""The demo's main promise with the real model: speculation changes calls, never the text."""

import numpy as np
import pytest

import demo_model
from demo_model import COPY, FREE, generate, numpy_model, tokenizer, weights
from pagedecode.demo.arrays import NumpyArrays, TorchArrays
from pagedecode.demo.attention import plain_attention
from pagedecode.demo.verify import Proof, prove
from reference import decode_reference


@pytest.fixture(scope="module")
def run():
    return generate([COPY, FREE], tokens=20)


def test_the_text_is_that_of_decoding_one_token_at_a_time(run):
    answers, attention, _ = run
    proof = prove(numpy_model(), attention, answers)
    assert proof.holds and proof.failures == []
    assert proof.logit_error < 1e-3
    assert proof.tokens == sum(len(answer.tokens) for answer in answers)


def test_the_copy_is_right_and_took_few_calls(run):
    (copy, free), _, _ = run
    text = tokenizer().decode(copy.tokens)
    assert text.startswith("A table tells where each block is")
    assert len(copy.tokens) > 2 * copy.calls
    assert free.calls <= len(free.tokens) == 20


def test_a_wrong_token_or_logit_fails_the_proof(run):
    answers, attention, _ = run
    answer = answers[1]
    kept = answer.tokens[5], answer.logits[7]
    answer.tokens[5] = (kept[0] + 1) % 49152
    answer.logits[7] = kept[1] + 0.01
    proof = prove(numpy_model(), attention, answers)
    answer.tokens[5], answer.logits[7] = kept
    assert not proof.holds
    assert any("token 6" in failure for failure in proof.failures)
    assert any("token 8: logits" in failure for failure in proof.failures)


@pytest.mark.parametrize(
    ("kv_dtype", "page_size", "library"),
    [
        ("bfloat16", 16, "torch"),
        ("float16", 1, "numpy"),
        ("float8_e4m3fn", 16, "torch"),
        ("float8_e5m2", 5, "numpy"),
        ("int8", 64, "numpy"),
    ],
)
def test_other_caches_agree_with_a_replay_over_what_is_stored(kv_dtype, page_size, library):
    arrays = NumpyArrays() if library == "numpy" else TorchArrays("cpu")
    answers, attention, _ = generate(
        [COPY, FREE], tokens=8, kv_dtype=kv_dtype, page_size=page_size, arrays=arrays
    )
    proof = prove(numpy_model(), attention, answers)
    assert proof.holds, proof.failures
    assert proof.logit_error < 5e-2
    assert proof.stored_error is not None and proof.stored_error < 1.5


def test_near_ties_are_told_apart_from_failures():
    answer = demo_model.Answer("a", [1])
    answer.tokens = [0, 0]
    answer.logits = [np.array([1.0, 1.0]), np.array([1.0, 1.0])]
    proof = Proof("compared", tolerance=1e-3)
    proof.compare(answer, 0, np.array([1.0, 1.0005]))
    assert proof.holds and len(proof.near_ties) == 1
    proof.compare(answer, 1, np.array([1.0, 1.5]))
    assert not proof.holds and len(proof.near_ties) == 1


def test_nan_logits_fail_the_proof():
    answer = demo_model.Answer("a", [1])
    answer.tokens, answer.logits = [0], [np.array([np.nan, 1.0])]
    proof = Proof("compared", tolerance=1e-3)
    proof.compare(answer, 0, np.array([2.0, 1.0]))
    assert not proof.holds


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 9), (4, 9), (5, 5)])
def test_plain_attention_agrees_with_the_float64_reference(m, n):
    rng = np.random.default_rng(m * n)
    q = rng.standard_normal((m, 6, 8), dtype=np.float32)
    k, v = rng.standard_normal((2, n, 2, 8), dtype=np.float32)
    expected, _ = decode_reference(
        q,
        k[None],
        v[None],
        np.array([[0]]),
        np.array([n]),
        cu_seqlens_q=np.array([0, m]),
    )
    np.testing.assert_allclose(plain_attention(q, k, v), expected, atol=2e-6)


def test_libraries_agree_on_the_models_functions():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 4, 8), dtype=np.float32)
    turns = np.exp(1j * rng.standard_normal((3, 1, 4))).astype(np.complex64)
    results = []
    for arrays in (NumpyArrays(), TorchArrays("cpu")):
        given, weight = arrays.upload(x), arrays.upload(x[0, 0])
        found = (
            arrays.rotate(given, arrays.upload(turns)),
            arrays.silu(given),
            arrays.rms_norm(given, weight, 1e-5),
        )
        results.append([arrays.download(a) for a in found] + [arrays.largest(given)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)


def test_the_file_is_the_model_that_we_know():
    c = weights().config
    assert (c.layers, c.width, c.hidden, c.q_heads, c.kv_heads) == (30, 576, 1536, 9, 3)
    assert (c.head_dim, c.vocabulary, c.rope_theta, c.context) == (64, 49152, 1e5, 8192)
    assert c.eps == pytest.approx(1e-5)
    assert weights().head.shape == (576, 49152)
