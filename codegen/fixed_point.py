"""Fixed-point numbers: integers q with real value ``q * 2**-f``, in one or two bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError

Array = NDArray[Any]
ELEMENT_TYPE: dict[int, np.dtype[Any]] = {1: np.dtype(np.int8), 2: np.dtype(np.int16)}

_BLOCK = 1 << 16
"""Elements that are quantized at a time: few enough to stay in a core's cache."""


def element_limits(element_bytes: int) -> tuple[int, int]:
    """Smallest and largest integer of an element type."""
    half = 1 << (8 * element_bytes - 1)
    return -half, half - 1


def quantize_tensor(x: Array, q_point: int, element_bytes: int) -> Array:
    """``saturate(floor(x * 2**q_point + 1/2))`` at the element type; QuantizationError on NaN."""
    values = np.asarray(x)
    flat = np.ascontiguousarray(values).reshape(-1)
    result = np.empty(flat.shape, ELEMENT_TYPE[element_bytes])
    smallest, largest = element_limits(element_bytes)
    for begin in range(0, flat.size, _BLOCK):
        block = flat[begin : begin + _BLOCK].astype(np.float64)
        np.ldexp(block, q_point, out=block)
        block += 0.5
        np.floor(block, out=block)
        np.clip(block, smallest, largest, out=block)
        if np.isnan(block).any():
            raise QuantizationError(f"cannot quantize {np.isnan(flat).sum()} NaN values")
        result[begin : begin + _BLOCK] = block
    return result.reshape(values.shape)


def dequantize_tensor(q: Array, q_point: int) -> NDArray[np.float32]:
    """``q * 2**-q_point`` as float32, exact for int16 and int8."""
    return np.ldexp(np.asarray(q, dtype=np.float32), -q_point)
