"""What a stage's process is doing, in shared memory: written by it alone, read by the pipeline."""

from __future__ import annotations

import mmap
from enum import IntEnum

import numpy as np

SIZE_BYTES = 128


class State(IntEnum):
    """What a stage's process is doing."""

    STARTING = 0
    IDLE = 1
    WAITING_FOR_INPUT = 2
    WAITING_FOR_OUTPUT = 3
    BUSY = 4


class Board:
    """Eight-byte words, each written whole; a reader may see some older than others."""

    _EPOCH, _STATE, _SINCE, _STARTED, _FINISHED, _LAST, _FRAME = range(7)

    def __init__(self, descriptor: int) -> None:
        self._words = np.frombuffer(mmap.mmap(descriptor, SIZE_BYTES), np.int64)

    def begin(self, epoch: int) -> None:
        self._words[self._STARTED] = self._words[self._FINISHED] = 0
        self._words[self._EPOCH] = epoch

    def enter(self, state: State, now_ns: int) -> None:
        self._words[self._SINCE] = now_ns
        self._words[self._STATE] = state

    def start_frame(self, frame: int) -> None:
        self._words[self._FRAME] = frame
        self._words[self._STARTED] += 1

    def finish_frame(self, frame: int) -> None:
        self._words[self._LAST] = frame + 1
        self._words[self._FINISHED] += 1

    @property
    def epoch(self) -> int:
        """The epoch that runs, or ran last."""
        return int(self._words[self._EPOCH])

    @property
    def state(self) -> State:
        return State(int(self._words[self._STATE]))

    @property
    def since_ns(self) -> int:
        """When the state was entered, on the clock of `time.monotonic_ns`."""
        return int(self._words[self._SINCE])

    @property
    def started(self) -> int:
        """How many frames of the epoch."""
        return int(self._words[self._STARTED])

    @property
    def finished(self) -> int:
        """How many frames of the epoch."""
        return int(self._words[self._FINISHED])

    @property
    def frame(self) -> int:
        """Number of the frame that was begun last."""
        return int(self._words[self._FRAME])

    @property
    def last_frame(self) -> int:
        """Number of the last frame that was finished, in any epoch; -1 before the first."""
        return int(self._words[self._LAST]) - 1
