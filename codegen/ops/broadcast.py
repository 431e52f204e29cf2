"""Sums, differences and products of a feature map and a tensor with one number a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.ops.operator import (
    Arrays,
    Numbers,
    Operator,
    Shapes,
    checked_shift,
    take,
)


@dataclass(frozen=True, eq=False)
class Broadcast(Layer):
    """``add``, ``sub`` (first less second) or ``mul`` of a tensor (C, H, W) and one of
    (C, 1, 1); then the activation."""

    op: Literal["add", "sub", "mul"]
    activation: Activation = NO_CLIP


@dataclass(frozen=True, eq=False)
class Difference(Broadcast):
    """A `Broadcast` that subtracts: machines that add and multiply may not have it."""

    op: Literal["sub"] = "sub"


@dataclass(frozen=True, eq=False)
class FixedBroadcast(Requantized):
    """add: a + b; sub: a - b; mul: a * b; then requantize. Sums and differences have inputs of one
    scale."""

    op: Literal["add", "sub", "mul"]


@dataclass(frozen=True, eq=False)
class FixedDifference(FixedBroadcast):
    """A `FixedBroadcast` that subtracts."""

    op: Literal["sub"] = "sub"


class BroadcastOperator(Operator[Broadcast, FixedBroadcast]):
    layer: type[Broadcast] = Broadcast
    fixed: type[FixedBroadcast] = FixedBroadcast

    def shapes(self, layer: Broadcast | FixedBroadcast, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 2)
        if len(inputs[0]) != 3 or inputs[1] != (inputs[0][0], 1, 1):
            raise GraphError(
                f"layer {layer.name!r}: {layer.op} of {inputs[0]} and {inputs[1]}; the second must "
                "have the first's channels and one row and column"
            )
        return (inputs[0],)

    def run_float(self, layer: Broadcast, arrays: Arrays, shapes: Shapes) -> Arrays:
        join = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[layer.op]
        return (layer.activation.apply(join(arrays[0], arrays[1])),)

    def run_fixed(
        self, layer: FixedBroadcast, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        join = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[layer.op]
        acc = join(*(array.astype(np.int64) for array in arrays))
        return (layer.requantized(acc, element_bytes),)

    def ties(self, layer: Broadcast) -> tuple[tuple[str, ...], ...]:
        """The two inputs of a sum or difference."""
        return () if layer.op == "mul" else (layer.inputs,)

    def quantize(self, layer: Broadcast, numbers: Numbers) -> FixedBroadcast:
        first, second = (numbers.q_point(tensor) for tensor in layer.inputs)
        exact = first + second if layer.op == "mul" else first
        low, high = numbers.bounds(layer, layer.activation)
        return self.fixed(
            layer.name, layer.inputs, layer.outputs, layer.op,
            shift=checked_shift(layer, exact - numbers.q_point(layer.output)), low=low, high=high,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedBroadcast) -> str:
        return layer.op


class DifferenceOperator(BroadcastOperator):
    layer = Difference
    fixed = FixedDifference
