"""A network on a set-up under a planner: planned, simulated, compared."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

import numpy as np

from studies.eplanner.layers import Workload, region, workload
from studies.eplanner.published import MODELS, SETUPS
from studies.eplanner.space import kept_space, whole_space
from studies.harness.errors import StudyError
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.models.eplanner import NETWORKS
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.tuning.measure import Given

OWN = "eplanner"
BASELINES = ("zhang", "ma", "smartshuttle")
PLANNERS = (OWN, *BASELINES, "exact-traffic", "exact")
REPEATS = 3


@dataclass(frozen=True)
class Row:
    """One network on one set-up under one planner, as in the JSON file. Bytes are those that the
    emitted program moves; ``plan_s`` is for all distinct layers, the best of `REPEATS`; ``space``
    and ``space_kept`` are e-PlaNNer's and do not depend on the planner."""

    model: str
    setup: str
    planner: str
    offchip_bytes: int
    simulated_us: float
    predicted_us: float
    plan_s: float
    space: int
    space_kept: int
    layers: int
    distinct_layers: int
    compulsory_bytes: int


@dataclass(frozen=True)
class Timed:
    """A plan that ran: cycles and bytes of the simulator, and what was predicted."""

    cycles: float
    moved_bytes: int
    predicted_cycles: float


class Simulations:
    """Runs a layer under a plan; equal ones once, whatever the set-up (the four differ in the sizes
    of their memories only, and a plan names its tiles)."""

    def __init__(self) -> None:
        self.done: dict[tuple[ConvProblem, LoopPlan], Timed] = {}
        self._expected: dict[ConvProblem, np.ndarray] = {}

    def run(self, problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> Timed:
        """Raises StudyError when the layer's result differs from the reference's in any
        bit."""
        key = problem, replace(plan, prediction=None, planner="")
        if key not in self.done:
            self.done[key] = self._run(problem, plan, machine)
        return self.done[key]

    def _run(self, problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> Timed:
        fixed, data = region(problem)
        if problem not in self._expected:
            self._expected[problem] = run_fixed(fixed, {"x": data})["y"]
        session = Session(compile_fixed(fixed, machine, Given(plan)))
        (output,) = session.run_fixed([data])
        wrong = int(np.count_nonzero(output != self._expected[problem]))
        if wrong:
            raise StudyError(
                f"layer {problem}, plan {plan}: {wrong} of {output.size} elements differ from the "
                "reference; the limit is 0"
            )
        run = session.statistics
        assert run is not None
        assert plan.prediction is not None
        moved = sum(layer.moved_bytes for layer in run.layers)
        return Timed(run.cycles, moved, plan.prediction.cycles)


def simulation_name(problem: ConvProblem, plan: LoopPlan) -> str:
    """The same for all that `Simulations` runs once."""
    text = repr((problem, replace(plan, prediction=None, planner="")))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def moved_bytes(prediction: Prediction) -> int:
    return prediction.in_bytes + prediction.weight_bytes + prediction.out_bytes


def setup_machine(setup: str) -> TileMachine:
    machine = load_machine(f"setup-{setup.lower()}")
    assert isinstance(machine, TileMachine)
    return machine


@dataclass(frozen=True)
class Combination:
    """One model on one set-up under one planner; ``timed`` by simulation, each once, under a name
    that equal simulations share."""

    row: Row
    timed: dict[str, Timed]


@dataclass(frozen=True)
class Measured:
    rows: tuple[Row, ...]
    timed: tuple[Timed, ...]
    """All simulations, each once."""


def measured_of(combinations: Iterable[Combination]) -> Measured:
    rows: list[Row] = []
    timed: dict[str, Timed] = {}
    for one in combinations:
        rows.append(one.row)
        for name, figures in one.timed.items():
            timed.setdefault(name, figures)
    return Measured(tuple(rows), tuple(timed.values()))


@lru_cache(maxsize=1)
def checked_workload(model: str) -> tuple[Workload, int]:
    """A network's layers, and their search space before pruning. Raises StudyError when it has
    other layers than the thesis."""
    network = NETWORKS[MODELS.index(model)]
    load = workload(model, network, setup_machine(SETUPS[0]))
    if (load.layers, load.distinct) != (network.layers, network.distinct):
        raise StudyError(
            f"model {model!r}: {load.distinct} of {load.layers} layers are distinct; the "
            f"thesis has {network.distinct} of {network.layers}"
        )
    return load, sum(whole_space(problem) for problem, _ in load.problems)


@lru_cache(maxsize=1)
def _kept(model: str, setup: str) -> int:
    load, _ = checked_workload(model)
    return sum(kept_space(problem, setup_machine(setup)) for problem, _ in load.problems)


def measure(model: str, setup: str, name: str, simulations: Simulations) -> Combination:
    """Raises StudyError as `Simulations.run`, and where a layer has no plan."""
    load, whole = checked_workload(model)
    machine = setup_machine(setup)
    chosen, plan_s = planner(name), float("inf")
    plans: list[LoopPlan] = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        answers = [chosen.plan(problem, machine) for problem, _ in load.problems]  # type: ignore[arg-type]
        plan_s = min(plan_s, time.perf_counter() - begin)
        plans = [answer for answer in answers if isinstance(answer, LoopPlan)]
        if len(plans) < len(answers):
            fault = next(answer for answer in answers if not isinstance(answer, LoopPlan))
            raise StudyError(f"model {load.model!r}, planner {name!r}: {fault}")
    moved, cycles, predicted = 0, 0.0, 0.0
    all_timed = {}
    for (problem, count), plan in zip(load.problems, plans, strict=True):
        timed = simulations.run(problem, plan, machine)
        all_timed[simulation_name(problem, plan)] = timed
        assert plan.prediction is not None
        if timed.moved_bytes != moved_bytes(plan.prediction):
            raise StudyError(
                f"layer {problem}, planner {name!r}: {timed.moved_bytes} bytes moved, "
                f"{moved_bytes(plan.prediction)} predicted"
            )
        moved += count * timed.moved_bytes
        cycles += count * timed.cycles
        predicted += count * plan.prediction.cycles
    mhz = machine.frequency_mhz
    row = Row(
        load.model, setup, name, moved, cycles / mhz, predicted / mhz, plan_s, whole,
        _kept(model, setup), load.layers, load.distinct, load.compulsory_bytes,
    )  # fmt: skip
    return Combination(row, all_timed)


Key = tuple[str, str]
"""Model and set-up."""


def cells(rows: Sequence[Row]) -> dict[Key, dict[str, Row]]:
    found: dict[Key, dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row.model, row.setup), {})[row.planner] = row
    return found


def reductions(rows: Sequence[Row]) -> dict[Key, dict[str, float]]:
    """Per cent of each baseline's traffic that e-PlaNNer saves."""
    return {
        key: {
            name: 100 * (1 - own[OWN].offchip_bytes / own[name].offchip_bytes)
            for name in BASELINES
            if name in own
        }
        for key, own in cells(rows).items()
        if OWN in own
    }


def speed_ups(rows: Sequence[Row]) -> dict[Key, float]:
    """Simulated time of the baselines over e-PlaNNer's, their mean."""
    found = {}
    for key, own in cells(rows).items():
        ratios = [
            own[name].simulated_us / own[OWN].simulated_us
            for name in BASELINES
            if name in own and OWN in own
        ]
        if ratios:
            found[key] = fmean(ratios)
    return found
