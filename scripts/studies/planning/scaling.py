"""How simulated and planning time grow: a network scaled in input size and width, and planning of
networks with more and fewer distinct layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.planning.study import Case, plan_seconds, prepare_case, run_case
from tvm_npu.cli.terminal import Steps
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


def run_scaling(
    model: str,
    planned: Sequence[str],
    machines: Sequence[NmpMachine],
    planners: Sequence[str],
    sizes: Sequence[int],
    widths: Sequence[float],
    steps: Steps,
) -> tuple[ScalingRow, ...]:
    """``model`` simulated at every size and width, values checked; ``planned`` networks planned at
    their published sizes, one by one and together. Raises ReproductionError as `run_study` does."""
    rows: list[ScalingRow] = []
    steps.expect(len(machines) * (len(widths) * len(sizes) + len(planned)))
    for machine in machines:
        for width in widths:
            for size in sizes:
                steps.begin(f"{model}, {machine.name}: {size}x{size}, width {width:g}")
                case = prepare_case(model, machine, None, input_size=size, width=width)
                rows += [_simulated(case, name, size, width) for name in planners]
                steps.done()
        cases = []
        for other in planned:
            steps.begin(f"{other}, {machine.name}: planning")
            cases.append(prepare_case(other, machine, None))
            rows += [_planned(other, cases[-1:], name) for name in planners]
            steps.done()
        if len(cases) > 1:
            rows += [_planned(TOGETHER, cases, name) for name in planners]
    return tuple(rows)


def _simulated(case: Case, name: str, size: int, width: float) -> ScalingRow:
    measured, plan_s = run_case(case, planner(name))
    predicted = sum(layer.predicted_cycles for layer in measured.layers)
    return ScalingRow(
        case.model, size, width, case.machine.name, name, case.network.macs, len(case.asked),
        len(case.distinct), measured.cycles, predicted, case.bound_cycles(measured), plan_s,
    )  # fmt: skip


def _planned(model: str, cases: Sequence[Case], name: str) -> ScalingRow:
    asked = [problem for case in cases for problem in case.asked]
    distinct = tuple(dict.fromkeys(asked))
    machine = cases[0].machine
    return ScalingRow(
        model, None, 1.0, machine.name, name, sum(case.network.macs for case in cases),
        len(asked), len(distinct), None, None, sum(case.bound_cycles() for case in cases),
        plan_seconds(planner(name), distinct, machine),
    )  # fmt: skip
