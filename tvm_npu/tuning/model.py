"""Tuning all that a planner is asked about a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.passes.dilation import with_live_taps
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.layers import question_of
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tune.errors import EmptySpaceError, MeasureError
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.codegen.tune.tune import tune
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.tuning.measure import LayerMeasure, bare


@dataclass(frozen=True)
class Question:
    """What planners are asked about a model, and the first layer (or cascade of two) that asks it;
    ``layers`` ask the same."""

    problem: ConvProblem
    name: str
    layers: int


@dataclass(frozen=True)
class TunedLayer:
    """The outcome of tuning one question: ``best_cycles`` of the run, None where no plan could be
    measured, and ``exact_cycles`` of the plan of `exact`, measured as well."""

    layer: str
    layers: int
    trials: int
    measured: int
    failed: int
    best_cycles: float | None
    exact_cycles: float | None


def questions(
    graphs: Iterable[FixedGraph], machine: MachineDescription
) -> tuple[Question, ...]:
    """Convolutions and fully connected layers, each distinct one once, and the layers that the
    backend could make of them; without those that no plan fits."""
    kind = backend_of(machine)
    names: dict[ConvProblem, list[str]] = {}
    for graph in map(with_live_taps, graphs):
        asking = [layer for layer in graph.layers if isinstance(layer, FixedConv)]
        for layer in (*asking, *kind.candidates(graph, machine)):
            problem = question_of(layer, graph, machine)
            assert isinstance(problem, ConvProblem)
            names.setdefault(problem, []).append(layer.name)
    exact = planner("exact")
    return tuple(
        Question(problem, asked[0], len(asked))
        for problem, asked in names.items()
        if not isinstance(exact.plan(problem, machine), Infeasible)
    )


def warm_plans(problem: ConvProblem, machine: MachineDescription) -> tuple[Any, ...]:
    """What the analytic planners would do, the best first."""
    found = backend_of(machine).warm_plans(problem, machine)
    return tuple(dict.fromkeys(bare(plan) for plan in found))


def tune_layer(
    question: Question,
    machine: MachineDescription,
    run: Run,
    trials: int,
    log: LogWriter,
    after: Callable[[int, float | None], None] | None = None,
    limits: Limits = DEFAULT,
) -> TunedLayer:
    """Raises what `tune` raises, and WrongValuesError and LimitError as `LayerMeasure` does."""
    problem = question.problem
    measure = LayerMeasure(problem, machine, limits)
    first = warm_plans(problem, machine) if run.warm else ()
    try:
        tuned = tune(space_of(problem, machine), run, trials, measure, log, first, after)
    except EmptySpaceError:
        return TunedLayer(question.name, question.layers, 0, 0, 0, None, None)
    return TunedLayer(
        question.name, question.layers, len(tuned.plans), tuned.measured,
        sum(cycles is None for cycles in tuned.cycles),
        None if tuned.best is None else tuned.best[1], exact_cycles(measure),
    )  # fmt: skip


def exact_cycles(measure: LayerMeasure) -> float | None:
    """What the plan of `exact` takes, measured."""
    try:
        plan = planner("exact").plan(measure.problem, measure.machine)
        return None if isinstance(plan, Infeasible) else measure(bare(plan))
    except MeasureError:
        return None
