"""The questions that layers ask on a Snowflake machine, and who answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedLayer, Shape
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def question(layer: FixedLayer, shapes: Mapping[str, Shape]) -> Any:
    """What is asked about ``layer``."""
    if isinstance(layer, FixedConv):
        in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
        return conv_problem(layer, in_shape, out_shape, WORD_BYTES)
    raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")


def answer(asked: Any, machine: SnowflakeMachine, chosen: Planner) -> Any:
    """A plan or Infeasible: of ``chosen`` for convolutions."""
    if isinstance(asked, ConvProblem):
        return chosen.plan(asked, machine)
    raise AssertionError(asked)
