"""Compiled loops come back to Python now and then, so that Ctrl-C and other signals are heard.

A simulator counts the work of a run (products, elements, bytes) in the first entry of an array and
stops at the second, the limit; at the third, the end of the slice, it goes back to Python, which
calls it again. Nothing that a run computes depends on where slices end. Units that share the array
count their instructions in it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.decorators import device

DONE, ALLOWED, SLICE, INSTRUCTIONS, EXECUTED, EXECUTABLE = range(6)
"""Places of an array of work; INSTRUCTIONS has how many instructions a slice may take, EXECUTED how
many of the run are done, EXECUTABLE how many the run may take."""

SLICE_WORK = 1 << 27
"""Products, elements and bytes of a slice, about: some tenths of a second at most."""

SLICE_INSTRUCTIONS = 1 << 21
"""Instructions of a slice."""

ANY_INSTRUCTIONS = (1 << 63) - 1
"""More than a run can take."""


def new_work() -> NDArray[np.int64]:
    """The array of a state."""
    return np.zeros(6, np.int64)


def begin_run(
    work: NDArray[np.int64], most_work: int, most_instructions: int = ANY_INSTRUCTIONS
) -> None:
    """Nothing is done; ``most_work`` and ``most_instructions`` are allowed."""
    work[DONE], work[ALLOWED], work[SLICE] = 0, min(most_work, 1 << 62), SLICE_WORK
    work[INSTRUCTIONS] = SLICE_INSTRUCTIONS
    work[EXECUTED], work[EXECUTABLE] = 0, most_instructions


class RunThread(threading.Thread):
    """Calls ``function``. When ``is_left`` is set nobody waits for it: it ends with its slice."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(name="simulation", daemon=True)
        self._function = function
        self.is_left = False
        self.error: BaseException | None = None
        self.over = threading.Event()
        """To wait for: a `join` that a signal ends counts the thread as ended."""

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.over.set()


def next_slice(work: NDArray[np.int64]) -> None:
    """Another slice may be done. KeyboardInterrupt in a thread that was left."""
    thread = threading.current_thread()
    if isinstance(thread, RunThread) and thread.is_left:
        raise KeyboardInterrupt
    work[SLICE] = work[DONE] + SLICE_WORK


@device
def spends(work: Any, units: int) -> bool:
    """Counts work before it is done; whether it is allowed."""
    work[DONE] += min(units, 1 << 61)
    return work[DONE] <= work[ALLOWED]


@device
def ran_away(work: Any) -> bool:
    """Whether the run has taken all the instructions that it may."""
    return work[EXECUTED] >= work[EXECUTABLE]


@device
def slice_ends(work: Any) -> bool:
    return work[DONE] >= work[SLICE]


class _Interrupts:
    """Around calls of compiled code: a signal that comes while numba takes arguments apart or makes
    results ends as a SystemError; what the signal's handler raised is its cause, or that one's."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        cause = error
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if isinstance(cause, KeyboardInterrupt) and cause is not error:
            raise KeyboardInterrupt from None


interrupts = _Interrupts()
