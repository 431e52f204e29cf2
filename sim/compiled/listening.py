"""Ctrl-C is heard while compiled code runs a single instruction for minutes.

Between slices Python hears signals itself (`slices`). Within an instruction it does not, and one on
large memories may multiply for minutes: such runs go on in a thread, and the caller waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tvm_npu.sim.compiled.slices import RunThread
from tvm_npu.sim.deferred import deferred

T = TypeVar("T")
LONG_BYTES = 1 << 18
"""Of memories that instructions compute on: in smaller ones the longest takes a second, about."""
LONG_WORK = 1 << 25
"""Products or elements of an instruction: fewer take a second at most, mostly some hundredths."""
LONG_MOVES = 1 << 29
"""Bytes that an instruction may move: fewer take a second at most."""


class Listening:
    """The runs of one simulator, one after the other. ``is_long``: an instruction may take more
    than a second."""

    def __init__(self, is_long: bool) -> None:
        self._is_long = is_long
        self._left: RunThread | None = None

    def call(self, run: Callable[[], T]) -> T:
        """What ``run`` returns or raises. A signal's exception comes at once; then ``run`` ends
        after its instruction, by itself."""
        self.settle()
        if not self._is_long or threading.current_thread() is not threading.main_thread():
            return run()
        found: list[T] = []
        thread = RunThread(lambda: found.append(run()))
        try:
            with deferred():  # a thread that never started would never be over
                thread.start()
                self._left = thread
            thread.over.wait()
        except BaseException:
            thread.is_left = True
            raise
        self._left = None
        if thread.error is not None:
            raise thread.error
        return found[0]

    def settle(self) -> None:
        """Waits for the instruction in which the last run was left, if it was: it still writes."""
        if self._left is not None:
            self._left.over.wait()
            self._left = None
