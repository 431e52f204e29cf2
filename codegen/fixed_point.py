"""Fixed-point numbers: integers q with real value ``q * 2**-f``, in one or two bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError

Array = NDArray[Any]
ELEMENT_TYPE: dict[int, np.dtype[Any]] = {1: np.dtype(np.int8), 2: np.dtype(np.int16)}


def element_limits(element_bytes: int) -> tuple[int, int]:
    """Smallest and largest integer of an element type."""
    half = 1 << (8 * element_bytes - 1)
    return -half, half - 1


def quantize_tensor(x: Array, q_point: int, element_bytes: int) -> Array:
    """``saturate(floor(x * 2**q_point + 1/2))`` at the element type; QuantizationError on NaN."""
    values = np.asarray(x, dtype=np.float64)
    if np.isnan(values).any():
        raise QuantizationError(f"cannot quantize {np.isnan(values).sum()} NaN values")
    smallest, largest = element_limits(element_bytes)
    scaled = np.floor(np.ldexp(values, q_point) + 0.5)
    return np.clip(scaled, smallest, largest).astype(ELEMENT_TYPE[element_bytes])


def dequantize_tensor(q: Array, q_point: int) -> NDArray[np.float32]:
    """``q * 2**-q_point`` as float32, exact for int16 and int8."""
    return np.ldexp(np.asarray(q, dtype=np.float32), -q_point)
