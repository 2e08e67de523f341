# Copyright 2026 the pagedecode authors. SPDX-License-Identifier: Apache-2.0
"""Several threads at once, the pool's size, fork."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from backends import BACKENDS, NUMPY, bits_equal, convert, run
from cases import CASE, F16, F32, make_case
from isolated import python, python_result


@pytest.fixture(autouse=True)
def two_threads():
    import pagedecode

    yield
    pagedecode.set_num_threads(2)


def test_concurrent_calls():
    """Eight threads, different problems, each against its own single-threaded bits."""
    names = [
        "plain",
        "long",
        "everything-fp8",
        "splits-7",
        "float32",
        "mask-wide",
        "rope",
        "invariant",
    ]
    problems = [CASE[name].build() for name in names]
    want = [run(NUMPY, args) for args in problems]
    start = threading.Barrier(len(names))

    def work(i):
        start.wait()
        return all(run(NUMPY, problems[i]).same_bits(want[i]) for _ in range(15))

    with ThreadPoolExecutor(len(names)) as pool:
        assert all(pool.map(work, range(len(names))))


def test_concurrent_calls_of_all_functions():
    """decode, append, move, merge_states, slots and set_num_threads at the same time."""
    import pagedecode

    args = CASE["long"].build()
    want = run(NUMPY, args, batch_invariant=True)
    stop = threading.Event()
    errors = []

    def loop(function):
        try:
            while not stop.is_set():
                function()
        except BaseException as error:
            errors.append(error)
            stop.set()

    rng = np.random.default_rng(0)
    k = rng.standard_normal((8, 2, 16)).astype(F16)
    states = [k.astype(F32), k.astype(F32)], [np.zeros((8, 2), F32), np.zeros((8, 2), F32)]
    order = np.arange(8)

    def append_and_move():
        cache = np.zeros((4, 4, 2, 16), F16)
        pagedecode.append(k, k, cache, cache.copy(), order)
        pagedecode.move(cache, cache.copy(), order, order[::-1] + 8)
        assert bits_equal(cache.reshape(16, 2, 16)[8:], k[::-1])

    def merge():
        out, lse = pagedecode.merge_states(*states)
        assert np.allclose(out, states[0][0]) and np.allclose(lse, np.log(2))

    def decode():
        assert run(NUMPY, args, batch_invariant=True).same_bits(want)

    sizes = iter(range(10**9))
    jobs = [append_and_move, merge, decode, decode]
    jobs.append(lambda: pagedecode.set_num_threads(1 + next(sizes) % 4))
    threads = [threading.Thread(target=loop, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    stop.wait(3)
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "deadlock"
    assert not errors, errors


def test_the_interpreter_is_free_during_a_call():
    """Python runs on in another thread while a long call computes."""
    import pagedecode

    args = make_case(
        np.random.default_rng(0), lens=((8, 16000),) * 2, heads=(4, 8), head_dim=128, q_dtype=F32
    )
    pagedecode.set_num_threads(1)
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.0005):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    for _ in range(5):
        pagedecode.decode(**args)
    during = ticks[0] - before
    stop.set()
    thread.join()
    assert during >= 10


@pytest.mark.parametrize("count", [0, -1, 2.5, "2", None])
def test_wrong_thread_counts(count):
    import pagedecode

    with pytest.raises((TypeError, ValueError)):
        pagedecode.set_num_threads(count)


def test_more_threads_than_processors_or_work():
    import pagedecode

    args = CASE["plain"].build()
    for count in (1, 2, 33, 2):
        pagedecode.set_num_threads(count)
        first = run(NUMPY, args)
        assert run(NUMPY, args).same_bits(first)


def test_thread_count_of_the_environment():
    code = """
        from backends import NUMPY, check_call
        from cases import CASE
        for name in ("plain", "long", "everything-fp8"):
            check_call(NUMPY, CASE[name].build())
        import threading, os
        print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0)
        """
    one = int(python(code, PAGEDECODE_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))
    four = int(python(code, PAGEDECODE_NUM_THREADS="4", OPENBLAS_NUM_THREADS="1"))
    assert one == four == 0 or one < four


@pytest.mark.parametrize("value", ["0", "-3", "many", ""])
def test_wrong_thread_counts_of_the_environment(value):
    """Refused with a Python error that names the variable, or taken as unset; never a crash."""
    done = python_result(
        """
        from backends import NUMPY, check_call
        from cases import CASE
        check_call(NUMPY, CASE["plain"].build())
        """,
        PAGEDECODE_NUM_THREADS=value,
    )
    assert done.returncode >= 0
    assert done.returncode == 0 or "PAGEDECODE_NUM_THREADS" in done.stderr


def test_fork():
    """A child forked after calls (the pool's threads are gone there) computes, and so does its
    parent."""
    python(
        """
        import os, signal
        from backends import NUMPY, run
        from cases import CASE
        import pagedecode
        pagedecode.set_num_threads(3)
        problems = [CASE[n].build() for n in ("plain", "long", "splits-7")]
        want = [run(NUMPY, args) for args in problems]
        for generation in range(3):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                good = all(run(NUMPY, a).same_bits(w) for a, w in zip(problems, want))
                grandchild = os.fork()
                if grandchild == 0:
                    good = all(run(NUMPY, a).same_bits(w) for a, w in zip(problems, want))
                    os._exit(0 if good else 1)
                inner = os.waitpid(grandchild, 0)[1]
                os._exit(0 if good and inner == 0 else 1)
            assert all(run(NUMPY, a).same_bits(w) for a, w in zip(problems, want))
            assert os.waitpid(child, 0)[1] == 0
        """
    )


def test_fork_during_a_call():
    """Forked while another thread is inside the library: the child still can call."""
    python(
        """
        import os, signal, threading
        from backends import NUMPY, run
        from cases import CASE
        args = CASE["long"].build()
        want = run(NUMPY, args)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                run(NUMPY, args)
        thread = threading.Thread(target=work)
        thread.start()
        status = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if run(NUMPY, args).same_bits(want) else 1)
            status.append(os.waitpid(child, 0)[1])
        stop.set()
        thread.join()
        assert not any(status), status
        """
    )


def test_exit_with_live_threads():
    """The process ends by itself, with the pool alive and a daemon thread inside a call."""
    python(
        """
        import threading
        from backends import NUMPY, run
        from cases import CASE
        args = CASE["long"].build()
        run(NUMPY, args)
        def work():
            while True:
                run(NUMPY, args)
        threading.Thread(target=work, daemon=True).start()
        """,
        timeout=60,
    )


@pytest.mark.gpu
def test_concurrent_streams():
    """Two threads on two streams of one device: each its own bits, again and again."""
    import torch

    import pagedecode

    backend = BACKENDS["torch-cuda"]
    problems = [CASE[name].build() for name in ("long", "splits-7", "mask-wide", "everything-fp8")]
    want = [run(backend, args, guarded=False) for args in problems]
    given = [convert(backend, args) for args in problems]

    def work(i):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        good = True
        with torch.cuda.stream(stream):
            for _ in range(30):
                out, lse = pagedecode.decode(**given[i], return_lse=True)
                stream.synchronize()
                good &= bits_equal(backend.back(out), want[i].out)
                good &= bits_equal(backend.back(lse), want[i].lse)
        return good

    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_more_threads_than_there_may_be():
    """Refused by the number that was given, never cut down in silence."""
    import pagedecode

    pagedecode.set_num_threads(1024)
    assert pagedecode.num_threads() == 1024
    for n in (1025, 5000, 2**31, 2**40, 10**30, 0, -1, -(2**31) - 1):
        with pytest.raises(ValueError, match=rf"^n: got {n}, want "):
            pagedecode.set_num_threads(n)
    assert pagedecode.num_threads() == 1024
    for value in ("1025", "99999999999", "9" * 30):
        python(
            """
            import pagedecode
            try:
                pagedecode.num_threads()
            except ValueError as error:
                assert str(error).startswith("PAGEDECODE_NUM_THREADS: got '"), error
            else:
                raise SystemExit("no error")
            """,
            PAGEDECODE_NUM_THREADS=value,
        )
