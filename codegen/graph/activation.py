"""Activations: what a layer does to each of its values at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits, round_constant
from tvm_npu.codegen.graph.tensors import FloatArray, IntArray


@runtime_checkable
class Activation(Protocol):
    """A function of one value that the requantize step of a layer does: a clip, or slopes of
    negative values. (Functions by tables are layers of their own, `codegen.ops.table`, which a
    machine may put behind the layer in front.)"""

    @property
    def is_identity(self) -> bool:
        """Whether it leaves every value as it is."""

    def apply(self, x: FloatArray) -> FloatArray:
        """Of every element of a float32 array."""

    def then(self, other: Activation) -> Activation | None:
        """The activation that equals this one and then ``other``; None if there is none."""

    def bounds(self, q_point: int, element_bytes: int) -> tuple[int, int]:
        """The fixed-point form: smallest and largest integer of the result, low <= high.
        QuantizationError for an activation that a requantize step with bounds cannot do."""


@dataclass(frozen=True)
class Clip:
    """Bounds of an activation: ReLU is ``Clip(0, inf)``, ReLU6 ``Clip(0, 6)``."""

    low: float = -np.inf
    high: float = np.inf

    @property
    def is_identity(self) -> bool:
        return self.low == -np.inf and self.high == np.inf

    def apply(self, x: FloatArray) -> FloatArray:
        if self.is_identity:
            return x
        return np.clip(x, np.float32(self.low), np.float32(self.high))

    def then(self, other: Activation) -> Activation | None:
        if self.is_identity:
            return other
        if not isinstance(other, Clip):
            return self if other.is_identity else None
        low = min(max(self.low, other.low), other.high)
        high = min(max(self.high, other.low), other.high)
        return Clip(low, high)

    def bounds(self, q_point: int, element_bytes: int) -> tuple[int, int]:
        """The bounds at a Q-point; infinite ones become the type's limits."""
        high = round_constant(self.high, q_point, element_bytes)
        return min(round_constant(self.low, q_point, element_bytes), high), high


SLOPE_BITS = 14
"""Fraction bits of a slope as an integer; machines multiply accumulators by it."""
LARGEST_SLOPE = (1 << 15) - 1


@dataclass(frozen=True)
class Slopes:
    """Leaky ReLU and PReLU: negative values times a slope, ``values`` of which there is one, or one
    a channel. Slopes lie between -2 and 2."""

    values: tuple[float, ...]

    @property
    def is_identity(self) -> bool:
        return all(value == 1.0 for value in self.values)

    def apply(self, x: FloatArray) -> FloatArray:
        slopes = np.array(self.values, np.float32).reshape(-1, *[1] * (x.ndim - 2))
        return np.where(x < 0, x * slopes, x)

    def then(self, other: Activation) -> Activation | None:
        if self.is_identity:
            return other
        return self if other.is_identity else None

    def bounds(self, q_point: int, element_bytes: int) -> tuple[int, int]:
        return element_limits(element_bytes)


def slope_integers(activation: Activation) -> IntArray | None:
    """The slopes of an activation that has some, as a machine takes them."""
    if not isinstance(activation, Slopes):
        return None
    integers = np.floor(np.ldexp(np.array(activation.values), SLOPE_BITS) + 0.5)
    return integers.astype(np.int32)


NO_CLIP = Clip()
RELU = Clip(0.0, np.inf)
