"""When loads come: beside a layer that the memory binds, kernels of the first step alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.snowflake.snowflake_cases import machine
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import EventLog

PLANES, FILTERS = 256, 192


def pool_and_conv(rng: np.random.Generator) -> FixedGraph:
    """A maximum that the memory binds, and a convolution with tiles of kernels in three places."""
    weight = rng.integers(-300, 300, (FILTERS, PLANES, 3, 3)).astype(np.int16)
    layers = (
        ops.FixedPool(
            "pool", ("x",), ("t",), "max", (3, 3), (2, 2), shift=0, low=-30000, high=30000
        ),
        ops.FixedConv(
            "conv", ("t",), ("y",), weight, np.zeros(FILTERS, np.int32), padding=(1, 1, 1, 1),
            shift=9, low=-30000, high=30000,
        ),
    )  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (PLANES, 13, 13), "t": (PLANES, 6, 6), "y": (FILTERS, 6, 6)
    }  # fmt: skip
    return FixedGraph(layers, shapes, ("x",), ("y",), q_point_scales(dict.fromkeys(shapes, 8)), 2)


@pytest.mark.parametrize("name", ("snowflake-1cc", "snowflake-4cc"))
def test_kernels_of_the_first_step_alone_come_early(name: str) -> None:
    """All others come when the convolution computes: its maps need not wait for them."""
    rng = np.random.default_rng(7)
    fixed = pool_and_conv(rng)
    program = compile_fixed(fixed, machine(name), "snowflake")
    log = EventLog()
    inputs = [rng.integers(-900, 900, (1, *fixed.shapes["x"])).astype(np.int16)]
    Session(program).run_fixed(inputs, events=log)
    done = [event for event in log.runs[0] if not event.waits]
    begins = min(one.begin_cycles for one in done if one.unit.startswith("mac"))
    came = sum(
        one.bytes for one in done
        if one.unit.startswith("load") and one.stream == "weight" and one.begin_cycles < begins
    )  # fmt: skip
    plan = program.layers[1].plan
    assert plan is not None and 0 < plan["tile_m"] < FILTERS
    assert came == plan["prediction"]["weight_bytes"] * plan["tile_m"] // FILTERS
