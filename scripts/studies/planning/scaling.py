"""How simulated and planning time grow: a network scaled in input size and width, and planning of
networks with more and fewer distinct layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.planning.measuring import Case, Prepared, plan_seconds, prepare_case, run_case
from tvm_npu.codegen.plan import planner
from tvm_npu.sim.nmp.machine import NmpMachine

SIZES = (112, 160, 224, 320, 448)
WIDTHS = (0.5, 1.0, 2.0)


TOGETHER = "together"
"""In place of a model's name: the layers of all networks at their published sizes."""


@dataclass(frozen=True)
class ScalingRow:
    """One variant of a network on one machine under one planner; ``layers`` are those that a
    planner plans. What is only planned has its published size (``input_size`` is None) and no
    cycles but its bound's."""

    model: str
    input_size: int | None
    width: float
    machine: str
    planner: str
    macs: int
    layers: int
    distinct_layers: int
    simulated_cycles: float | None
    predicted_cycles: float | None
    bound_cycles: float
    plan_s: float


@dataclass(frozen=True)
class OnlyPlanned:
    """A network at its published size."""

    case: Case
    rows: list[ScalingRow]


def scaled(
    model: str, machine: NmpMachine, size: int, width: float, planners: Sequence[str]
) -> list[ScalingRow]:
    """Simulated, values checked: a row a planner. Raises StudyError as `run_case` does."""
    prepared = prepare_case(model, machine, input_size=size, width=width)
    return [_simulated(prepared, name, size, width) for name in planners]


def only_planned(model: str, machine: NmpMachine, planners: Sequence[str]) -> OnlyPlanned:
    case = prepare_case(model, machine).case
    return OnlyPlanned(case, planned_together(model, [case], machine, planners))


def planned_together(
    model: str, cases: Sequence[Case], machine: NmpMachine, planners: Sequence[str]
) -> list[ScalingRow]:
    """The layers of all ``cases``, as ``model``: a row a planner."""
    asked = [problem for case in cases for problem in case.asked]
    distinct = tuple(dict.fromkeys(asked))
    macs, bound = sum(case.macs for case in cases), sum(case.bound_cycles() for case in cases)
    return [
        ScalingRow(
            model, None, 1.0, machine.name, name, macs, len(asked), len(distinct), None, None,
            bound, plan_seconds(planner(name), distinct, machine),
        )
        for name in planners
    ]  # fmt: skip


def _simulated(prepared: Prepared, name: str, size: int, width: float) -> ScalingRow:
    measured, plan_s = run_case(prepared, planner(name))
    case = prepared.case
    predicted = sum(layer.predicted_cycles for layer in measured.layers)
    return ScalingRow(
        case.model, size, width, case.machine.name, name, case.macs, len(case.asked),
        len(case.distinct), measured.cycles, predicted, case.bound_cycles(measured), plan_s,
    )  # fmt: skip
