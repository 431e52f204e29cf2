"""Activations: what a layer does to each of its values at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tvm_npu.codegen.fixed_point import round_constant
from tvm_npu.codegen.graph.tensors import FloatArray


@runtime_checkable
class Activation(Protocol):
    """A function of one value. Monotone clips are the ones that exist today; a table of a
    function's values answers the same questions."""

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


NO_CLIP = Clip()
RELU = Clip(0.0, np.inf)
