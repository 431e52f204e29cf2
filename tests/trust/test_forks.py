"""A fork while another thread simulates: the child can simulate, too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.runtime.networks import machine as small_nmp
from tests.trust.forged import program_file
from tvm_npu.runtime.session import Session
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.locks import ForkedLock
from tvm_npu.sim.traps import Trap

SECONDS = 60


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_can_run_what_another_thread_runs() -> None:
    data = program_file(small_nmp(), "loop: j loop\n")
    session = Session(data, limits=Limits(instructions=1 << 24))
    started = threading.Event()

    def simulate() -> None:
        started.set()
        with pytest.raises(Trap, match="still running"):
            session.run_fixed([])

    with pytest.raises(Trap):  # compiles the simulator
        Session(data, limits=Limits(instructions=1 << 10)).run_fixed([])
    other = threading.Thread(target=simulate)
    other.start()
    started.wait()
    while not session._lock.is_held():
        pass
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            for each in (session, Session(data, limits=Limits(instructions=1 << 10))):
                with pytest.raises(Trap):
                    each.run_fixed([])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    other.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_child_finds_locks_open(make: Callable[[], Any]) -> None:
    lock, taken, done = ForkedLock(make), threading.Event(), threading.Event()

    def hold() -> None:
        with lock():
            taken.set()
            done.wait()

    other = threading.Thread(target=hold)
    other.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        with lock():
            os._exit(0)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        other.join()
