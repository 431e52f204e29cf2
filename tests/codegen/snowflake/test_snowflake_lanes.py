"""Depthwise convolutions on Snowflake machines: transfers and sums run side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import pytest

from tests.codegen.snowflake.snowflake_cases import graph_of, machine, outcome
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.divide import predict
from tvm_npu.codegen.snowflake.plan.planner import GreedyPlanner
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def depthwise(planes: int, size: int, stride: int = 1) -> FixedGraph:
    rng = np.random.default_rng(planes)
    layer = ops.FixedConv(
        "conv", ("x",), ("y",), rng.integers(-300, 300, (planes, 1, 3, 3)).astype(np.int16),
        rng.integers(-(1 << 20), 1 << 20, planes).astype(np.int32), (stride, stride), (1, 1, 1, 1),
        (1, 1), planes, shift=8, low=-30000, high=30000,
    )  # fmt: skip
    out = (size - 1) // stride + 1
    return graph_of(layer, {"x": (planes, size, size), "y": (planes, out, out)})


@dataclass(frozen=True)
class Tiles(GreedyPlanner):
    """Plans every layer with these tiles."""

    plan_of: SnowflakePlan | None = None

    def plan(self, problem: ConvProblem, machine: SnowflakeMachine) -> SnowflakePlan:
        assert self.plan_of is not None
        return replace(self.plan_of, prediction=predict(problem, self.plan_of, machine))


@pytest.mark.parametrize(
    ("planes", "size", "stride", "tiles"),
    [
        (144, 56, 1, (144, 28, 5)),  # whole pixels: few transfers, three groups of lanes
        (144, 56, 1, (48, 56, 10)),  # parts of pixels: a transfer for each row of a CU's tile
        (144, 56, 2, (144, 16, 3)),
        (32, 112, 1, (32, 56, 8)),
        (192, 28, 1, (64, 28, 9)),
    ],
)  # fmt: skip
def test_memory_and_sums_run_side_by_side(
    planes: int, size: int, stride: int, tiles: tuple[int, int, int]
) -> None:
    """A layer whose tiles have two places takes little longer than the busier of the two units;
    how long is predicted."""
    fixed, on = depthwise(planes, size, stride), machine("snowflake-1cc")
    found = outcome(fixed, on, Tiles(plan_of=SnowflakePlan("lane", *tiles, "kernels")))
    assert (found.wrong, found.hazards) == (0, ())
    (layer,) = found.statistics.layers
    busy = {unit.name: unit.busy_cycles for unit in layer.units}
    out = size // stride
    steps = prod(-(-of // by) for of, by in zip((planes, out, out), tiles, strict=True))
    alone = (busy["mac 0"] + busy["memory"]) / steps  # of the first step and the last
    assert layer.cycles < 1.1 * (max(busy["mac 0"], busy["memory"]) + alone)
    (planned,) = found.planned_cycles
    assert planned == pytest.approx(layer.cycles, rel=0.05)
