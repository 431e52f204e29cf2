"""Designs that have work in common go to a worker together, which does that work once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
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

MOST: dict[Fidelity, int] = {"predicted": 16, "simulated": 1, "checked": 1}
"""Designs in a group: what a worker that dies, and an interrupt, cost at most. Simulations have
nearly nothing in common."""
PART = 2
"""A group is at most this part of what is left for a worker, so that all end at about one time."""


@dataclass(frozen=True)
class Asked:
    """A design, its ``number``, and what workers read each of its models from."""

    number: int
    design: Design
    shared: Sequence[Any]


def evaluated(
    engine: Engine, asked: Sequence[Asked], fidelity: Fidelity, limits: Limits
) -> Generator[tuple[int, list[Outcome] | Exception], None, None]:
    """(number of a design, the outcomes of its models or the exception that its evaluation ended
    with), in the order in which they come. The designs of a group that failed, or whose worker
    died, are evaluated once more, each by itself: what one of them does costs that one only. Close
    it before the engine stops."""
    groups = list(_groups(asked, MOST[fidelity], engine.workers))
    alone: list[list[Asked]] = []
    for each in (groups, alone):
        if not each:
            continue
        with closing(_of_groups(engine, each, fidelity, limits)) as results:
            for group, result in results:
                if not isinstance(result, Exception):
                    for one, outcomes in zip(group, result, strict=True):
                        yield one.number, outcomes
                elif len(group) == 1:
                    yield group[0].number, result
                else:
                    alone += [[one] for one in group]


def _of_groups(
    engine: Engine, groups: Sequence[Sequence[Asked]], fidelity: Fidelity, limits: Limits
) -> Generator[tuple[Sequence[Asked], list[list[Outcome]] | Exception], None, None]:
    tasks = (
        ([one.shared for one in group], [one.design for one in group], fidelity, limits)
        for group in groups
    )
    with closing(run_tasks(engine, evaluate_all, tasks)) as results:
        for at, result in results:
            yield groups[at], result


def _groups(asked: Sequence[Asked], most: int, workers: int) -> Iterator[list[Asked]]:
    """Of designs that have work in common, smaller ones towards the end."""
    left = len(asked)
    for _, alike in groupby(sorted(asked, key=_common), _common):
        rest = list(alike)
        while rest:
            size = max(1, min(most, left // (PART * workers)))
            group, rest = rest[:size], rest[size:]
            left -= len(group)
            yield group


def _common(asked: Asked) -> tuple[str, tuple[int, ...]]:
    """Designs that are alike in this have work in common."""
    machine = asked.design.machine
    assert machine is not None
    return machine.isa, backend_of(machine).common(machine)
