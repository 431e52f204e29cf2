"""Functions of one number (`ops.functions`) by a table of their values, with linear interpolation
where it has fewer entries than there are arguments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits, quantize_tensor
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.lookup import Table
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.ops.functions import Function, function_called, logistic
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, take

__all__ = [
    "FixedTable", "Table", "TableFunction", "TableOperator", "error_bound", "logistic",
    "make_table",
]  # fmt: skip

SEGMENT_BITS = {1: 0, 2: 6}
"""By bytes of an element: bits of an argument inside of one segment of the table."""
LARGEST_ZOOM = 15
"""Most bits that an argument is shifted to the left; then only 0 is not saturated."""


def make_table(function: str | Function, q_in: int, q_out: int, element_bytes: int) -> Table:
    """The table of a function for arguments at Q-point ``q_in`` and results at ``q_out``. Where the
    function is flat beyond some arguments, those of a wider range are shifted to the left: what
    that saturates lies where the function is flat."""
    known = function_called(function)
    zoom = 0
    if known.saturated_bits is not None:
        needed = 8 * element_bytes - 1 - known.saturated_bits - q_in
        zoom = max(0, min(LARGEST_ZOOM, needed))
    bits = SEGMENT_BITS[element_bytes]
    values = known(np.ldexp(_places(element_bytes), -(q_in + zoom)))
    return Table(quantize_tensor(values, q_out, element_bytes), -zoom, bits)


def table_between(function: str | Function, source: Scale, target: Scale) -> Table:
    """The table of int8 for arguments and results at scales: a value for each argument."""
    arguments = (_places(1) - source.zero_points[0]) * source.steps[0]
    return Table(target.quantize(function_called(function)(arguments), 1), 0, SEGMENT_BITS[1])


def _places(element_bytes: int, finer: int = 1) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The arguments of a table's entries, or ``finer`` times as many, as integers."""
    smallest, largest = element_limits(element_bytes)
    step = (1 << SEGMENT_BITS[element_bytes]) / finer
    return np.arange(smallest, largest + 2, step, dtype=np.float64)


def error_bound(
    function: str | Function, q_in: int, q_out: int, element_bytes: int
) -> float:
    """The largest abs(table - function) over all arguments that Q-point ``q_in`` has: half a step
    of the result for each rounding (two with interpolation), the distance of chord and curve (a
    segment's width squared / 8, times the curvature, and a quarter of the width times the bend of a
    corner), what the function still changes where arguments are saturated, and what its values
    exceed the largest result by.

    Where a function's curvature is not listed, the distance of chord and curve is measured at 16
    places of each segment."""
    known = function_called(function)
    zoom = -make_table(known, q_in, q_out, element_bytes).shift
    bits = SEGMENT_BITS[element_bytes]
    scale = 2.0 ** -(q_in + zoom)
    segment = scale * 2.0**bits if bits else 0.0
    smallest, largest = element_limits(element_bytes)
    rest = 0.0
    if zoom:
        ends = known(np.array([-np.inf, smallest * scale, largest * scale, np.inf]))
        rest = float(np.abs(np.diff(ends))[[0, 2]].max())
    values = known(_places(element_bytes) * scale)
    low, high = smallest * 2.0**-q_out, largest * 2.0**-q_out
    cut = max(0.0, float(values.max()) - high, low - float(values.min()))
    rounding = 2.0**-q_out if bits else 2.0 ** -(q_out + 1)
    return rounding + _chord_error(known, segment, scale, element_bytes) + rest + cut


def _chord_error(known: Function, segment: float, scale: float, element_bytes: int) -> float:
    if not segment:
        return 0.0
    if known.curvature is not None and known.bend is not None:
        return segment**2 / 8 * known.curvature + segment / 4 * known.bend
    fine = known(_places(element_bytes, 16) * scale)
    ends = fine[::16]
    chords = np.linspace(ends[:-1], ends[1:], 17, axis=1)[:, :16]
    return float(np.abs(chords - fine[: chords.size].reshape(chords.shape)).max())


_AT_ONCE = 1 << 16
"""Elements of a float tensor: functions compute in several arrays of float64."""


@dataclass(frozen=True, eq=False)
class TableFunction(Layer):
    """A function of every element of a tensor of any shape: one of `ops.functions` by name, or one
    of its own."""

    function: str | Function


@dataclass(frozen=True, eq=False)
class FixedTable(FixedLayer):
    """``table`` looked up for every element."""

    function: str
    table: Table


class TableOperator(Operator[TableFunction, FixedTable]):
    layer = TableFunction
    fixed = FixedTable

    def shapes(self, layer: TableFunction | FixedTable, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        return (inputs[0],)

    def run_float(self, layer: TableFunction, arrays: Arrays, shapes: Shapes) -> Arrays:
        known, values = function_called(layer.function), np.ascontiguousarray(arrays[0])
        result = np.empty(values.shape, np.float32)
        flat, made = values.reshape(-1), result.reshape(-1)
        for begin in range(0, flat.size, _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            made[part] = known(flat[part])
        return (result,)

    def run_fixed(
        self, layer: FixedTable, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (layer.table.look_up(arrays[0], element_bytes),)

    def takes_scales(self, layer: TableFunction) -> bool:
        return True

    def quantize(self, layer: TableFunction, numbers: Numbers) -> FixedTable:
        if numbers.are_q_points(layer):
            q_in, q_out = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.output)
            table = make_table(layer.function, q_in, q_out, numbers.element_bytes)
        else:
            source = numbers.whole_scale(layer, layer.inputs[0])
            table = table_between(layer.function, source, numbers.whole_scale(layer))
        return FixedTable(
            layer.name, layer.inputs, layer.outputs, function_called(layer.function).name, table,
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedTable) -> str:
        return layer.function
