"""Tuning all that a planner is asked about a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.nmp.plan.chains import candidates
from tvm_npu.codegen.nmp.plan.planning import problem_of
from tvm_npu.codegen.nmp.plan.shortlist import shortlist
from tvm_npu.codegen.ops import FixedChain, FixedConv
from tvm_npu.codegen.plan import Planner, planner
from tvm_npu.codegen.plan.loops.plan import TilePlan
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.planning import stored_problem
from tvm_npu.codegen.tune.errors import EmptySpaceError, MeasureError
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.codegen.tune.tune import tune
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.tuning.measure import AnyPlan, LayerMeasure, bare

WARM_PLANS = 4
"""Of the analytic model, with which a warm run begins on an NMP; `tso`'s plan follows."""
WARM_TILE_PLANNERS = ("exact", "eplanner", "double-buffer")
"""With whose plans it begins on a tile machine."""


@dataclass(frozen=True)
class Question:
    """What planners are asked about a model, and the first layer (or chain of two) that asks it;
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
    graphs: Iterable[FixedGraph], machine: NmpMachine | TileMachine
) -> tuple[Question, ...]:
    """Convolutions and fully connected layers, each distinct one once, and the chains that could
    be made of them where ``machine`` is an NMP with a ring; without those that no plan fits."""
    names: dict[ConvProblem, list[str]] = {}
    for graph in graphs:
        asking = [layer for layer in graph.layers if isinstance(layer, FixedConv)]
        if isinstance(machine, TileMachine):
            for conv in asking:
                names.setdefault(stored_problem(conv, graph, machine), []).append(conv.name)
            continue
        chains: list[FixedChain] = candidates(graph) if machine.ring is not None else []
        for layer in (*asking, *chains):
            problem = problem_of(layer, graph.shapes, graph.element_bytes)
            assert isinstance(problem, ConvProblem)
            names.setdefault(problem, []).append(layer.name)
    exact = planner("exact")
    return tuple(
        Question(problem, asked[0], len(asked))
        for problem, asked in names.items()
        if not isinstance(_answer(exact, problem, machine), Infeasible)
    )


def _answer(
    chosen: Planner, problem: ConvProblem, machine: MachineDescription
) -> ConvPlan | TilePlan | Infeasible:
    """What a planner for machines of every kind says."""
    found: ConvPlan | TilePlan | Infeasible = chosen.plan(problem, machine)  # type: ignore[arg-type]
    return found


def warm_plans(problem: ConvProblem, machine: MachineDescription) -> tuple[AnyPlan, ...]:
    """What the analytic planners would do, the best first."""
    if not isinstance(machine, NmpMachine):
        answers = (_answer(planner(name), problem, machine) for name in WARM_TILE_PLANNERS)
        return tuple(dict.fromkeys(bare(one) for one in answers if isinstance(one, TilePlan)))
    listed = shortlist(problem, machine, WARM_PLANS)
    if isinstance(listed, Infeasible):
        return ()
    plans = [bare(plan) for plan in listed]
    if problem.window is None:
        tso = planner("tso").plan(problem, machine)
        if isinstance(tso, ConvPlan):
            plans.append(bare(tso))
    return tuple(dict.fromkeys(plans))


def tune_layer(
    question: Question,
    machine: MachineDescription,
    run: Run,
    trials: int,
    log: LogWriter,
    after: Callable[[int, float | None], None] | None = None,
) -> TunedLayer:
    """Raises what `tune` raises, and WrongValuesError."""
    problem = question.problem
    measure = LayerMeasure(problem, machine)
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
        plan = _answer(planner("exact"), measure.problem, measure.machine)
        return None if isinstance(plan, Infeasible) else measure(bare(plan))
    except MeasureError:
        return None
