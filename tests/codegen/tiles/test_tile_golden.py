"""The commands and instructions of a tiny network on a tile machine, kept word for word."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.tiles.interpreter import Interpreter
from tests.codegen.tiles.tile_cases import tile_machine
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, q_point_scales
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool, FixedReshape
from tvm_npu.codegen.plan.loops.plan import LoopPlan, extent
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.annotate import annotated_code
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.tiles.isa import TILE_ISA
from tvm_npu.sim.tiles.machine import TileMachine

LIMITS = {"low": -128, "high": 127}


def network() -> FixedGraph:
    """Every kind of layer: pad, convolutions (dense, depthwise, with residual, fully connected),
    pools, elementwise."""
    generator = np.random.default_rng(5)

    def conv(
        name: str, inputs: tuple[str, ...], out: str, *shape: int, **rest: object
    ) -> FixedConv:
        weight = generator.integers(-9, 10, shape).astype(np.int8)
        bias = np.arange(shape[0], dtype=np.int32) * 10
        made: dict[str, object] = {"shift": 5, **LIMITS, "source": (name,), **rest}
        return FixedConv(name, inputs, (out,), weight=weight, bias=bias, **made)  # type: ignore

    layers: tuple[FixedLayer, ...] = (
        FixedPad("pad", ("x",), ("p",), before=(0, 1, 1), after=(0, 1, 1), stride=(1, 1), value=3),
        conv("conv", ("p",), "a", 6, 4, 3, 3),
        conv("depthwise", ("a",), "d", 6, 1, 3, 3, padding=(1, 1, 1, 1), groups=6),
        conv("point", ("d", "a"), "b", 6, 6, 1, 1, residual_shift=3, low=0),
        FixedPool(
            "max", ("b",), ("m",), shift=0, **LIMITS, kind="max", kernel=(2, 2), stride=(2, 2)
        ),
        FixedElementwise("sum", ("m", "m"), ("s",), op="add", shift=1, **LIMITS),
        FixedPool("mean", ("s",), ("v",), shift=0, **LIMITS, kind="avg", kernel=(4, 4)),
        FixedReshape("flat", ("v",), ("f",)),
        conv("fc", ("f",), "y", 5, 6, 1, 1, is_dense=True),
    )
    shapes = {
        "x": (4, 8, 8), "p": (4, 10, 10), "a": (6, 8, 8), "d": (6, 8, 8), "b": (6, 8, 8),
        "m": (6, 4, 4), "s": (6, 4, 4), "v": (6, 1, 1), "f": (6,), "y": (5,),
    }  # fmt: skip
    return FixedGraph(
        layers, shapes, ("x",), ("y",), q_point_scales(dict.fromkeys(shapes, 4)), 1, "tiny"
    )


class Quarters:
    """Tiles of half the channels and half the rows; two buffers for all but residuals."""

    name = "quarters"

    def plan(self, problem: ConvProblem, machine: TileMachine) -> LoopPlan:
        half = {loop: -(-extent(problem, loop) // 2) for loop in ("N", "R")}  # type: ignore
        filters = extent(problem, "M")
        if problem.groups > 1:
            return LoopPlan(filters, 1, half["R"], problem.columns, tile_groups=3, buffers=2)
        return LoopPlan(
            filters, half["N"], half["R"], problem.columns, ("R", "C", "M", "N"),
            buffers=1 if problem.has_residual else 2,
        )  # fmt: skip


MACHINES = {
    "split": tile_machine((1024, 512, 2048)),
    "shared": tile_machine((4096,), bias_bytes=64),
    "words": tile_machine((2048, 1024, 2048), (4, 4, 4, 8)),
}


@pytest.mark.parametrize("name", MACHINES)
def test_listing_and_code(name: str, golden: Callable[[str, str], None]) -> None:
    fixed, machine = network(), MACHINES[name]
    planner: object = Quarters()
    text = generate(fixed, machine, planner).listing()  # type: ignore[arg-type]
    program = compile_fixed(fixed, machine, planner)  # type: ignore[arg-type]
    code = annotated_code(program)
    np.testing.assert_array_equal(assemble(code, isa=TILE_ISA), program.code)
    inputs = random_tensors(fixed, 5)
    expected = run_fixed(fixed, {"x": inputs["x"][None]})
    np.testing.assert_array_equal(Interpreter(program).run(inputs)["y"], expected["y"][0])
    layers = [int(row) for row in dict.fromkeys(program.debug["layer"]) if row >= 0]
    assert [program.layers[row].kind for row in layers] == [
        "pad", "conv", "conv", "conv", "max_pool", "add", "avg_pool", "dense",
    ]  # fmt: skip
    golden(f"{name}.txt", f"{text}\n{code}")
