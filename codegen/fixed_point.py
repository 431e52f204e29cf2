"""Fixed-point numbers: integers q with real value ``q * 2**-f``, in one or two bytes.

Rounding and saturation of results are stated here once, in `requantize`; every simulator must
agree with it to the bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.row_blocks import row_blocks

Array = NDArray[Any]
ELEMENT_TYPE: dict[int, np.dtype[Any]] = {1: np.dtype(np.int8), 2: np.dtype(np.int16)}
MIN_Q_POINT = -24
MAX_Q_POINT = 30

_BLOCK = 1 << 16
"""Elements that are quantized at a time: few enough to stay in a core's cache."""


def element_limits(element_bytes: int) -> tuple[int, int]:
    """Smallest and largest integer of an element type."""
    half = 1 << (8 * element_bytes - 1)
    return -half, half - 1


def quantize_tensor(x: Array, q_point: int, element_bytes: int) -> Array:
    """``saturate(floor(x * 2**q_point + 1/2))`` at the element type; QuantizationError on NaN."""
    values = np.asarray(x)
    if values.ndim > 1 and not values.flags.c_contiguous:
        result = np.empty(values.shape, ELEMENT_TYPE[element_bytes])
        for rows, block in row_blocks(values):
            result[rows] = quantize_tensor(block, q_point, element_bytes)
        return result
    flat = np.ascontiguousarray(values).reshape(-1)
    result = np.empty(flat.shape, ELEMENT_TYPE[element_bytes])
    smallest, largest = element_limits(element_bytes)
    for begin in range(0, flat.size, _BLOCK):
        block = flat[begin : begin + _BLOCK].astype(np.float64)
        with np.errstate(over="ignore"):  # what is infinite is clipped
            np.ldexp(block, q_point, out=block)
        block += 0.5
        np.floor(block, out=block)
        np.clip(block, smallest, largest, out=block)
        if np.isnan(block).any():
            raise QuantizationError(f"cannot quantize {np.isnan(flat).sum()} NaN values")
        result[begin : begin + _BLOCK] = block
    return result.reshape(values.shape)


def dequantize_tensor(q: Array, q_point: int) -> NDArray[np.float32]:
    """``q * 2**-q_point`` as float32, exact for int16 and int8; infinite beyond float32."""
    with np.errstate(over="ignore"):
        return np.ldexp(np.asarray(q, dtype=np.float32), -q_point)


def round_constant(value: float, q_point: int, element_bytes: int) -> int:
    """A constant at a Q-point; infinities become the type's limits, NaN is a QuantizationError."""
    if math.isnan(value):
        raise QuantizationError(f"the constant {value} has no fixed-point form")
    return int(quantize_tensor(np.array(value), q_point, element_bytes))


def largest_q_point(magnitude: float, element_bytes: int) -> int:
    """The largest f, at most MAX_Q_POINT, with round(magnitude * 2**f) inside the element type.

    ``magnitude`` is positive and finite; f may be negative.
    """
    largest = element_limits(element_bytes)[1]
    f = 8 * element_bytes - 1 - math.frexp(magnitude)[1]
    if math.floor(math.ldexp(magnitude, f) + 0.5) > largest:
        f -= 1
    return min(f, MAX_Q_POINT)


def requantize(
    acc: Array, shift: int | Array, low: int, high: int, element_bytes: int
) -> Array:
    """``clip(saturate(floor((acc + half) >> shift)), low, high)``, half = 2**(shift - 1).

    Round half up (towards plus infinity), then saturation to the element type, then the fused
    activation. A shift <= 0 shifts left and rounds nothing. ``acc`` is int64 of any shape; the
    result has the element type. No intermediate value can overflow. Shifts that differ are an array
    that is broadcast to ``acc``.
    """
    acc = np.asarray(acc, dtype=np.int64)
    smallest, largest = element_limits(element_bytes)
    low, high = max(low, smallest), min(high, largest)
    if isinstance(shift, np.ndarray):
        left = np.minimum(np.maximum(1 - shift, 0), 46)
        if left.any():  # What already leaves the type still does after the shift.
            acc = np.where(left > 0, np.clip(acc, 2 * smallest, 2 * largest), acc) << left
        found = (acc >> np.minimum(np.maximum(shift - 1, 0), 63)) + 1
        found >>= 1
    elif shift > 0:
        # (acc + 2**(s-1)) >> s, written so that no sum can leave 64 bits.
        found = (acc >> min(shift - 1, 63)) + 1
        found >>= 1
    else:
        # What already leaves the type still does after the shift; the rest cannot overflow.
        found = np.clip(acc, smallest, largest) << min(-shift, 46)
    return np.minimum(np.maximum(found, low), high).astype(ELEMENT_TYPE[element_bytes])
