"""Ctrl-C at any moment leaves no lock held, no half of a block done, and a session that runs."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from threadpoolctl import ThreadpoolController

from tests.runtime.networks import compiled, machine, network
from tests.trust.test_slices import no_callbacks_of_the_collector
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.blas import SerialBlas
from tvm_npu.sim.compiled.listening import Listening
from tvm_npu.sim.compiled.slices import RunThread
from tvm_npu.sim.deferred import deferred
from tvm_npu.sim.locks import ForkedLock

__all__ = ["no_callbacks_of_the_collector"]
pytestmark = pytest.mark.usefixtures("no_callbacks_of_the_collector")


@pytest.fixture
def alarms() -> Iterator[None]:
    """An alarm is a Ctrl-C."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def cut(step: Callable[[], object], count: int = 300) -> Iterator[None]:
    """``step`` over and over, until a Ctrl-C comes; ``count`` times."""
    for _ in range(count):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-4))
            while True:
                step()
        except KeyboardInterrupt:
            yield


@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_no_lock_stays_held(make: Callable[[], Any]) -> None:
    lock = ForkedLock(make)
    free: list[bool] = []

    def step() -> None:
        with lock():
            pass

    def other() -> None:
        free.append(lock().acquire(blocking=False))
        if free[-1]:
            lock().release()

    for _ in cut(step):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert free[-1]


@pytest.mark.usefixtures("alarms")
def test_a_block_is_whole() -> None:
    counts = [0] * 20

    def step() -> None:
        with deferred(), deferred():
            for at in range(len(counts)):  # Python hears signals where a loop goes round
                counts[at] += 1

    handler = signal.getsignal(signal.SIGINT)
    for _ in cut(step):
        assert len(set(counts)) == 1
        assert signal.getsignal(signal.SIGINT) is handler


def test_blocks_of_other_threads_leave_the_handler() -> None:
    handler, seen = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    other = threading.Thread(target=look)
    other.start()
    other.join()
    assert seen == [handler]


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("alarms")
def test_blas_gets_its_threads_back() -> None:
    blas = SerialBlas()

    def threads() -> list[int]:
        return [one["num_threads"] for one in ThreadpoolController().info()]

    def step() -> None:
        with blas:
            pass

    before = threads()
    for _ in cut(step, 100):
        pass
    step()
    assert threads() == before


def test_a_thread_that_an_interrupt_starts_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening, original = Listening(True), RunThread.start

    def start(thread: RunThread) -> None:
        signal.raise_signal(signal.SIGINT)
        original(thread)

    monkeypatch.setattr(RunThread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        listening.call(lambda: 1)
    monkeypatch.undo()
    assert listening.call(lambda: 7) == 7


def test_a_run_within_a_run_of_the_same_session_is_refused() -> None:
    _, samples = network()
    session = Session(compiled(machine())[0])
    inputs = [samples[:1], samples[:1]]

    class Sink:
        def record(self, *_: object) -> None:
            session.run(inputs)

    expected = session.run(inputs)
    with pytest.raises(RunError, match="inside of a run of the same session"):
        session.run(inputs, events=Sink())
    for found, want in zip(session.run(inputs), expected, strict=True):
        assert (found == want).all()
