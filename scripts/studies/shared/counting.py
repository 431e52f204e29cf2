"""What layers need at least on a machine of 16-bit words, whatever the plan: bytes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedLayer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.sim.snowflake.isa import WORD_BYTES

BIAS_BYTES = 4
Shapes = Mapping[str, Shape]


def least_bytes(layer: FixedLayer, shapes: Shapes) -> int:
    """Every tensor once: maps, weights, biases, results."""
    tensors: list[Shape] = [shapes[name] for name in (*layer.inputs, *layer.outputs)]
    words = sum(map(prod, tensors))
    biases = 0
    if isinstance(layer, ops.FixedConv | ops.FixedTransposedConv):
        words += layer.weight.size
        biases = layer.bias.size
    return WORD_BYTES * words + BIAS_BYTES * biases
