"""Pools and depthwise convolutions behind a convolution, tile by tile on chip."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, requantizing
from tests.codegen.nmp.test_wide_plans import Drawn, machines, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, output_extent, q_point_scales
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.ops import FixedCascade, FixedConv, FixedPool
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.sim.nmp.machine import NmpMachine

ALONE = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1)


def predicted(cycles: float) -> Prediction:
    return Prediction(cycles, 0, 0, 0, 0, 0, 0)


@dataclass
class Cascading(Drawn):
    """Likes windows, and finds their layers alone very slow."""

    name: str = "cascading"
    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        if problem.window is None and problem.groups > 1:
            return replace(ALONE, prediction=predicted(1e9))
        plan = super().plan(problem, machine)
        return replace(plan, prediction=predicted(1.0 if problem.window else 1e9))


@st.composite
def cascades(draw: st.DrawFn, element_bytes: int, has_residuals: bool = True) -> FixedGraph:
    """A convolution and a window over its OFM."""
    graph = draw(convolutions(element_bytes, is_grouped=False, has_residuals=has_residuals))
    conv = graph.layers[0]
    assert isinstance(conv, FixedConv)
    filters, rows, columns = graph.shapes["y"]
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    pads = tuple(draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4))
    out = [
        output_extent(extent, kernel[axis], stride[axis], 1, pads[axis] + pads[axis + 2])
        for axis, extent in enumerate((rows, columns))
    ]
    assume(min(out) > 0)
    low, high = element_limits(element_bytes)
    common = draw(requantizing(element_bytes))
    window: FixedPool | FixedConv
    if draw(st.booleans()):
        generator = np.random.default_rng(draw(SEEDS))
        window = FixedConv(
            "window", ("y",), ("v",), weight=generator.integers(
                low, high + 1, (filters, 1, *kernel)
            ).astype(np.int8 if element_bytes == 1 else np.int16),
            bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
            stride=stride, padding=pads, groups=filters, **common,  # type: ignore[arg-type]
        )  # fmt: skip
    else:
        window = FixedPool(
            "window", ("y",), ("v",), kind=draw(st.sampled_from(("max", "avg"))), kernel=kernel,
            stride=stride, padding=pads, count_include_pad=draw(st.booleans()),  # type: ignore[arg-type]
            counted_padding=pads, **{**common, "shift": 0},  # type: ignore[arg-type]
        )  # fmt: skip
    return replace(
        graph,
        layers=(conv, window),
        shapes={**graph.shapes, "v": (filters, *out)},
        outputs=("v",),
        scales=graph.scales | q_point_scales({"v": 8}),
    )


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(50), suppress_health_check=FILTERED)
def test_cascades_run_to_the_bit(element_bytes: int, buffers: int, data: st.DataObject) -> None:
    fixed = data.draw(cascades(element_bytes))
    assume(candidates(fixed))
    machine = data.draw(machines(buffers))
    layers = run_drawn(fixed, machine, Cascading(data, buffers), data)
    assert [type(one.layer) for one in layers] == [FixedCascade]
