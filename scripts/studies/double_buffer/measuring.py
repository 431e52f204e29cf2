"""What is measured: each layer alone, under three ways of using the on-chip memory.

Transfer times come from the programs run on a core that takes no time, as the paper profiled them
with the convolutions left out; whole times from the core with its caches and without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from studies.harness.errors import StudyError
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph
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


@dataclass(frozen=True)
class Plans:
    """What is known of a layer without running it; "naive" and "optimal" are the keys."""

    tiles: dict[str, tuple[int, ...]]
    memory_shares: dict[str, float]
    estimated_cycles: dict[str, float]
    spread: Spread


@dataclass(frozen=True)
class Run:
    """One run of a layer: ``transfers`` alone, or on one of the two machines whole."""

    seconds: float
    cycles: float
    bit_mismatches: int


TRANSFERS = "transfers"
NO_BUFFERS = "none"
RUNS = (
    *((TRANSFERS, key) for key in PLANNERS),
    *((machine, key) for machine in (CACHED, UNCACHED) for key in (NO_BUFFERS, *PLANNERS)),
)
"""On which machine, with which tiles: what is run of each layer."""


def question_of(problem: ConvProblem) -> ConvProblem:
    """With the widths that numbers have in the machine's memories."""
    machine = tile_machine(CACHED)
    return replace(
        problem,
        element_bytes=machine.element_bytes("int8"),
        accumulator_bytes=machine.accumulator_bytes("int8"),
    )


def plans_of(problem: ConvProblem) -> Plans:
    """Raises StudyError where a planner finds no tiles."""
    machine, stored = tile_machine(CACHED), question_of(problem)
    model = TransferModel.of(loop_machine(machine), stored.element_bytes)
    plans = {key: _plan(name, stored, machine) for key, name in PLANNERS.items()}
    return Plans(
        {key: _tile(plan) for key, plan in plans.items()},
        {key: _share(stored, machine, plan) for key, plan in plans.items()},
        {key: _estimate(model, stored, plan) for key, plan in plans.items()},
        _spread(stored, machine, model),
    )


def run_layer(problem: ConvProblem, where: str, key: str) -> Run:
    """Simulates one of `RUNS` with random values, compared with the reference."""
    cached = tile_machine(CACHED)
    machine = without_core_time(cached) if where == TRANSFERS else tile_machine(where)
    # The planner is asked about the machine with caches, whatever the plan is run on.
    chosen: Any = (
        DirectPlanner()
        if key == NO_BUFFERS
        else Given(_plan(PLANNERS[key], question_of(problem), cached))
    )
    graph, inputs, expected = _layer(problem)
    session = Session(compile_fixed(graph, machine, chosen))
    (output,) = session.run_fixed([inputs[name] for name in graph.inputs])
    assert session.statistics is not None
    return Run(
        session.statistics.time_us / 1e6,
        session.statistics.cycles,
        int(np.count_nonzero(output != expected)),
    )


@lru_cache(maxsize=1)
def _layer(problem: ConvProblem) -> tuple[FixedGraph, dict[str, Any], Any]:
    """The layer with random values, and its reference result."""
    graph = single_layer(problem)
    inputs = random_inputs(graph)
    return graph, inputs, run_fixed(graph, inputs)[graph.outputs[0]]


def row_of(name: str, plans: Plans, runs: Mapping[tuple[str, str], Run]) -> LayerRow:
    """``runs``: all of `RUNS`."""
    spread = plans.spread
    return LayerRow(
        layer=name,
        naive_cycles=runs[TRANSFERS, "naive"].cycles,
        optimal_cycles=runs[TRANSFERS, "optimal"].cycles,
        naive_memory_share=plans.memory_shares["naive"],
        optimal_memory_share=plans.memory_shares["optimal"],
        naive_estimated_cycles=plans.estimated_cycles["naive"],
        optimal_estimated_cycles=plans.estimated_cycles["optimal"],
        naive_tile=plans.tiles["naive"],
        optimal_tile=plans.tiles["optimal"],
        cached_none_s=runs[CACHED, NO_BUFFERS].seconds,
        cached_naive_s=runs[CACHED, "naive"].seconds,
        cached_optimal_s=runs[CACHED, "optimal"].seconds,
        uncached_none_s=runs[UNCACHED, NO_BUFFERS].seconds,
        uncached_naive_s=runs[UNCACHED, "naive"].seconds,
        uncached_optimal_s=runs[UNCACHED, "optimal"].seconds,
        bit_mismatches=sum(run.bit_mismatches for run in runs.values()),
        tilings=spread.tilings,
        quarter_ratio=spread.quarter,
        median_ratio=spread.median,
        fullest_ratio=spread.fullest,
        fullest_memory_share=spread.fullest_share,
    )


@lru_cache(maxsize=8)
def _plan(name: str, problem: ConvProblem, machine: TileMachine) -> LoopPlan:
    chosen: Any = planner(name)
    found = chosen.plan(problem, machine)
    if not isinstance(found, LoopPlan) or found.buffers != BUFFERS:
        raise StudyError(f"planner {name!r} has no double-buffered plan: {found}")
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
        raise StudyError(f"no tiling fills {FILLED_SHARE:.0%} of the memory")
    quarter, median = np.quantile(filled, (0.25, 0.5))
    fullest = int(np.argmax(shares))
    return Spread(
        len(filled), float(quarter), float(median), float(ratios[fullest]),
        float(shares[fullest]),
    )  # fmt: skip
