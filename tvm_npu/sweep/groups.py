"""Designs that have work in common go to a worker together, which does that work once."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tvm_npu.codegen.backends import backend_of
from tvm_npu.sim.limits import Limits
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Engine, run_tasks
from tvm_npu.sweep.evaluate import evaluate_all
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.spec import Fidelity

TOGETHER: frozenset[Fidelity] = frozenset({"predicted"})
"""Simulations have nearly nothing in common: each is a task by itself."""
FIRST = 16
"""Designs in a group before any was evaluated."""
GROUP_S = 20.0
"""What a worker that dies, and an interrupt, cost at most, by the pace so far."""
PART = 2
"""A group is at most this part of what is left for a worker, so that all end at about one time."""


@dataclass(frozen=True)
class Asked:
    """A design, its ``number``, and what workers read each of its models from."""

    number: int
    design: Design
    shared: Sequence[Any]


class Pace:
    """How long designs took."""

    def __init__(self) -> None:
        self._designs, self._seconds = 0, 0.0

    def took(self, designs: int, seconds: float) -> None:
        self._designs += designs
        self._seconds += seconds

    def most(self) -> int:
        """Designs that take `GROUP_S`, at least one."""
        if not self._designs:
            return FIRST
        return max(1, int(GROUP_S * self._designs / max(self._seconds, 1e-9)))


def evaluated(
    engine: Engine, asked: Sequence[Asked], fidelity: Fidelity, limits: Limits
) -> Generator[tuple[int, list[Outcome] | Exception], None, None]:
    """(number of a design, the outcomes of its models or the exception that its evaluation ended
    with), in the order in which they come. The designs of a group that failed, or whose worker
    died, are evaluated once more, each by itself: what one of them does costs that one only. Close
    it before the engine stops."""
    pace = Pace()
    most = pace.most if fidelity in TOGETHER else lambda: 1
    alone: list[list[Asked]] = []
    for each in (_groups(asked, most, engine.workers), alone) if asked else ():
        with closing(_of_groups(engine, each, fidelity, limits)) as results:
            for group, result in results:
                if not isinstance(result, Exception):
                    seconds, found = result
                    pace.took(len(group), seconds)
                    for one, outcomes in zip(group, found, strict=True):
                        yield one.number, outcomes
                elif len(group) == 1:
                    yield group[0].number, result
                else:
                    alone += [[one] for one in group]
        if not alone:
            return


Timed = tuple[float, list[list[Outcome]]]
"""Seconds, and the outcomes of each design's models."""


def _timed(evaluate: Callable[..., list[list[Outcome]]], *asked: Any) -> Timed:
    """Runs in workers."""
    started = time.perf_counter()
    found = evaluate(*asked)
    return time.perf_counter() - started, found


def _of_groups(
    engine: Engine, groups: Iterable[Sequence[Asked]], fidelity: Fidelity, limits: Limits
) -> Generator[tuple[Sequence[Asked], Timed | Exception], None, None]:
    """Groups are taken as workers want them."""
    given: list[Sequence[Asked]] = []

    def tasks() -> Iterator[tuple[Any, ...]]:
        for group in groups:
            given.append(group)
            shared, designs = [one.shared for one in group], [one.design for one in group]
            yield evaluate_all, shared, designs, fidelity, limits

    with closing(run_tasks(engine, _timed, tasks())) as results:
        for at, result in results:
            yield given[at], result


def _groups(
    asked: Sequence[Asked], most: Callable[[], int], workers: int
) -> Iterator[list[Asked]]:
    """Of designs that have work in common, at most ``most()`` at the time, and smaller ones
    towards the end."""
    left = len(asked)
    for _, alike in groupby(sorted(asked, key=_common), _common):
        rest = list(alike)
        while rest:
            size = max(1, min(most(), left // (PART * workers)))
            group, rest = rest[:size], rest[size:]
            left -= len(group)
            yield group


def _common(asked: Asked) -> tuple[str, tuple[int, ...]]:
    """Designs that are alike in this have work in common."""
    machine = asked.design.machine
    assert machine is not None
    return machine.isa, backend_of(machine).common(machine)
