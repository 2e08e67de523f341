# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of libraries that pagedecode has never heard of: whatever speaks DLPack, well or badly."""

import sys

import numpy as np
import pytest

import pagedecode

RNG = np.random.default_rng(0)
CALL = {
    "q": RNG.standard_normal((2, 3, 4, 16)).astype(np.float32),
    "k_cache": RNG.standard_normal((10, 4, 2, 16)).astype(np.float32),
    "v_cache": RNG.standard_normal((10, 4, 2, 16)).astype(np.float32),
    "block_table": np.array([[3, 1, -1], [5, 7, 2]], np.int32),
    "seq_lens": np.array([7, 9]),
}
WANT = pagedecode.decode(**CALL)


class Plain:
    """DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class BeforeVersions(Plain):
    """From before DLPack 1.0: no max_version."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class NoCapsule(Plain):
    def __dlpack__(self, **options):
        return 5


class Refuses(Plain):
    def __dlpack__(self, **options):
        raise BufferError("not on a Monday")


class RefusesType(Plain):
    def __dlpack__(self, **options):
        raise TypeError("not this kind")


class NoPair(Plain):
    def __dlpack_device__(self):
        return 7


class NoDevice:
    def __dlpack__(self, **options):
        raise AssertionError


class Pinned(Plain):
    """Host memory by another number."""

    def __dlpack_device__(self):
        return (3, 0)


@pytest.mark.parametrize("kind", [Plain, BeforeVersions, Pinned])
def test_any_producer_is_read(kind):
    for name in CALL:
        out = np.full_like(WANT, 123)
        given = {**CALL, name: kind(CALL[name])}
        assert pagedecode.decode(**given, out=out) is out
        assert np.array_equal(out, WANT)


def test_any_producer_is_written():
    out = np.full_like(WANT, 123)
    given = Plain(out)
    assert pagedecode.decode(**CALL, out=given) is given
    assert np.array_equal(out, WANT)


def test_read_only_flag_of_a_producer():
    out = np.full_like(WANT, 123)
    out.flags.writeable = False
    with pytest.raises(ValueError, match=r"^out: got a read-only array"):
        pagedecode.decode(**CALL, out=Plain(out))
    assert (out == 123).all()


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        (NoCapsule, TypeError, "no DLPack capsule"),
        (Refuses, ValueError, "not on a Monday"),
        (RefusesType, TypeError, "not this kind"),
        (NoPair, TypeError, "from __dlpack_device__, want a pair"),
    ],
)
def test_the_producers_own_words_are_kept(kind, error, text):
    with pytest.raises(error, match=rf"^k_cache: .*{text}"):
        pagedecode.decode(**{**CALL, "k_cache": kind(CALL["k_cache"])})


def test_a_producer_without_a_device():
    with pytest.raises((TypeError, ValueError), match=r"^k_cache: .*__dlpack_device__"):
        pagedecode.decode(**{**CALL, "k_cache": NoDevice()})


def test_a_library_that_cannot_make_the_result():
    with pytest.raises(TypeError, match=r"^q: .*out="):
        pagedecode.decode(**{**CALL, "q": Plain(CALL["q"])})


def test_arrays_are_given_back():
    k_cache = CALL["k_cache"].copy()
    before = sys.getrefcount(k_cache)
    for _ in range(10):
        pagedecode.decode(**{**CALL, "k_cache": Plain(k_cache)})
        with pytest.raises(ValueError):
            pagedecode.decode(**{**CALL, "k_cache": Plain(k_cache), "window_left": -2})
    assert sys.getrefcount(k_cache) == before


def test_numpy_subclasses_and_buffers():
    class Mine(np.ndarray):
        pass

    assert np.array_equal(pagedecode.decode(**{**CALL, "q": CALL["q"].view(Mine)}), WANT)
    for wrong in (memoryview(CALL["seq_lens"]), bytearray(16), CALL["seq_lens"].tolist()):
        with pytest.raises(TypeError, match=r"^seq_lens: got a "):
            pagedecode.decode(**{**CALL, "seq_lens": wrong})


def test_torch_tensors_without_memory():
    import torch

    q = torch.from_numpy(CALL["q"])
    for wrong in (q.to("meta"), q.to_sparse()):
        with pytest.raises(ValueError, match=r"^q: got a Tensor that could not be exported") as e:
            pagedecode.decode(**{**CALL, "q": wrong})
        assert "\n" not in str(e.value)


def test_inside_jit():
    import jax

    with pytest.raises((TypeError, ValueError), match=r"^q: .*inside jax\.jit"):
        jax.jit(lambda q: pagedecode.decode(**{**CALL, "q": q}))(CALL["q"])


def test_torch_tensors_with_a_negative_bit():
    """The memory lacks the sign: refused, never read without it."""
    import torch

    for name in ("q", "k_cache", "v_cache"):
        tensor = torch._neg_view(torch.from_numpy(CALL[name]))
        with pytest.raises(ValueError, match=rf"^{name}: .*negative bit.*resolve_neg"):
            pagedecode.decode(**{**CALL, name: tensor})
        given = {**CALL, name: tensor.resolve_neg()}
        want = pagedecode.decode(**{**CALL, name: -CALL[name]})
        assert np.array_equal(np.asarray(pagedecode.decode(**given)), want)
    slopes = torch.ones(4, dtype=torch.complex64).conj().imag
    with pytest.raises(ValueError, match=r"^alibi_slopes: .*negative bit"):
        pagedecode.decode(**CALL, alibi_slopes=slopes)
    lse = torch.zeros(6, 4, dtype=torch.complex64).conj().imag
    with pytest.raises(ValueError, match=r"^lse: .*negative bit"):
        pagedecode.decode(**CALL, lse=lse)


def test_masked_arrays():
    for name in CALL:
        masked = np.ma.masked_array(CALL[name], np.zeros_like(CALL[name], bool))
        with pytest.raises(TypeError, match=rf"^{name}: got a masked array"):
            pagedecode.decode(**{**CALL, name: masked})
