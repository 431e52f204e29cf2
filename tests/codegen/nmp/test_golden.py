"""The commands and instructions of one small layer per kind of plan, kept word for word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import fixed_graph, random_tensors
from tests.codegen.nmp.simulated import simulate, small_machine
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.program.annotate import annotated_code
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine, nmp_machine_from_dict
from tvm_npu.sim.nmp.xnmp import NMP_ISA

MACHINE = small_machine(tles=2, tlts=2)
DUAL = nmp_machine_from_dict(
    {**MACHINE.model_dump(), "memories": {**MACHINE.model_dump()["memories"], "ports": 2}}
)


@dataclass(frozen=True)
class Fixed:
    """A planner with one answer; alone, the layer behind a convolution takes for ever."""

    answer: ConvPlan
    name: str = "given"
    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        if problem.window is None and self.answer.prediction is not None:
            return replace(self.answer, prediction=FOR_EVER)
        return self.answer


def conv(
    filters: int, channels: int, kernel: int, size: int, groups: int = 1, residual: bool = False
) -> FixedGraph:
    generator = np.random.default_rng(3)
    weight = generator.integers(-99, 99, (filters, channels // groups, kernel, kernel))
    pad = kernel // 2
    layer = FixedConv(
        "layer", ("x", "z") if residual else ("x",), ("y",), source=("op",),
        weight=weight.astype(np.int16), bias=np.arange(filters, dtype=np.int32) * 1000,
        padding=(pad, pad, pad, pad), groups=groups, shift=7, low=0, high=32767,
        residual_shift=6 if residual else 0, is_dense=size == 0,
    )  # fmt: skip
    shapes = {"x": (channels, size, size), "y": (filters, size, size)}
    if size == 0:
        shapes = {"x": (channels,), "y": (filters,)}  # type: ignore[dict-item]
    if residual:
        shapes["z"] = shapes["y"]
    return fixed_graph(layer, shapes, 2)  # type: ignore[arg-type]


def cascade() -> FixedGraph:
    """A convolution and a depthwise one behind it."""
    first = conv(10, 7, 1, 9)
    window = FixedConv(
        "window", ("y",), ("v",), weight=np.ones((10, 1, 3, 3), np.int16),
        bias=np.arange(10, dtype=np.int32), padding=(1, 1, 1, 1), groups=10, shift=3, low=0,
        high=999,
    )  # fmt: skip
    return replace(
        first,
        layers=(*first.layers, window),
        shapes={**first.shapes, "v": (10, 9, 9)},
        outputs=("v",),
        scales=first.scales | q_point_scales({"v": 8}),
    )


NO_TIME, FOR_EVER = (Prediction(cycles, 0.0, 0.0, 0.0, 0, 0, 0) for cycles in (1.0, 1e9))
PLAN = ConvPlan("multicast", "KS", 1, 2, "OS", 2, 3, 4, 4)
POOL = FixedPool(
    "layer", ("x",), ("y",), kind="avg", kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1),
    shift=0, low=0, high=100,
)  # fmt: skip
CASES = {
    "is": (conv(10, 7, 3, 9), replace(PLAN, schedule="IS", tile_m=3)),
    "os": (conv(10, 7, 3, 9), PLAN),
    "ws": (conv(10, 7, 3, 9), replace(PLAN, schedule="WS")),
    "rows": (conv(10, 7, 3, 9), replace(PLAN, split="OFM", row_slices=2, filter_slices=1)),
    "residual": (conv(10, 7, 1, 9, residual=True), PLAN),
    "groups": (conv(10, 14, 3, 9, groups=2), PLAN),
    "grouped-os": (conv(12, 12, 3, 9, groups=12), replace(PLAN, mode="grouped", tile_n=1)),
    "grouped-ws": (
        conv(14, 14, 3, 9, groups=7),
        replace(PLAN, mode="grouped", tile_n=2, schedule="WS"),
    ),
    "dense": (conv(30, 200, 1, 0), replace(PLAN, tile_n=50, tile_m=5, tile_r=1, tile_c=1)),
    "parts": (
        conv(10, 7, 3, 9),
        replace(PLAN, column_slices=2, filter_slices=1, tlt_rows=2, weights="tiles"),
    ),
    "ring": (
        conv(10, 8, 1, 9),
        replace(PLAN, ring_in=True, tile_r=3, tile_c=9, tile_n=8, keeps_in=True, linear_maps=True),
    ),
    "ring-weights": (
        conv(10, 7, 3, 9),
        replace(PLAN, row_slices=2, filter_slices=1, ring_weights=True, schedule="WS"),
    ),
    "two-buffers": (conv(10, 7, 3, 9, residual=True), replace(PLAN, buffers=2)),
    "cascade": (cascade(), replace(PLAN, tile_r=2, tile_c=4, prediction=NO_TIME)),
    "max-pool": (
        fixed_graph(
            replace(POOL, kind="max", low=-32768, high=32767), {"x": (6, 9, 9), "y": (6, 5, 5)}, 2
        ),
        None,
    ),
    "average-pool": (fixed_graph(POOL, {"x": (6, 9, 9), "y": (6, 5, 5)}, 2), None),
    "pad": (
        fixed_graph(
            FixedPad("layer", ("x",), ("y",), before=(1, -1, 2), after=(0, 3, 1), stride=(2, 1),
                     value=-5),
            {"x": (3, 8, 8), "y": (4, 5, 11)}, 2,
        ),
        None,
    ),
    "add": (
        fixed_graph(
            FixedElementwise("layer", ("x", "z"), ("y",), op="add", shift_a=2, shift=3, low=0,
                             high=32767),
            dict.fromkeys("xyz", (5, 9, 9)), 2,
        ),
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_listing_and_code(case: str, golden: Callable[[str, str], None]) -> None:
    fixed, plan = CASES[case]
    chosen = Fixed(plan) if plan is not None else "tso"
    machine = DUAL if plan is not None and plan.buffers == 2 else MACHINE
    text = generate(fixed, machine, chosen).listing()
    program = compile_fixed(fixed, machine, chosen)
    code = annotated_code(program)
    assert np.array_equal(assemble(code, isa=NMP_ISA), program.code)
    inputs = random_tensors(fixed, 5)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs)
    for name in fixed.outputs:
        assert np.array_equal(outputs[name], expected[name][0])
    golden(f"{case}.txt", f"{text}\n{code}")
