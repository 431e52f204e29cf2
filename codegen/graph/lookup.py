"""Tables of a function's values as a machine looks them up: integers to integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits, requantize
from tvm_npu.codegen.graph.tensors import IntArray


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
