"""Every network on every set-up under every planner."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from studies.eplanner.layers import Workload, region, workload
from studies.eplanner.published import MODELS
from studies.eplanner.space import kept_space, whole_space
from studies.tso.errors import ReproductionError
from tvm_npu.cli.terminal import Steps
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
        """Raises ReproductionError when the layer's result differs from the reference's in any
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
            raise ReproductionError(
                f"layer {problem}, plan {plan}: {wrong} of {output.size} elements differ from the "
                "reference; the limit is 0"
            )
        run = session.statistics
        assert run is not None
        assert plan.prediction is not None
        moved = sum(
            sum(layer.loaded_bytes.values()) + sum(layer.stored_bytes.values())
            for layer in run.layers
        )
        return Timed(run.cycles, moved, plan.prediction.cycles)


def moved_bytes(prediction: Prediction) -> int:
    return prediction.in_bytes + prediction.weight_bytes + prediction.out_bytes


def setup_machine(setup: str) -> TileMachine:
    machine = load_machine(f"setup-{setup.lower()}")
    assert isinstance(machine, TileMachine)
    return machine


@dataclass(frozen=True)
class Study:
    rows: tuple[Row, ...]
    timed: tuple[Timed, ...]
    """All simulations, each once."""


def run_study(
    models: Sequence[str], setups: Sequence[str], planners: Sequence[str], steps: Steps
) -> Study:
    """Raises ReproductionError as `Simulations.run`, and where a layer has no plan."""
    steps.expect(len(models) * (1 + len(setups) * len(planners)))
    simulations, rows = Simulations(), []
    for model in models:
        steps.begin(f"{model}: layers")
        network = NETWORKS[MODELS.index(model)]
        load = workload(model, network, setup_machine(setups[0]))
        if (load.layers, load.distinct) != (network.layers, network.distinct):
            raise ReproductionError(
                f"model {model!r}: {load.distinct} of {load.layers} layers are distinct; the "
                f"thesis has {network.distinct} of {network.layers}"
            )
        whole = sum(whole_space(problem) for problem, _ in load.problems)
        steps.done()
        for setup in setups:
            machine = setup_machine(setup)
            kept = sum(kept_space(problem, machine) for problem, _ in load.problems)
            for name in planners:
                steps.begin(f"{model}, set-up {setup}: {name}")
                rows.append(_row(load, setup, machine, name, simulations, whole, kept))
                steps.done()
    return Study(tuple(rows), tuple(simulations.done.values()))


def _row(
    load: Workload, setup: str, machine: TileMachine, name: str, simulations: Simulations,
    whole: int, kept: int,
) -> Row:  # fmt: skip
    chosen, plan_s = planner(name), float("inf")
    plans: list[LoopPlan] = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        answers = [chosen.plan(problem, machine) for problem, _ in load.problems]  # type: ignore[arg-type]
        plan_s = min(plan_s, time.perf_counter() - begin)
        plans = [answer for answer in answers if isinstance(answer, LoopPlan)]
        if len(plans) < len(answers):
            fault = next(answer for answer in answers if not isinstance(answer, LoopPlan))
            raise ReproductionError(f"model {load.model!r}, planner {name!r}: {fault}")
    moved, cycles, predicted = 0, 0.0, 0.0
    for (problem, count), plan in zip(load.problems, plans, strict=True):
        timed = simulations.run(problem, plan, machine)
        assert plan.prediction is not None
        if timed.moved_bytes != moved_bytes(plan.prediction):
            raise ReproductionError(
                f"layer {problem}, planner {name!r}: {timed.moved_bytes} bytes moved, "
                f"{moved_bytes(plan.prediction)} predicted"
            )
        moved += count * timed.moved_bytes
        cycles += count * timed.cycles
        predicted += count * plan.prediction.cycles
    mhz = machine.frequency_mhz
    return Row(
        load.model, setup, name, moved, cycles / mhz, predicted / mhz, plan_s, whole, kept,
        load.layers, load.distinct, load.compulsory_bytes,
    )  # fmt: skip


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
