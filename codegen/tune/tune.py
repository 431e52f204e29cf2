"""Tuning one layer: a tuner proposes, the machine answers, the log remembers.

Resuming is replaying: the tuner begins anew and gets its first answers from the log, so an
interrupted run that goes on ends exactly where one that was never interrupted does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.tune.errors import MeasureError, ResumeError
from tvm_npu.codegen.tune.log import LogWriter, Run, Subject, Trial
from tvm_npu.codegen.tune.space import Space
from tvm_npu.codegen.tune.tuners import make_tuner
from tvm_npu.sim.numbers import check_whole

P = TypeVar("P")

Measure = Callable[[P], float]
"""Cycles of a plan on the machine; raises MeasureError for a plan that cannot be measured."""


@dataclass(frozen=True)
class Tuned(Generic[P]):
    """All trials of a run in order, and the fastest plan (None where none could be measured)."""

    plans: tuple[P, ...]
    cycles: tuple[float | None, ...]
    measured: int
    """Trials that were not in the log before."""

    @property
    def best(self) -> tuple[P, float] | None:
        """Of equal ones the earliest."""
        found = [
            (cycles, number) for number, cycles in enumerate(self.cycles) if cycles is not None
        ]
        if not found:
            return None
        cycles, number = min(found)
        return self.plans[number], cycles


def tune(
    space: Space[P],
    run: Run,
    trials: int,
    measure: Measure[P],
    log: LogWriter | None = None,
    first: Sequence[P] = (),
    after: Callable[[int, float | None], None] | None = None,
) -> Tuned[P]:
    """``trials`` trials of a layer's plans by ``run``; what ``log`` already holds of this run is
    not measured again. ``first`` plans are tried before the tuner's own (``run.warm`` tells such
    runs apart). ``after`` is called with the number and cycles of every trial.

    Raises ResumeError when the log's trials of this run are not the tuner's, and what `make_tuner`
    and ``measure``, but for MeasureError, raise; PlanningError for a number that trials have not.
    """
    check_whole(trials, "trials", PlanningError)
    subject = Subject.of(space)
    known = {} if log is None else logged(log.trials, subject, run)
    tuner = make_tuner(run.tuner, space, run.seed, first)
    plans: list[P] = []
    outcomes: list[float | None] = []
    measured = 0
    while len(plans) < trials:
        for plan in tuner.propose():
            number = len(plans)
            columns = tuple(sorted(space.encode(plan).items()))
            before = known.get(number)
            if before is not None:
                if before.plan != columns:
                    assert log is not None
                    raise _differs(log, before, columns)
                cycles = before.cycles
            else:
                cycles, error = _tried(measure, plan)
                measured += 1
                if log is not None:
                    name = space.machine.name
                    log.append(Trial(subject, name, run, number, columns, cycles, error))
            plans.append(plan)
            outcomes.append(cycles)
            tuner.update(plan, cycles)
            if after is not None:
                after(number, cycles)
            if len(plans) == trials:
                break
    return Tuned(tuple(plans), tuple(outcomes), measured)


def _tried(measure: Measure[P], plan: P) -> tuple[float | None, str | None]:
    try:
        return measure(plan), None
    except MeasureError as error:
        return None, str(error)


def logged(trials: Sequence[Trial], subject: Subject, run: Run) -> Mapping[int, Trial]:
    """The trials of a run of a subject by their number; of several with one number the first."""
    found: dict[int, Trial] = {}
    for trial in trials:
        if trial.subject == subject and trial.run == run:
            found.setdefault(trial.number, trial)
    return found


def _differs(log: LogWriter, before: Trial, columns: tuple[tuple[str, Any], ...]) -> ResumeError:
    own = dict(columns)
    other = dict(before.plan)
    names = [key for key in {**own, **other} if own.get(key) != other.get(key)]
    name = min(names)
    run = before.run
    return ResumeError(
        f"tuning log {str(log.path)!r}, line {before.line}: trial {before.number} of tuner "
        f"{run.tuner!r}, seed {run.seed}, has {name} = {other.get(name)!r}, but this tuner tries "
        f"{own.get(name)!r} there: another version wrote the log; give another seed or log"
    )
