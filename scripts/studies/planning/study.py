"""What the planning benchmark measures: every network on every machine under every planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from studies.planning.bounds import Roofs, Work, executed, roofs, works
from studies.planning.brute_force import BruteForce
from studies.tso.errors import ReproductionError
from studies.tso.measure import Breakdown, Measurement, measure
from studies.tso.networks import Network, prepare
from tvm_npu.cli.terminal import Steps
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan import Planner, planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine

REPEATS = 5
PATIENCE_S = 3.0
"""Timings are the best of `REPEATS`, or of fewer (at least one) that take so long together."""


@dataclass(frozen=True)
class Row:
    """One network on one machine under one planner, as in the JSON file. ``plan_s``: all distinct
    layers; ``brute_force_s``: all layers by brute force with edges counted; None where there is
    no compiler."""

    model: str
    machine: str
    planner: str
    simulated_us: float
    predicted_us: float
    bound_us: float
    plan_s: float
    brute_force_s: float | None
    dram_bytes: int


@dataclass(frozen=True)
class LayerRow:
    """One layer of a `Row`."""

    model: str
    machine: str
    planner: str
    layer: str
    kind: str
    macs: int
    simulated_us: float
    predicted_us: float
    bound_us: float
    dram_bytes: int


@dataclass(frozen=True)
class BruteForceTimes:
    """Seconds of one network's brute force: all layers and the distinct ones, with edges counted
    and by the paper's estimate."""

    edges_s: float
    edges_distinct_s: float
    closed_s: float
    closed_distinct_s: float


@dataclass(frozen=True)
class Case:
    """One network on one machine, and what does not depend on the planner. ``asked`` layers are
    those that a planner plans: convolutions and fully connected ones."""

    model: str
    machine: NmpMachine
    network: Network
    layers: tuple[Work, ...]
    top: Roofs
    brute_force: BruteForceTimes | None

    @property
    def asked(self) -> tuple[ConvProblem, ...]:
        return tuple(layer.problem for layer in self.layers if layer.problem is not None)

    @property
    def distinct(self) -> tuple[ConvProblem, ...]:
        return tuple(dict.fromkeys(self.asked))

    def us(self, cycles: float) -> float:
        return cycles / self.machine.frequency_mhz

    def bound_cycles(self, measured: Measurement | None = None) -> float:
        """Of the layers that a program ran; of the network's own, one by one, without."""
        layers = self.layers if measured is None else executed(self.layers, measured.layers)
        return sum(layer.bound_cycles(self.top) for layer in layers)


@dataclass(frozen=True)
class Study:
    """Everything that was measured; breakdowns are in the order of ``rows``."""

    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    breakdowns: tuple[Breakdown, ...]
    layers: tuple[LayerRow, ...]


def run_study(
    models: Sequence[str],
    machines: Sequence[NmpMachine],
    planners: Sequence[str],
    brute_force: BruteForce | None,
    steps: Steps,
) -> Study:
    """Raises ReproductionError when a value differs from the reference's in any bit, or when a
    network cannot be compiled for a machine."""
    cases: list[Case] = []
    rows: list[Row] = []
    breakdowns: list[Breakdown] = []
    layers: list[LayerRow] = []
    steps.expect(len(models) * len(machines) * (1 + len(planners)))
    for model in models:
        for machine in machines:
            steps.begin(f"{model}, {machine.name}: quantizing, brute force")
            case = prepare_case(model, machine, brute_force)
            cases.append(case)
            steps.done()
            for name in planners:
                steps.begin(f"{model}, {machine.name}: {name}")
                measured, plan_s = run_case(case, planner(name))
                row, own = _rows(case, name, measured, plan_s)
                rows.append(row)
                layers += own
                breakdowns.append(measured.breakdown)
                steps.done()
    return Study(tuple(cases), tuple(rows), tuple(breakdowns), tuple(layers))


def prepare_case(
    model: str,
    machine: NmpMachine,
    brute_force: BruteForce | None,
    *,
    input_size: int | None = None,
    width: float = 1.0,
) -> Case:
    """Quantizes a network for a machine, in its default precision, and times its brute force."""
    try:
        network = prepare(
            model, machine, machine.default_precision, input_size=input_size, width=width
        )
    except CodegenError as error:
        raise ReproductionError(f"model {model!r}, machine {machine.name!r}: {error}") from error
    layers = tuple(work for region in network.regions for work in works(region.fixed))
    top = roofs(machine, network.regions[0].fixed.element_bytes)
    case = Case(model, machine, network, layers, top, None)
    if brute_force is None:
        return case
    times = brute_force_times(brute_force, case.asked, machine)
    return Case(model, machine, network, layers, top, times)


def run_case(case: Case, chosen: Planner) -> tuple[Measurement, float]:
    """Simulates, every value checked, then times the planner, which is warm by then, on all that
    it was asked: layers, and chains of them that would run as one."""
    noting = Noting(chosen)
    try:
        measured = measure(case.network, case.machine, noting)
    except CodegenError as error:
        where = f"model {case.model!r}, machine {case.machine.name!r}, planner {chosen.name!r}"
        raise ReproductionError(f"{where}: {error}") from error
    return measured, plan_seconds(chosen, tuple(noting.asked), case.machine)


class Noting:
    """A planner that notes what it is asked; everything about it is the other's."""

    def __init__(self, chosen: Planner) -> None:
        self._chosen = chosen
        self.asked: dict[ConvProblem, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    @property
    def name(self) -> str:
        return self._chosen.name

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        self.asked[problem] = None
        return self._chosen.plan(problem, machine)


def plan_seconds(chosen: Planner, problems: Sequence[ConvProblem], machine: NmpMachine) -> float:
    """Planning every one of ``problems``, once the planner is warm."""
    return best_seconds(lambda: [chosen.plan(problem, machine) for problem in problems])


def best_seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this thread: other load on the machine does not count."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < PATIENCE_S:
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def brute_force_times(
    brute_force: BruteForce, problems: Sequence[ConvProblem], machine: NmpMachine
) -> BruteForceTimes:
    distinct = tuple(dict.fromkeys(problems))

    def timed(asked: Sequence[ConvProblem], exact_edges: bool) -> float:
        return best_seconds(lambda: [brute_force.plan(p, machine, exact_edges) for p in asked])

    return BruteForceTimes(
        timed(problems, True), timed(distinct, True), timed(problems, False), timed(distinct, False)
    )


def _rows(
    case: Case, name: str, measured: Measurement, plan_s: float
) -> tuple[Row, list[LayerRow]]:
    done = executed(case.layers, measured.layers)
    layers = [
        LayerRow(
            case.model, case.machine.name, name, layer.name, work.kind, work.macs,
            case.us(layer.cycles), case.us(layer.predicted_cycles),
            case.us(work.bound_cycles(case.top)), layer.dram_bytes,
        )
        for work, layer in zip(done, measured.layers, strict=True)
    ]  # fmt: skip
    row = Row(
        case.model, case.machine.name, name, measured.time_us, measured.predicted_us,
        sum(layer.bound_us for layer in layers), plan_s,
        case.brute_force.edges_s if case.brute_force else None, measured.dram_bytes,
    )  # fmt: skip
    return row, layers
