"""What measurements of other networks are worth to `exact`: its best plans, ranked anew by a
residual model that has never seen the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from studies.harness.errors import StudyError
from studies.learned.subjects import NetworkLayers, without_shared
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.shortlist import shortlist
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tune.errors import MeasureError
from tvm_npu.codegen.tune.residual import Example, ResidualModel, cautious
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.tuning.measure import LayerMeasure, bare


@dataclass(frozen=True)
class Measured:
    """The shortlist of one layer, every plan simulated; the first is that of `exact`."""

    plans: tuple[ConvPlan, ...]
    cycles: tuple[float, ...]

    @property
    def predicted(self) -> np.ndarray:
        return np.array([p.prediction.cycles for p in self.plans if p.prediction is not None])


@dataclass(frozen=True)
class RerankRow:
    """One network, as in the JSON file: simulated cycles of all its layers, each alone, under the
    plans of `exact`, the first by the corrected prediction of ``listed`` plans a layer, and the
    fastest of them. ``changed`` of ``layers`` distinct layers get another plan, ``worse`` of them
    a slower one. Errors are mean absolute ones over all listed plans."""

    table: str
    model: str
    machine: str
    layers: int
    listed: float
    trained_on: int
    exact_cycles: float
    reranked_cycles: float
    fastest_cycles: float
    changed: int
    worse: int
    predicted_error: float
    corrected_error: float


@cache
def measure_shortlist(problem: ConvProblem, machine: NmpMachine, count: int) -> Measured:
    """Once for a layer that several networks have. Raises StudyError when the plan of `exact`
    cannot be measured."""
    listed = shortlist(problem, machine, count)
    if isinstance(listed, Infeasible):
        raise StudyError(f"{problem} on machine {machine.name!r}: {listed}")
    measure = LayerMeasure(problem, machine)
    plans, cycles = [], []
    for plan in listed:
        try:
            cycles.append(measure(bare(plan)))
        except MeasureError as error:
            if plan is listed[0]:
                raise StudyError(f"{problem}: {error}") from error
            continue
        plans.append(plan)
    return Measured(tuple(plans), tuple(cycles))


def rerank(
    networks: Sequence[NetworkLayers], measured: dict[ConvProblem, Measured], machine: NmpMachine
) -> list[RerankRow]:
    """Every network by what the others teach, layers that it shares with them left out."""
    rows = []
    for network in networks:
        examples = [
            Example(problem, plan, cycles)
            for problem in dict.fromkeys(layer for _, layer in without_shared(networks, network))
            for plan, cycles in zip(measured[problem].plans, measured[problem].cycles, strict=True)
        ]
        model = ResidualModel(machine, examples)
        rows.append(_row(network, measured, model, len(examples), machine))
    return rows


def _row(
    network: NetworkLayers,
    measured: dict[ConvProblem, Measured],
    model: ResidualModel,
    trained_on: int,
    machine: NmpMachine,
) -> RerankRow:
    exact = reranked = fastest = 0.0
    changed = worse = 0
    errors: list[np.ndarray] = []
    corrected_errors: list[np.ndarray] = []
    for one in network.questions:
        own = measured[one.problem]
        cycles = np.array(own.cycles)
        corrected = model.cycles(one.problem, own.plans)
        choice = int(np.argmin(cautious(corrected)))
        exact += one.layers * cycles[0]
        reranked += one.layers * cycles[choice]
        fastest += one.layers * cycles.min()
        changed += choice != 0
        worse += bool(cycles[choice] > cycles[0])
        errors.append(np.abs(own.predicted / cycles - 1))
        corrected_errors.append(np.abs(corrected / cycles - 1))
    listed = sum(len(measured[one.problem].plans) for one in network.questions)
    return RerankRow(
        "reranking", network.model, machine.name, len(network.questions),
        listed / len(network.questions), trained_on, exact, reranked, fastest, changed, worse,
        float(np.concatenate(errors).mean()), float(np.concatenate(corrected_errors).mean()),
    )  # fmt: skip
