"""What is measured: each layer alone, under three ways of using the on-chip memory.

Transfer times come from the programs run on a core that takes no time, as the paper profiled them
with the convolutions left out; whole times from the core with its caches and without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from studies.tso.errors import ReproductionError
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan import NO_LIMITS, planner
from tvm_npu.codegen.plan.loops.double_buffer import (
    FILLED_SHARE,
    TransferModel,
    divisor_tilings,
    filled_share,
    used_elements,
)
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tiles.plan.direct import DirectPlanner
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.tuning.measure import Given
from tvm_npu.tuning.single_layer import random_inputs, single_layer

CACHED, UNCACHED = "zynq-7020", "zynq-7020-uncached"
PLANNERS = {"naive": "naive", "optimal": "double-buffer"}
BUFFERS = 2


@dataclass(frozen=True)
class Spread:
    """Transfer times, by Equation 1, of all tilings of a layer that fill FILLED_SHARE of the
    memory, over that of the best of all: how many there are, quartiles, the fullest one."""

    tilings: int
    quarter: float
    median: float
    fullest: float
    fullest_share: float


@dataclass(frozen=True)
class LayerRow:
    """One layer. Shares of the memory are counted as in the paper; ``*_cycles`` are of transfers
    alone, ``*_s`` of the whole layer, without double buffers ("none") and with them."""

    layer: str
    naive_cycles: float
    optimal_cycles: float
    naive_memory_share: float
    optimal_memory_share: float
    naive_estimated_cycles: float
    optimal_estimated_cycles: float
    naive_tile: tuple[int, ...]
    optimal_tile: tuple[int, ...]
    cached_none_s: float
    cached_naive_s: float
    cached_optimal_s: float
    uncached_none_s: float
    uncached_naive_s: float
    uncached_optimal_s: float
    bit_mismatches: int
    tilings: int
    quarter_ratio: float
    median_ratio: float
    fullest_ratio: float
    fullest_memory_share: float


def tile_machine(name: str) -> TileMachine:
    machine = load_machine(name)
    assert isinstance(machine, TileMachine)
    return machine


def without_core_time(machine: TileMachine) -> TileMachine:
    """The machine with a core that takes no time: what is left is transfers."""
    values = machine.model_dump(exclude_none=True)
    values["core"] = {
        key: 0.0 if key.endswith("_cycles") else value for key, value in values["core"].items()
    }
    values["name"] = f"{machine.name}-transfers"
    result = machine_from_dict(values)
    assert isinstance(result, TileMachine)
    return result


def study_layer(
    name: str, problem: ConvProblem, begin: Callable[[str], None], done: Callable[[], None]
) -> LayerRow:
    """Runs a layer eight times; ``begin`` is called before each run, with a word for it, ``done``
    behind it."""
    cached, uncached = tile_machine(CACHED), tile_machine(UNCACHED)
    transfers = without_core_time(cached)
    stored = replace(
        problem,
        element_bytes=cached.element_bytes("int8"),
        accumulator_bytes=cached.accumulator_bytes("int8"),
    )
    plans = {key: _plan(planner_name, stored, cached) for key, planner_name in PLANNERS.items()}
    model = TransferModel.of(loop_machine(cached), stored.element_bytes)
    layer = _Layer(problem, begin, done)
    moved = {key: layer.seconds(transfers, plan)[1] for key, plan in plans.items()}
    whole = {
        (machine.name, key): layer.seconds(machine, plan)[0]
        for machine in (cached, uncached)
        for key, plan in (("none", None), *plans.items())
    }
    spread = _spread(stored, cached, model)
    return LayerRow(
        layer=name,
        naive_cycles=moved["naive"],
        optimal_cycles=moved["optimal"],
        naive_memory_share=_share(stored, cached, plans["naive"]),
        optimal_memory_share=_share(stored, cached, plans["optimal"]),
        naive_estimated_cycles=_estimate(model, stored, plans["naive"]),
        optimal_estimated_cycles=_estimate(model, stored, plans["optimal"]),
        naive_tile=_tile(plans["naive"]),
        optimal_tile=_tile(plans["optimal"]),
        cached_none_s=whole[CACHED, "none"],
        cached_naive_s=whole[CACHED, "naive"],
        cached_optimal_s=whole[CACHED, "optimal"],
        uncached_none_s=whole[UNCACHED, "none"],
        uncached_naive_s=whole[UNCACHED, "naive"],
        uncached_optimal_s=whole[UNCACHED, "optimal"],
        bit_mismatches=layer.mismatches,
        tilings=spread.tilings,
        quarter_ratio=spread.quarter,
        median_ratio=spread.median,
        fullest_ratio=spread.fullest,
        fullest_memory_share=spread.fullest_share,
    )


class _Layer:
    """One layer with random values, its reference result, and the bits that runs had wrong."""

    def __init__(
        self, problem: ConvProblem, begin: Callable[[str], None], done: Callable[[], None]
    ) -> None:
        self._graph = single_layer(problem)
        self._inputs = random_inputs(self._graph)
        self._expected = run_fixed(self._graph, self._inputs)[self._graph.outputs[0]]
        self._begin, self._done = begin, done
        self.mismatches = 0

    def seconds(self, machine: TileMachine, plan: LoopPlan | None) -> tuple[float, float]:
        """(seconds, cycles) of a run; None: without double buffers."""
        self._begin(f"{machine.name}, {'no double buffers' if plan is None else plan.planner}")
        chosen: Any = DirectPlanner() if plan is None else Given(plan)
        session = Session(compile_fixed(self._graph, machine, chosen))
        (output,) = session.run_fixed([self._inputs[name] for name in self._graph.inputs])
        self.mismatches += int(np.count_nonzero(output != self._expected))
        assert session.statistics is not None
        self._done()
        return session.statistics.time_us / 1e6, session.statistics.cycles


def _plan(name: str, problem: ConvProblem, machine: TileMachine) -> LoopPlan:
    chosen: Any = planner(name)
    found = chosen.plan(problem, machine)
    if not isinstance(found, LoopPlan) or found.buffers != BUFFERS:
        raise ReproductionError(f"planner {name!r} has no double-buffered plan: {found}")
    return found


def _tile(plan: LoopPlan) -> tuple[int, ...]:
    return plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c


def _share(problem: ConvProblem, machine: TileMachine, plan: LoopPlan) -> float:
    """Of the half that a tile may take (the paper's Table 1)."""
    size = float(used_elements(problem, *_tile(plan))) * problem.element_bytes
    return size * BUFFERS / _memory_bytes(machine)


def _memory_bytes(machine: TileMachine) -> int:
    return int(machine.memories.shared_bytes)  # type: ignore[union-attr]


def _estimate(model: TransferModel, problem: ConvProblem, plan: LoopPlan) -> float:
    return float(model.layer_cycles(problem, *_tile(plan)))


def _spread(problem: ConvProblem, machine: TileMachine, model: TransferModel) -> Spread:
    found = divisor_tilings(problem, loop_machine(machine), NO_LIMITS, BUFFERS)
    cycles = np.asarray(model.layer_cycles(problem, found.m, found.n, found.r, found.c), float)
    shares = np.asarray(filled_share(problem, loop_machine(machine), found, BUFFERS), float)
    ratios = cycles / cycles.min()
    filled = ratios[shares >= FILLED_SHARE]
    if not len(filled):
        raise ReproductionError(f"no tiling fills {FILLED_SHARE:.0%} of the memory")
    quarter, median = np.quantile(filled, (0.25, 0.5))
    fullest = int(np.argmax(shares))
    return Spread(
        len(filled), float(quarter), float(median), float(ratios[fullest]),
        float(shares[fullest]),
    )  # fmt: skip
