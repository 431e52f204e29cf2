"""The commands and instructions of one small layer per kind of plan, kept word for word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import fixed_graph, random_tensors
from tests.codegen.nmp.simulated import simulate, small_machine
from tvm_npu.codegen.fixed import (
    FixedConv,
    FixedElementwise,
    FixedGraph,
    FixedPad,
    FixedPool,
)
from tvm_npu.codegen.nmp import compile_fixed, generate
from tvm_npu.codegen.nmp.annotate import annotated_code
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine import Machine

MACHINE = small_machine(tles=2, tlts=2)


@dataclass(frozen=True)
class Fixed:
    """A planner with one answer."""

    answer: ConvPlan
    name: str = "given"

    def plan(self, problem: ConvProblem, machine: Machine) -> ConvPlan:
        return self.answer


def conv(
    filters: int, channels: int, kernel: int, size: int, groups: int = 1, residual: bool = False
) -> FixedGraph:
    generator = np.random.default_rng(3)
    weight = generator.integers(-99, 99, (filters, channels // groups, kernel, kernel))
    pad = kernel // 2
    layer = FixedConv(
        "layer", ("x", "z") if residual else ("x",), "y", source=("op",),
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


PLAN = ConvPlan("multicast", "KS", 1, 2, "OS", 2, 3, 4, 4)
POOL = FixedPool(
    "layer", ("x",), "y", kind="avg", kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1), shift=0,
    low=0, high=100,
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
    "max-pool": (
        fixed_graph(
            replace(POOL, kind="max", low=-32768, high=32767), {"x": (6, 9, 9), "y": (6, 5, 5)}, 2
        ),
        None,
    ),
    "average-pool": (fixed_graph(POOL, {"x": (6, 9, 9), "y": (6, 5, 5)}, 2), None),
    "pad": (
        fixed_graph(
            FixedPad("layer", ("x",), "y", before=(1, -1, 2), after=(0, 3, 1), stride=(2, 1),
                     value=-5),
            {"x": (3, 8, 8), "y": (4, 5, 11)}, 2,
        ),
        None,
    ),
    "add": (
        fixed_graph(
            FixedElementwise("layer", ("x", "z"), "y", op="add", shift_a=2, shift=3, low=0,
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
    text = generate(fixed, MACHINE, chosen).listing()
    program = compile_fixed(fixed, MACHINE, chosen)
    code = annotated_code(program)
    assert np.array_equal(assemble(code), program.code)
    inputs = random_tensors(fixed, 5)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs)
    assert np.array_equal(outputs["y"], expected["y"][0])
    golden(f"{case}.txt", f"{text}\n{code}")
