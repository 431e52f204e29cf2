"""Sums and products of two tensors, copies, and activations that stand alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tvm_npu.codegen.errors import GraphError, QuantizationError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph.activation import NO_CLIP, Activation
from tvm_npu.codegen.graph.layer import Layer, Requantized
from tvm_npu.codegen.graph.rescaling import Rescaling
from tvm_npu.codegen.ops.operator import (
    Arrays,
    Numbers,
    Operator,
    Order,
    Shapes,
    checked_shift,
    take,
)


@dataclass(frozen=True, eq=False)
class Elementwise(Layer):
    """``add`` or ``mul`` of two tensors of one shape, or ``copy`` of one; then the activation."""

    op: Literal["add", "mul", "copy"]
    activation: Activation = NO_CLIP


@dataclass(frozen=True, eq=False)
class FixedElementwise(Requantized):
    """add: (a << shift_a) + (b << shift_b); mul: a * b; copy: a; then requantize. With ``weights``
    add: a * factor_a + b * factor_b + constant; copy: a * factor_a + constant."""

    op: Literal["add", "mul", "copy"]
    shift_a: int = 0
    shift_b: int = 0
    weights: SumWeights | None = None


@dataclass(frozen=True)
class SumWeights:
    """Factors and the constant of a sum of tensors with scales."""

    factor_a: int
    factor_b: int
    constant: int


class ElementwiseOperator(Operator[Elementwise, FixedElementwise]):
    layer = Elementwise
    fixed = FixedElementwise
    may_widen = True

    def shapes(
        self, layer: Elementwise | FixedElementwise, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        take(layer, inputs, 1 if layer.op == "copy" else 2)
        if inputs[0] != inputs[-1]:
            raise GraphError(
                f"layer {layer.name!r}: {layer.op} of {inputs[0]} and {inputs[-1]}; the shapes "
                "must be equal"
            )
        return (inputs[0],)

    def run_float(self, layer: Elementwise, arrays: Arrays, shapes: Shapes) -> Arrays:
        if layer.op == "add":
            result = arrays[0] + arrays[1]
        elif layer.op == "mul":
            result = arrays[0] * arrays[1]
        else:
            result = arrays[0]
        return (layer.activation.apply(result),)

    def run_fixed(
        self, layer: FixedElementwise, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        wide = [array.astype(np.int64) for array in arrays]
        if layer.weights is not None:
            acc = wide[0] * layer.weights.factor_a + layer.weights.constant
            if layer.op == "add":
                acc = acc + wide[1] * layer.weights.factor_b
            return (layer.requantized(acc, element_bytes),)
        if layer.op == "add":
            acc = (wide[0] << layer.shift_a) + (wide[1] << layer.shift_b)
        elif layer.op == "mul":
            acc = wide[0] * wide[1]
        else:
            acc = wide[0]
        return (layer.requantized(acc, element_bytes),)

    def ties(self, layer: Elementwise) -> tuple[tuple[str, ...], ...]:
        """The two inputs of an addition."""
        return (layer.inputs,) if layer.op == "add" else ()

    def takes_scales(self, layer: Elementwise) -> bool:
        return layer.op != "mul"

    def quantize(self, layer: Elementwise, numbers: Numbers) -> FixedElementwise:
        if not numbers.are_q_points(layer):
            return _weighed(layer, numbers)
        out = numbers.q_point(layer.output)
        shift_a = shift_b = 0
        points = [numbers.q_point(tensor) for tensor in layer.inputs]
        if layer.op == "mul":
            shift = points[0] + points[1] - out
        else:
            shift_a, shift_b = max(points) - points[0], max(points) - points[-1]
            shift = max(points) - out
        low, high = numbers.bounds(layer, layer.activation)
        return FixedElementwise(
            layer.name, layer.inputs, layer.outputs, layer.op, shift_a, shift_b,
            shift=checked_shift(layer, shift), low=low, high=high, source=layer.source,
        )  # fmt: skip

    def order(self, layer: FixedElementwise, inputs: Shapes) -> Order:
        return Order.KEPT

    def word(self, layer: FixedElementwise) -> str:
        return layer.op


def float_copy(name: str, source: str, target: str) -> Elementwise:
    """A layer that copies tensor ``source`` to ``target``, whatever the scales and widths of the
    two will be."""
    return Elementwise(name, (source,), (target,), "copy")


FACTOR_BITS, MOST_SHIFT = 21, 23
"""Of the larger factor of a sum, as in XNNPACK; its products and the constant, a zero point shifted
so far, fit 32 bits."""


def _weighed(layer: Elementwise, numbers: Numbers) -> FixedElementwise:
    """A sum or a copy between tensors with scales, rounded once. The result's zero point is part of
    the constant, but for halves to even, which a `Rescaling` rounds."""
    target = numbers.whole_scale(layer)
    sources = [numbers.whole_scale(layer, tensor) for tensor in layer.inputs]
    factors = [float(one.steps[0] / target.steps[0]) for one in sources]
    shift = FACTOR_BITS - math.frexp(max(factors))[1]
    if shift < 0:
        raise QuantizationError(
            f"layer {layer.name!r}: a step of {layer.inputs} is {max(factors):g} times one of "
            f"{layer.output!r}; at most 2**{FACTOR_BITS}"
        )
    shift = min(shift, MOST_SHIFT)
    integers = [round(math.ldexp(factor, shift)) for factor in factors]
    constant = -sum(k * one.zero_points[0] for k, one in zip(integers, sources, strict=True))
    rescaling = None
    if target.halves == "up":
        constant += target.zero_points[0] << shift
    else:
        shifted = np.ones(1, np.int64), np.array([shift], np.int64)
        rescaling = Rescaling(*shifted, target.zero_points[0], target.halves)
    weights = SumWeights(integers[0], integers[-1], constant)
    low, high = numbers.bounds(layer, layer.activation)
    return FixedElementwise(
        layer.name, layer.inputs, layer.outputs, layer.op, weights=weights, rescaling=rescaling,
        shift=0 if rescaling else shift, low=low, high=high, source=layer.source,
    )  # fmt: skip


def fixed_copy(
    name: str, source: str, target: str, element_bytes: int, origin: tuple[str, ...] = ()
) -> FixedElementwise:
    """A layer that copies tensor ``source`` to ``target`` as it is."""
    low, high = element_limits(element_bytes)
    return FixedElementwise(
        name, (source,), (target,), "copy", source=origin, shift=0, low=low, high=high
    )
