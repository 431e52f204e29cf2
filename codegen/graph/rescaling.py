"""Requantization by multipliers: from accumulators of any scale to numbers of another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph.tensors import Array, Halves, IntArray

ACCUMULATOR_BITS = 38
"""Of an accumulator that is multiplied: with its multiplier of 24 bits it stays below 2**62."""
MOST_SHIFT = 61
MULTIPLIER_BITS = 24


@dataclass(frozen=True, eq=False)
class Rescaling:
    """``saturate(((acc * multiplier + half) >> shift) + zero point)``, half = 2**(shift - 1).

    Multipliers (24 bits, unsigned) and shifts, both int64: one, or one a channel. Results round
    once, halves up, or to even (before the zero point is added) as ONNX's QuantizeLinear says.
    TensorFlow Lite's reference kernels round twice, onnxruntime and XNNPACK after a product in
    float32; a result may differ from theirs by one step where it lies between two.
    """

    multipliers: IntArray
    shifts: IntArray
    zero_point: int
    halves: Halves = "up"

    @classmethod
    def from_real(
        cls, factors: NDArray[np.float64], zero_point: int, halves: Halves = "up"
    ) -> Rescaling:
        """For real factors that are positive and finite; QuantizationError for one that no result
        of 8 bits can use."""
        multipliers, shifts = [], []
        for factor in factors:
            fraction, exponent = math.frexp(float(factor))
            multiplier = round(math.ldexp(fraction, MULTIPLIER_BITS))
            shift = MULTIPLIER_BITS - exponent
            if multiplier == 1 << MULTIPLIER_BITS:
                multiplier, shift = multiplier >> 1, shift - 1
            if shift < 0:
                raise QuantizationError(
                    f"a result is {factor:g} times its accumulator; at most 2**{MULTIPLIER_BITS}"
                )
            lost = max(shift - MOST_SHIFT, 0)
            multipliers.append(multiplier >> lost)
            shifts.append(shift - lost)
        words = np.array(multipliers, np.int64), np.array(shifts, np.int64)
        return cls(*words, zero_point, halves)

    def apply(self, acc: Array, low: int, high: int, element_bytes: int) -> IntArray:
        """Of accumulators [B, C, ...] below 2**37 in magnitude, then clipped."""
        column = (-1,) + (1,) * (acc.ndim - 2)
        multipliers, shifts = self.multipliers.reshape(column), self.shifts.reshape(column)
        products = acc.astype(np.int64) * multipliers
        half = (np.int64(1) << shifts) >> 1
        if self.halves == "even":  # those behind an even number go back to it
            half = half - ((shifts > 0) & ~(products >> shifts))
        found = ((products + half) >> shifts) + self.zero_point
        smallest, largest = element_limits(element_bytes)
        clipped = np.clip(found, max(low, smallest), min(high, largest))
        return clipped.astype(ELEMENT_TYPE[element_bytes])

    def __len__(self) -> int:
        """How many multipliers there are."""
        return len(self.multipliers)
