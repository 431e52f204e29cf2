"""When a frame was where: written along its way into the slots, read where it comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FRAME, _PUT, _FIRST_STAGE = range(3)
_PER_STAGE = 5


def words_for(stages: int) -> int:
    """How many int64 words of a slot say when its frame was where."""
    return _FIRST_STAGE + _PER_STAGE * stages


@dataclass(frozen=True)
class StageTime:
    """One frame in one stage, on the clock of `time.monotonic_ns`: the stage begins to wait for
    the frame, has it, has room for the result, is done. ``cpu_ns`` is processor time of the
    computing alone, which a throttled or shared core does not stretch."""

    wait_ns: int
    input_ns: int
    begin_ns: int
    end_ns: int
    cpu_ns: int

    @property
    def busy_s(self) -> float:
        return (self.end_ns - self.begin_ns) * 1e-9

    @property
    def input_wait_s(self) -> float:
        return (self.input_ns - self.wait_ns) * 1e-9

    @property
    def output_wait_s(self) -> float:
        return (self.begin_ns - self.input_ns) * 1e-9


@dataclass(frozen=True)
class FrameTimes:
    """``put_ns``: the frame went in; ``out_ns``: its results came out. ``epoch`` counts
    deployments of the pipeline."""

    frame: int
    epoch: int
    put_ns: int
    out_ns: int
    stages: tuple[StageTime, ...]

    @property
    def latency_s(self) -> float:
        return (self.out_ns - self.put_ns) * 1e-9


def write_put(words: NDArray[np.int64], frame: int, now_ns: int) -> None:
    words[_FRAME], words[_PUT] = frame, now_ns


def write_stage(words: NDArray[np.int64], stage: int, times: Sequence[int]) -> None:
    """``times`` in the order of StageTime's fields."""
    begin = _FIRST_STAGE + _PER_STAGE * stage
    words[begin : begin + _PER_STAGE] = times


def frame_of(words: NDArray[np.int64]) -> int:
    return int(words[_FRAME])


def read_times(words: NDArray[np.int64], epoch: int, out_ns: int) -> FrameTimes:
    values = words.tolist()
    stages = tuple(
        StageTime(*values[begin : begin + _PER_STAGE])
        for begin in range(_FIRST_STAGE, len(values), _PER_STAGE)
    )
    return FrameTimes(values[_FRAME], epoch, values[_PUT], out_ns, stages)
