"""Scales: which real numbers the integers of a tensor stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import (
    ELEMENT_TYPE,
    dequantize_tensor,
    element_limits,
    quantize_tensor,
)
from tvm_npu.codegen.graph.tensors import Array, Halves
from tvm_npu.sim.texts import shown

if TYPE_CHECKING:
    from tvm_npu.sim.description import Requantization

LARGEST_MULTIPLIER = (1 << 31) - 1
LARGEST_SHIFT = 1024
LARGEST_ZERO_POINT = 1 << 31


@dataclass(frozen=True)
class Scale:
    """Real value = (integer - zero point) * multiplier * 2**-shift.

    ``halves`` says how real values become integers. Every other field has one entry for the whole
    tensor, or one a channel (the first axis of the batch-free shape). Multipliers are odd, so that
    equal scales are equal objects; a Q-point f is the multiplier 1 with shift f and zero point 0,
    halves up. Raises QuantizationError for entries that do not fit together or are out of range.
    """

    shifts: tuple[int, ...]
    multipliers: tuple[int, ...] = (1,)
    zero_points: tuple[int, ...] = (0,)
    halves: Halves = "up"

    def __post_init__(self) -> None:
        counts = {len(self.shifts), len(self.multipliers), len(self.zero_points)}
        if len(counts - {1}) > 1 or 0 in counts:
            raise QuantizationError(
                f"a scale has {len(self.shifts)} shifts, {len(self.multipliers)} multipliers and "
                f"{len(self.zero_points)} zero points; expected 1 or one number of channels"
            )
        for multiplier in self.multipliers:
            if not 1 <= multiplier <= LARGEST_MULTIPLIER or multiplier % 2 == 0:
                raise QuantizationError(
                    f"multiplier {multiplier} of a scale is not odd and from 1 to "
                    f"{LARGEST_MULTIPLIER}"
                )
        for shift in self.shifts:
            if abs(shift) > LARGEST_SHIFT:
                raise QuantizationError(
                    f"shift {shift} of a scale is outside -{LARGEST_SHIFT} .. {LARGEST_SHIFT}"
                )
        for zero_point in self.zero_points:
            if abs(zero_point) > LARGEST_ZERO_POINT:
                raise QuantizationError(
                    f"zero point {shown(zero_point)} of a scale is outside -{LARGEST_ZERO_POINT} "
                    f".. {LARGEST_ZERO_POINT}"
                )

    @classmethod
    def from_q_point(cls, q_point: int) -> Scale:
        """Real value = integer * 2**-q_point."""
        return cls((q_point,))

    @classmethod
    def from_real(
        cls, steps: Sequence[float], zero_points: Sequence[int] = (0,), halves: Halves = "up"
    ) -> Scale:
        """From the real value of one integer step, for the tensor or a channel, as quantized
        models give it. Steps are kept to 31 bits, which is exact for float32. QuantizationError
        for a step that is not positive and finite."""
        multipliers, shifts = [], []
        for step in steps:
            if not (math.isfinite(step) and step > 0.0):
                raise QuantizationError(f"the step {step} of a scale is not positive and finite")
            fraction, exponent = math.frexp(step)
            multiplier, shift = round(math.ldexp(fraction, 31)), 31 - exponent
            zeros = (multiplier & -multiplier).bit_length() - 1
            multipliers.append(multiplier >> zeros)
            shifts.append(shift - zeros)
        return cls(tuple(shifts), tuple(multipliers), tuple(zero_points), halves)

    @property
    def is_q_point(self) -> bool:
        entries = (self.multipliers, self.zero_points, self.halves)
        return entries == ((1,), (0,), "up") and len(self.shifts) == 1

    @property
    def q_point(self) -> int:
        """QuantizationError for a scale that no Q-point says."""
        if not self.is_q_point:
            raise QuantizationError(f"{self} is no Q-point")
        return self.shifts[0]

    @property
    def channels(self) -> int | None:
        """How many channels have entries of their own; None for a scale of the whole tensor."""
        most = max(len(self.shifts), len(self.multipliers), len(self.zero_points))
        return most if most > 1 else None

    @property
    def has_zero_point(self) -> bool:
        return any(self.zero_points)

    def held(self, values: Array, element_bytes: int) -> Array:
        """Real values, cut to those of the extreme integers; of a scale of the whole tensor."""
        with np.errstate(over="ignore"):  # what is infinite cuts nothing
            ends = (np.array(element_limits(element_bytes)) - self.zero_points) * self.steps
            return np.clip(values, *ends.astype(values.dtype))

    @property
    def steps(self) -> NDArray[np.float64]:
        """Real value of one integer step, [1] or [C]; the largest float for what is beyond it, so
        that no steps are 0 and not NaN."""
        with np.errstate(over="ignore"):
            found = np.ldexp(np.array(self.multipliers, np.float64), -np.array(self.shifts))
        return np.minimum(found, np.finfo(np.float64).max)

    def lacks(self, machine: Requantization) -> str | None:
        """The first thing that a machine's requantize step would need for this scale and does not
        have; None when it has all."""
        if set(self.multipliers) != {1} and not machine.multiplier_bits:
            return "multiplier"
        if self.channels is not None and not machine.is_per_channel:
            return "scale for each channel"
        if self.has_zero_point and not machine.has_zero_point:
            return "zero point"
        if self.halves == "even" and not machine.multiplier_bits:
            return "rounding to even"
        return None

    def quantize(self, x: Array, element_bytes: int) -> Array:
        """``saturate(floor(x / step + 1/2) + zero point)`` at the element type, for [B, C, ...],
        or the same with halves to even.

        QuantizationError on NaN and for another number of channels.
        """
        if self.is_q_point:
            return quantize_tensor(x, self.q_point, element_bytes)
        values = np.asarray(x, np.float64)
        if np.isnan(values).any():
            raise QuantizationError(f"cannot quantize {np.isnan(values).sum()} NaN values")
        steps, zeros = self._columns(values)
        smallest, largest = element_limits(element_bytes)
        with np.errstate(over="ignore"):  # what is infinite is clipped
            exact = values / steps
        rounded = (np.rint(exact) if self.halves == "even" else np.floor(exact + 0.5)) + zeros
        return np.clip(rounded, smallest, largest).astype(ELEMENT_TYPE[element_bytes])

    def dequantize(self, q: Array) -> NDArray[np.float32]:
        """The real values of integers [B, C, ...], as float32; raises as `quantize`."""
        if self.is_q_point:
            return dequantize_tensor(q, self.q_point)
        steps, zeros = self._columns(q)
        with np.errstate(over="ignore"):  # beyond float32 is infinite
            return ((np.asarray(q, np.float64) - zeros) * steps).astype(np.float32)

    def _columns(self, x: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Steps and zero points, broadcast along the channels of [B, C, ...]."""
        if self.channels is not None and (x.ndim < 2 or x.shape[1] != self.channels):
            raise QuantizationError(
                f"an array of shape {x.shape} has no {self.channels} channels, as its scale has"
            )
        column = (1, -1) + (1,) * (x.ndim - 2) if x.ndim > 1 else (-1,)
        zeros = np.array(self.zero_points, np.float64)
        return self.steps.reshape(column), zeros.reshape(column)

    def __str__(self) -> str:
        if self.is_q_point:
            return f"Q-point {self.shifts[0]}"
        parts = [f"multiplier {_shown(self.multipliers)}", f"shift {_shown(self.shifts)}"]
        if self.has_zero_point:
            parts.append(f"zero point {_shown(self.zero_points)}")
        if self.halves == "even":
            parts.append("halves to even")
        return f"scale with {', '.join(parts)}"


def _shown(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(values) == 1 else f"{min(values)} .. {max(values)}"


def q_point_scales(q_points: Mapping[str, int]) -> dict[str, Scale]:
    """Scales of tensors from their Q-points."""
    return {tensor: Scale.from_q_point(q_point) for tensor, q_point in q_points.items()}
