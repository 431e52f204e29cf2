"""What a plan is expected to cost: exact traffic, and the time of its steps (`timeline`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.numbers import MODES, Numbers, numbers
from tvm_npu.codegen.snowflake.plan.room import Choice
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def choice(layer: Numbers, plan: SnowflakePlan) -> Choice:
    """``plan`` in numbers; tiles are no larger than the layer."""
    return Choice(
        MODES.index(plan.mode),
        min(plan.tile_m, layer.filters),
        min(plan.tile_r, layer.rows.out),
        min(plan.tile_c, layer.columns.out),
        plan.stays == "maps",
    )


def predicted(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> Prediction:
    """Of a cluster, for a plan that is known to be sound."""
    layer, costs = numbers(problem, machine), np.zeros(timeline.COSTS)
    timeline.cost_of(layer, choice(layer, plan), costs)
    return prediction(costs)


def prediction(costs: Any) -> Prediction:
    """Of `timeline.COSTS`."""
    load, store = float(costs[timeline.LOADS]), float(costs[timeline.STORES])
    vector = float(costs[timeline.VECTOR])
    return Prediction(
        cycles=float(costs[timeline.CYCLES]),
        mac_cycles=vector,
        load_cycles=load,
        store_cycles=store,
        in_bytes=int(costs[timeline.IN_BYTES]),
        weight_bytes=int(costs[timeline.WEIGHT_BYTES]),
        out_bytes=int(costs[timeline.OUT_BYTES]),
        bound="mac" if vector > load + store else "dram",
    )


def alone_cycles(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> float:
    """Of a cluster, for a layer that no other comes before."""
    layer, costs = numbers(problem, machine), np.zeros(timeline.COSTS)
    timeline.cost_of(layer, choice(layer, plan), costs)
    return float(costs[timeline.ALONE])
