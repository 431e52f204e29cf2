"""Softmax along the last axis, in five steps on integers with digits of their own.

m = max(x);  d = x - m;  e = exp(d) by a table;  s = sum(e), exactly;  r = 1 / s by tables;  y = e r

s lies between the least sum that the output's Q-point allows (the largest result is 1 / s) and the
number of elements. One table of 1 / s over all of that would be coarse where 1 / s is steep, so
each of `Part` covers a stretch of REACH_BITS octaves: all of them look the same sum up, at Q-points
of their own, and what they find is added. Below and above its stretch a part is constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.fixed_point import requantize
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.lookup import Table
from tvm_npu.codegen.graph.tensors import Array
from tvm_npu.codegen.ops.functions import Function
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Shapes, checked_shift, take
from tvm_npu.codegen.ops.table import SEGMENT_BITS, error_bound, make_table

DEPTH_BITS = {1: 3, 2: 4}
"""By bytes of an element: exp(-2**bits) is below half a step of what exponentials are kept at (of
int8 nearly so)."""
REACH_BITS = {1: 2, 2: 4}
"""By bytes of an element: octaves of sums that one table of reciprocals covers."""

EXPONENTIAL = Function("exp", lambda x: np.exp(np.minimum(x, 0.0)), 1.0, 0.0)
"""Of differences, none of which is positive."""


@dataclass(frozen=True, eq=False)
class Softmax(Layer):
    """exp(x) / sum(exp(x)) along the last axis, which has ``count`` elements."""

    count: int


@dataclass(frozen=True, eq=False)
class Part:
    """A stretch of 1 / s: the Q-point of its sums, and the table that takes them."""

    q_point: int
    table: Table


@dataclass(frozen=True, eq=False)
class FixedSoftmax(FixedLayer):
    """As the module says: d = saturate((x - m) >> shift); e = exponential[d] at Q-point w - 1, for
    elements of w bits; of each part a = table[saturate(s >> (w - 1 - its Q-point))], r the sum of
    all a, saturated after each; y = saturate((e r) >> product_shift). Shifts round half up."""

    count: int
    shift: int
    difference_q_point: int
    exponential: Table
    parts: tuple[Part, ...]
    reciprocal_q_point: int
    product_shift: int


@dataclass(frozen=True)
class Digits:
    """The Q-points of a softmax of ``count`` numbers, and the least sum as a power of two."""

    differences: int
    reciprocal: int
    least_sum_bits: int
    stretches: int


def digits_of(q_in: int, q_out: int, count: int, element_bytes: int) -> Digits:
    """Differences keep the input's digits where their range allows it; the reciprocal has those of
    the result, whose largest is a reciprocal."""
    top = 8 * element_bytes - 1
    differences = max(top - DEPTH_BITS[element_bytes], min(q_in - 1, top))
    least = min(max(0, q_out - top), count.bit_length() - 1)
    octaves = (count - 1).bit_length() - least
    stretches = max(1, -(-octaves // REACH_BITS[element_bytes]))
    return Digits(differences, top + least, least, stretches)


def reciprocal(low: float, high: float, *, is_first: bool) -> Function:
    """1 / s from ``low`` to ``high``, constant outside: 1 / low below for the first stretch, 0 for
    those that are added to it."""
    offset = 0.0 if is_first else 1.0 / low
    return Function("reciprocal", lambda s: 1.0 / np.clip(s, low, high) - offset, 2.0 / low**3)


def _stretches(digits: Digits, element_bytes: int) -> list[tuple[int, Function]]:
    """The Q-point of the sums, and the function, of each part."""
    reach, found = REACH_BITS[element_bytes], []
    for number in range(digits.stretches):
        low = digits.least_sum_bits + reach * number
        function = reciprocal(2.0**low, 2.0 ** (low + reach), is_first=number == 0)
        found.append((8 * element_bytes - 1 - low - reach, function))
    return found


def softmax_error_bound(q_in: int, q_out: int, count: int, element_bytes: int) -> float:
    """The largest abs(result - softmax) of ``count`` numbers at Q-point ``q_in``, for rows whose
    largest result does not exceed 2**(w - 1 - q_out).

    An exponential errs by at most a + b e: a for its rounding and for what lies below the table, b
    for rounded differences, for chords, and for 1, which is a step too large. So the sum S errs by
    at most n a + b S, and e / S by (a (1 + n / S) + 2 b) / S' (S' as computed); the reciprocal's
    tables, the rounding of their arguments and that of the result are added.
    """
    digits, top = digits_of(q_in, q_out, count, element_bytes), 8 * element_bytes - 1
    step, least = 2.0**-top, 2.0**digits.least_sum_bits
    bits = SEGMENT_BITS[element_bytes]
    segment = 2.0 ** (bits - digits.differences) if bits else 0.0
    half_difference = 2.0 ** -(digits.differences + 1) if digits.differences < q_in else 0.0
    rounding = step if bits else step / 2
    is_cut = digits.differences >= q_in
    a = rounding + (np.exp(-(2.0 ** (top - digits.differences))) if is_cut else 0.0)
    b = np.expm1(half_difference) + segment**2 / 8 * np.exp(segment) + step
    lowest = max(1.0 - step, least * (1.0 - b) - count * a)
    quotient = (a * (1.0 + count / least) + 2.0 * b) / lowest
    reciprocals = 0.0
    for number, (q_sum, function) in enumerate(_stretches(digits, element_bytes)):
        low = least * 2.0 ** (REACH_BITS[element_bytes] * number)
        reciprocals += error_bound(function, q_sum, digits.reciprocal, element_bytes)
        reciprocals += 2.0 ** -(q_sum + 1) / low**2
    return min(1.0, float(quotient + reciprocals + 2.0**-q_out))


class SoftmaxOperator(Operator[Softmax, FixedSoftmax]):
    layer = Softmax
    fixed = FixedSoftmax

    def shapes(self, layer: Softmax | FixedSoftmax, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        if inputs[0][-1:] != (layer.count,):
            raise GraphError(
                f"layer {layer.name!r} is a softmax of {layer.count} numbers along the last axis "
                f"of {inputs[0]}"
            )
        return (inputs[0],)

    def run_float(self, layer: Softmax, arrays: Arrays, shapes: Shapes) -> Arrays:
        x = arrays[0].astype(np.float64)
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return ((e / e.sum(axis=-1, keepdims=True)).astype(np.float32),)

    def run_fixed(
        self, layer: FixedSoftmax, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        def cut(acc: Array, shift: int) -> Array:
            return requantize(acc, shift, -(1 << top), (1 << top) - 1, element_bytes)

        top, x = 8 * element_bytes - 1, arrays[0].astype(np.int64)
        e = layer.exponential.look_up(
            cut(x - x.max(axis=-1, keepdims=True), layer.shift), element_bytes
        ).astype(np.int64)
        s = e.sum(axis=-1, keepdims=True)
        r = np.zeros_like(s)
        for part in layer.parts:
            a = part.table.look_up(cut(s, top - part.q_point), element_bytes)
            r = cut(r + a.astype(np.int64), 0).astype(np.int64)
        return (cut(e * r, layer.product_shift),)

    def quantize(self, layer: Softmax, numbers: Numbers) -> FixedSoftmax:
        q_in, q_out = numbers.q_point(layer.inputs[0]), numbers.q_point(layer.output)
        size, top = numbers.element_bytes, 8 * numbers.element_bytes - 1
        digits = digits_of(q_in, q_out, layer.count, size)
        parts = tuple(
            Part(q_sum, make_table(function, q_sum, digits.reciprocal, size))
            for q_sum, function in _stretches(digits, size)
        )
        return FixedSoftmax(
            layer.name, layer.inputs, layer.outputs, layer.count,
            shift=checked_shift(layer, q_in - digits.differences),
            difference_q_point=digits.differences,
            exponential=make_table(EXPONENTIAL, digits.differences, top, size),
            parts=parts, reciprocal_q_point=digits.reciprocal,
            product_shift=checked_shift(layer, top + digits.reciprocal - q_out),
            source=layer.source,
        )  # fmt: skip

    def word(self, layer: FixedSoftmax) -> str:
        return "softmax"
