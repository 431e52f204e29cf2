"""What cost models say of machines with a core and a DMA controller, against the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from studies.shared.dma_cost import sample_transfers
from tests.codegen.tiles.tile_cases import CORE_MACHINES, Given
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, q_point_scales
from tvm_npu.codegen.ops import FixedElementwise, FixedMove, FixedPool
from tvm_npu.codegen.ops.move import Axis, Piece
from tvm_npu.codegen.parts.pl330 import Direction
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.loops.cost import engine_cycles, predicted
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.ir.run import random_layer
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine, store_cost
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.tiles.machine import TileMachine


def core(name: str) -> TileMachine:
    machine = load_machine(name)
    assert isinstance(machine, TileMachine)
    return machine


def layer(
    filters: int, channels: int, size: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> ConvProblem:
    """A square layer; every value takes 4 bytes."""
    edge = kernel // 2
    in_size = (size - 1) * stride + kernel - 2 * edge
    return ConvProblem(
        filters=filters, channels=channels, groups=groups, rows=size, columns=size,
        in_rows=in_size, in_columns=in_size, kernel=(kernel,) * 2, stride=(stride,) * 2,
        dilation=(1, 1), padding=(edge,) * 4, element_bytes=4, accumulator_bytes=4,
    )  # fmt: skip


LAYERS = (
    (layer(16, 8, 24), LoopPlan(8, 8, 12, 24, ("M", "N", "R", "C"))),
    (layer(16, 8, 24), LoopPlan(8, 4, 12, 24, ("R", "C", "M", "N"), buffers=2)),
    (layer(32, 16, 12), LoopPlan(8, 16, 6, 12, ("R", "C", "M", "N"), buffers=2)),
    (layer(32, 32, 14, 1), LoopPlan(16, 16, 7, 14, ("M", "N", "R", "C"))),
    (layer(16, 16, 16, 5, 2), LoopPlan(16, 16, 4, 8, ("R", "C", "M", "N"), buffers=2)),
    (layer(16, 16, 20, groups=16), LoopPlan(1, 1, 20, 20, tile_groups=8, buffers=2)),
    (layer(64, 64, 4, 1), LoopPlan(16, 32, 4, 4, ("M", "R", "C", "N"))),
    (layer(8, 8, 24), LoopPlan(4, 2, 3, 24, ("M", "N", "R", "C"))),
)


@cache
def simulated(problem: ConvProblem, plan: LoopPlan, name: str) -> RunStatistics:
    program = compile_fixed(random_layer(problem, 1, seed=0), core(name), Given(plan))
    session = Session(program)
    draw = np.random.default_rng(0)
    session.run_fixed([draw.integers(-9, 9, (1, *one.shape), np.int8) for one in program.inputs])
    assert session.statistics is not None
    return session.statistics


@pytest.mark.parametrize("name", CORE_MACHINES)
def test_predicted_cycles(name: str) -> None:
    errors = []
    for problem, plan in LAYERS:
        found = simulated(problem, plan, name)
        (busy,) = found.layers[0].busy_cycles("mac")
        view = loop_machine(core(name))
        assert engine_cycles(problem, plan, view) == pytest.approx(busy, rel=1e-9), plan
        errors.append(abs(predicted(problem, plan, view).cycles / found.cycles - 1))
    assert np.mean(errors) < 0.02 and max(errors) < 0.05


@pytest.mark.parametrize("name", CORE_MACHINES)
def test_layers_without_products(name: str) -> None:
    """A pool; a shuffle of another input, which is loaded beside the pool's last store, and whose
    tiles come and go at the same time; a copy of it."""
    shapes: dict[str, Shape] = {"x": (16, 64, 64), "p": (16, 64, 64), "z": (24, 64, 64)}
    shapes |= {"s": shapes["z"], "c": shapes["z"]}
    axes = (Axis(12, 4096, 8192), Axis(2, 12 * 4096, 4096), Axis(4096, 1, 1))
    bounds: dict[str, Any] = {"shift": 0, "low": -128, "high": 127}
    layers: tuple[FixedLayer, ...] = (
        FixedPool("pool", ("x",), ("p",), kind="max", kernel=(1, 1), **bounds),
        FixedMove(
            "shuffle", ("z",), ("s",), pieces=(Piece(axes),), kind="shuffle",
            shapes=(shapes["z"], shapes["s"]),
        ),
        FixedElementwise("copy", ("s",), ("c",), op="copy", **bounds),
    )  # fmt: skip
    scales = q_point_scales(dict.fromkeys(shapes, 0))
    fixed = FixedGraph(layers, shapes, ("x", "z"), ("p", "c"), scales, 1, "graph")
    program = compile_fixed(fixed, core(name))
    session = Session(program)
    session.run_fixed([np.zeros((1, *one.shape), np.int8) for one in program.inputs])
    assert session.statistics is not None
    for said, found in zip(program.layers, session.statistics.layers, strict=True):
        assert said.predicted_cycles == pytest.approx(found.cycles, rel=0.05), said.name


def test_stores_have_a_cost_of_their_own() -> None:
    machine = core("zynq-7020")
    assert machine.dmac is not None
    cost = store_cost(machine)
    errors = [
        (cost.start + one.jumps * cost.segment + one.elements * 4 * cost.byte) / one.cycles - 1
        for one in sample_transfers(machine.dmac, 4, "store")
    ]
    assert np.mean(np.abs(errors)) < 0.03


@pytest.mark.parametrize("name", CORE_MACHINES)
def test_two_buffers_hide_transfers(name: str) -> None:
    """Transfers and commands together take longer than the program; with one buffer they wait for
    each other."""
    problem, plan = LAYERS[1]
    two, one = simulated(problem, plan, name), simulated(problem, replace(plan, buffers=1), name)
    assert two.loaded_bytes == one.loaded_bytes and two.stored_bytes == one.stored_bytes
    (busy,), moving = two.layers[0].busy_cycles("mac"), sum(two.layers[0].busy_cycles("dma"))
    assert one.layers[0].busy_cycles("mac") == (busy,)
    assert busy < two.cycles < min(one.cycles, busy + 0.7 * moving)


@pytest.mark.parametrize(
    ("direction", "element_bytes", "most"),
    [("load", 4, 0.07), ("load", 1, 0.07), ("store", 4, 0.3), ("store", 1, 0.15)],
)
def test_transfer_cost_in_closed_form(
    direction: Direction, element_bytes: int, most: float
) -> None:
    """One cost for both ways: that of loads, which wait for DDR; stores take less."""
    machine = core("zynq-7020")
    assert machine.dmac is not None
    cost = loop_machine(machine).transfer
    errors = [
        (cost.start + one.jumps * cost.segment + one.elements * element_bytes * cost.byte)
        / one.cycles - 1
        for one in sample_transfers(machine.dmac, element_bytes, direction)
    ]  # fmt: skip
    assert np.mean(np.abs(errors)) < most
    if direction == "store":
        assert np.mean(errors) > 0


@pytest.mark.parametrize("seed", range(4))
def test_strided_pointwise_convolutions(seed: int) -> None:
    """The core waits between the transfers of what windows touch: what `exact` takes is predicted
    well, and is no slower than a plan that loads whole rows."""
    machine, draw = core("zynq-7020"), np.random.default_rng(seed)
    filters, channels, size, stride = (int(draw.integers(*one)) for one in (
        (16, 65), (16, 65), (5, 13), (2, 4)
    ))  # fmt: skip
    problem = layer(filters, channels, size, 1, stride)
    took = []
    for name in ("exact", "eplanner"):
        plan = planner(name).plan(problem, machine)
        assert isinstance(plan, LoopPlan) and plan.prediction is not None
        took.append(simulated(problem, plan, "zynq-7020").cycles)
        assert plan.prediction.cycles == pytest.approx(took[-1], rel=0.04), plan
    assert took[0] < 1.02 * took[1]
