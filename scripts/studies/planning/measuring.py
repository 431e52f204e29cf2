"""What the planning benchmark measures: every network on every machine under every planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from studies.harness.errors import StudyError
from studies.planning.bounds import Work, executed, works
from studies.planning.brute_force import BruteForce, BruteForceError, load_brute_force
from studies.shared.networks import Network, prepare
from studies.shared.simulation import Breakdown, Measurement, measure
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.nmp.plan.graph_bound import Roofs, roofs
from tvm_npu.codegen.nmp.plan.planning import Question
from tvm_npu.codegen.plan import Planner, planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.plan.registry import planner_on
from tvm_npu.sim.nmp.machine import NmpMachine

REPEATS = 5
PATIENCE_S = 3.0
"""Timings are the best of `REPEATS`, or of fewer (at least one) that take so long together."""


@dataclass(frozen=True)
class Row:
    """One network on one machine under one planner, as in the JSON file. ``plan_s``: the
    planner's answers to all distinct questions that it is asked while the network is planned, of
    layers and of what might run as one; the choice over the graph is not part of it.
    ``graph_bound_us``: below which no plan gets, however layers are joined; ``brute_force_s``: all
    layers by brute force with edges counted; None where there is no compiler."""

    model: str
    machine: str
    planner: str
    simulated_us: float
    predicted_us: float
    bound_us: float
    plan_s: float
    brute_force_s: float | None
    dram_bytes: int
    graph_bound_us: float


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
class MachineFacts:
    """What is said about a machine."""

    name: str
    frequency_mhz: float
    default_precision: str


@dataclass(frozen=True)
class Case:
    """One network on one machine, and what does not depend on the planner. ``asked`` layers are
    those that a planner plans: convolutions and fully connected ones. ``no_brute_force`` says why
    brute force was not timed, if it was not."""

    model: str
    machine: MachineFacts
    macs: int
    npu_mac_share: float
    layers: tuple[Work, ...]
    top: Roofs
    brute_force: BruteForceTimes | None = None
    no_brute_force: str | None = None

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
class Prepared:
    """A case, and with what it can run."""

    case: Case
    network: Network
    machine: NmpMachine


@dataclass(frozen=True)
class Planned:
    """One network on one machine under one planner."""

    row: Row
    breakdown: Breakdown
    layers: tuple[LayerRow, ...]


@dataclass(frozen=True)
class Measured:
    """Everything that was measured; breakdowns are in the order of ``rows``."""

    cases: tuple[Case, ...]
    rows: tuple[Row, ...]
    breakdowns: tuple[Breakdown, ...]
    layers: tuple[LayerRow, ...]


@lru_cache(maxsize=1)
def prepare_case(
    model: str, machine: NmpMachine, *, input_size: int | None = None, width: float = 1.0
) -> Prepared:
    """Quantizes a network for a machine, in its default precision. Raises StudyError when it cannot
    be compiled for the machine."""
    try:
        network = prepare(
            model, machine, machine.default_precision, input_size=input_size, width=width
        )
    except CodegenError as error:
        raise StudyError(f"model {model!r}, machine {machine.name!r}: {error}") from error
    layers = tuple(work for region in network.regions for work in works(region.fixed))
    facts = MachineFacts(machine.name, machine.frequency_mhz, machine.default_precision)
    top = roofs(machine, network.regions[0].fixed.element_bytes)
    case = Case(model, facts, network.macs, network.npu_mac_share, layers, top)
    return Prepared(case, network, machine)


def with_brute_force(prepared: Prepared) -> Case:
    """The case with the time that brute force takes for it."""
    try:
        brute_force = load_brute_force()
    except BruteForceError as error:
        return replace(prepared.case, no_brute_force=str(error))
    times = brute_force_times(brute_force, prepared.case.asked, prepared.machine)
    return replace(prepared.case, brute_force=times)


def run_case(prepared: Prepared, chosen: Planner) -> tuple[Measurement, float]:
    """Simulates, every value checked, then times the planner, which is warm by then, on all that
    it was asked: layers, and cascades, blocks and sums of them that would run as one. Raises
    StudyError when a value differs from the reference's in any bit."""
    machine = prepared.machine
    noting = Noting(planner_on(chosen, machine))
    try:
        measured = measure(prepared.network, machine, noting)
    except CodegenError as error:
        where = f"model {prepared.case.model!r}, machine {machine.name!r}, planner {chosen.name!r}"
        raise StudyError(f"{where}: {error}") from error
    return measured, plan_seconds(chosen, tuple(noting.asked), machine)


class Noting:
    """A planner that notes what it is asked; everything about it is the other's."""

    def __init__(self, chosen: Planner) -> None:
        self._chosen: Any = chosen
        self.asked: dict[Question, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    @property
    def name(self) -> str:
        return str(self._chosen.name)

    def plan(self, problem: Question, machine: NmpMachine) -> Any:
        self.asked[problem] = None
        return self._chosen.plan(problem, machine)


def plan_seconds(chosen: Planner, problems: Sequence[Question], machine: NmpMachine) -> float:
    """The planner's answers to all of ``problems``, once it is warm."""
    answer: Callable[[Any, NmpMachine], Any] = chosen.plan
    return best_seconds(lambda: [answer(problem, machine) for problem in problems])


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


def plan_and_run(prepared: Prepared, name: str, brute_force: BruteForceTimes | None) -> Planned:
    """Raises StudyError as `run_case`."""
    measured, plan_s = run_case(prepared, planner(name))
    case = prepared.case
    layers = tuple(
        LayerRow(
            case.model, case.machine.name, name, layer.name, work.kind, work.macs,
            case.us(layer.cycles), case.us(layer.predicted_cycles),
            case.us(work.bound_cycles(case.top)), layer.dram_bytes,
        )
        for work, layer in zip(executed(case.layers, measured.layers), measured.layers, strict=True)
    )  # fmt: skip
    row = Row(
        case.model, case.machine.name, name, measured.time_us, measured.predicted_us,
        sum(layer.bound_us for layer in layers), plan_s,
        brute_force.edges_s if brute_force else None, measured.dram_bytes,
        case.us(measured.bound_cycles),
    )  # fmt: skip
    return Planned(row, measured.breakdown, layers)
