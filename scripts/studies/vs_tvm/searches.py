"""Tuners against planners: what a network's planned layers take after so many trials of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from studies.harness.study import Bench
from studies.shared.bench_models import cases, image_input
from tvm_npu.codegen.tune.errors import EmptySpaceError
from tvm_npu.codegen.tune.log import Run
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.codegen.tune.tune import tune
from tvm_npu.door.models import import_onnx
from tvm_npu.options import make_options
from tvm_npu.sim.description import MachineDescription
from tvm_npu.tuning.measure import LayerMeasure
from tvm_npu.tuning.model import Question, exact_cycles, questions

EXACT = "exact"


@dataclass(frozen=True)
class SearchRow:
    """The layers of ``model`` that planners plan, after ``trials`` trials of ``tuner`` for each
    distinct one: simulated, layer by layer alone. None where a layer has no plan yet that runs.
    ``layers`` are distinct ones."""

    model: str
    machine: str
    tuner: str
    trials: int
    best_us: float | None
    exact_us: float | None
    layers: int


@lru_cache(maxsize=1)
def asked(model: str, machine: MachineDescription) -> tuple[Question, ...]:
    """The distinct questions of a network's own layers; cascades of two are left out, they compute
    the same once more."""
    case = cases()[model]
    proto = case.model()
    name = image_input(proto).name
    shapes = {name: case.inputs().images[:1].shape}
    calibration = iter([{name: case.inputs().calibration[:1]}])
    partitioned = import_onnx(proto, shapes).partition(make_options(machine), calibration)
    graphs = partitioned.fixed_graphs()
    names = {layer.name for graph in graphs.values() for layer in graph.layers}
    return tuple(one for one in questions(graphs.values(), machine) if one.name in names)


@dataclass(frozen=True)
class Exact:
    """The plans of `exact` for a network's distinct ``layers``, measured."""

    best_us: float | None
    layers: int


def of_exact(model: str, machine: MachineDescription, bench: Bench) -> Exact:
    cycles = [exact_cycles(LayerMeasure(one.problem, machine)) for one in asked(model, machine)]
    return Exact(_total_us(asked(model, machine), cycles, machine), len(cycles))


def best_so_far_us(
    model: str, machine: MachineDescription, tuner: str, trials: int, bench: Bench
) -> list[float | None]:
    """After each trial."""
    found: list[list[float | None]] = []
    for number, question in enumerate(asked(model, machine), 1):
        bench.say(f"layer {number} of {len(asked(model, machine))}")
        try:
            run = tune(
                space_of(question.problem, machine), Run(tuner, False, 0), trials,
                LayerMeasure(question.problem, machine),
            )  # fmt: skip
            found.append(list(accumulate(run.cycles, _least)))
        except EmptySpaceError:
            found.append([exact_cycles(LayerMeasure(question.problem, machine))] * trials)
    return [
        _total_us(asked(model, machine), [layer[trial] for layer in found], machine)
        for trial in range(trials)
    ]


def _least(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)


def _total_us(
    asked: Sequence[Question], cycles: Sequence[float | None], machine: MachineDescription
) -> float | None:
    total = 0.0
    for question, one in zip(asked, cycles, strict=True):
        if one is None:
            return None
        total += question.layers * one
    return total / machine.frequency_mhz


def search_rows(
    model: str,
    machine: MachineDescription,
    exact: Exact,
    found: dict[str, list[float | None]],
) -> list[SearchRow]:
    """One for each tuner and number of trials, and one of `exact`."""
    us, layers = exact.best_us, exact.layers
    rows = [SearchRow(model, machine.name, EXACT, 1, us, us, layers)]
    for tuner, best in found.items():
        rows += [
            SearchRow(model, machine.name, tuner, trials, one, us, layers)
            for trials, one in enumerate(best, 1)
        ]
    return rows
