"""Sigmoid and tanh by a table of their values, with linear interpolation where it has fewer
entries than there are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits, quantize_tensor, requantize
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Array, IntArray
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take

FunctionName = Literal["sigmoid", "tanh"]
SEGMENT_BITS = {1: 0, 2: 6}
"""By bytes of an element: bits of an argument inside of one segment of the table."""
LARGEST_ZOOM = 15
"""Most bits that an argument is shifted to the left; then only 0 is not saturated."""


@dataclass(frozen=True)
class _Function:
    """``curvature`` is the largest abs(second derivative); beyond 2**``saturated_bits`` the
    function is as flat as int16 results can show (nearly: `error_bound` says by how much)."""

    values: Callable[[Array], Array]
    curvature: float
    saturated_bits: int


def logistic(x: Array) -> Array:
    """The sigmoid; no value overflows."""
    values: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return values


def _complement(x: Array) -> Array:
    return logistic(-x)


_FUNCTIONS = {
    "sigmoid": _Function(logistic, 0.09623, 4),
    "tanh": _Function(np.tanh, 0.76981, 3),
    "complement": _Function(_complement, 0.09623, 4),
}


@dataclass(frozen=True, eq=False)
class Table:
    """A function of integers of one element type, computed as

    x = saturate(floor((a + half) >> shift)) - smallest      (shift <= 0: a left shift)
    j, f = x >> bits, x & (2**bits - 1)
    y = values[j] + floor(((values[j + 1] - values[j]) * f + half') >> bits)

    with smallest = -2**(w - 1) for w-bit elements and half' = 2**(bits - 1); with 0 bits y is
    values[x]. ``values`` are 2**(w - bits) + 1 integers of the element type: 1025 for int16 (bits
    6), 257 for int8 (bits 0), where the last is never looked up.
    """

    values: IntArray
    shift: int
    bits: int

    def look_up(self, a: IntArray, element_bytes: int) -> IntArray:
        """Of an array of integers of the element type, at that type."""
        smallest, largest = element_limits(element_bytes)
        zoomed = requantize(a, self.shift, smallest, largest, element_bytes)
        x = zoomed.astype(np.int64) - smallest
        segment = x >> self.bits
        values = self.values.astype(np.int64)
        y = values[segment]
        if self.bits:
            rise = (values[segment + 1] - y) * (x & ((1 << self.bits) - 1))
            y = y + ((rise + (1 << (self.bits - 1))) >> self.bits)
        return y.astype(a.dtype)


def make_table(function: str, q_in: int, q_out: int, element_bytes: int) -> Table:
    """The table of ``sigmoid``, ``tanh`` or ``complement`` (1 - sigmoid) for arguments at Q-point
    ``q_in`` and results at ``q_out``. Arguments of a wide range are shifted to the left: what that
    saturates lies where the function is flat."""
    known = _FUNCTIONS[function]
    zoom = max(0, min(LARGEST_ZOOM, 8 * element_bytes - 1 - known.saturated_bits - q_in))
    smallest, largest = element_limits(element_bytes)
    bits = SEGMENT_BITS[element_bytes]
    arguments = np.arange(smallest, largest + 2, 1 << bits, dtype=np.float64)
    values = known.values(np.ldexp(arguments, -(q_in + zoom)))
    return Table(quantize_tensor(values, q_out, element_bytes), -zoom, bits)


def error_bound(function: str, q_in: int, q_out: int, element_bytes: int) -> float:
    """The largest abs(table - function) over all arguments that Q-point ``q_in`` has: half a step
    of the result for each rounding (two with interpolation), the distance of chord and curve (a
    segment's width squared / 8, times the curvature), what the function still changes where
    arguments are saturated, and the distance of 1.0 to the largest result."""
    known = _FUNCTIONS[function]
    zoom = -make_table(function, q_in, q_out, element_bytes).shift
    bits = SEGMENT_BITS[element_bytes]
    segment = 2.0 ** (bits - q_in - zoom) if bits else 0.0
    end = np.array([element_limits(element_bytes)[1] * 2.0 ** -(q_in + zoom)])
    rest = float(known.values(np.array([np.inf]))[0] - known.values(end)[0]) if zoom else 0.0
    largest_result = element_limits(element_bytes)[1] * 2.0**-q_out
    cut = max(0.0, 1.0 - largest_result)
    rounding = 2.0**-q_out if bits else 2.0 ** -(q_out + 1)
    return rounding + segment**2 / 8 * known.curvature + abs(rest) + cut


@dataclass(frozen=True, eq=False)
class TableFunction(Layer):
    """``sigmoid`` or ``tanh`` of every element of a tensor of any shape."""

    function: FunctionName


@dataclass(frozen=True, eq=False)
class FixedTable(FixedLayer):
    """``table`` looked up for every element."""

    function: FunctionName
    table: Table


class TableOperator(Operator[TableFunction, FixedTable]):
    layer = TableFunction
    fixed = FixedTable

    def shapes(self, layer: TableFunction | FixedTable, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        return (inputs[0],)

    def run_float(self, layer: TableFunction, arrays: Arrays, shapes: Shapes) -> Arrays:
        values = _FUNCTIONS[layer.function].values(arrays[0].astype(np.float64))
        return (values.astype(np.float32),)

    def run_fixed(
        self, layer: FixedTable, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (layer.table.look_up(arrays[0], element_bytes),)

    def quantize(self, layer: TableFunction, numbers: Numbers) -> FixedTable:
        q_in, q_out = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.output)
        table = make_table(layer.function, q_in, q_out, numbers.element_bytes)
        return FixedTable(
            layer.name, layer.inputs, layer.outputs, layer.function, table, source=layer.source
        )

    def word(self, layer: FixedTable) -> str:
        return layer.function
