"""The real numbers that constants of quantized models mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def dequantized(values: Array, steps: Array, zeros: Array, axis: int) -> NDArray[np.float32]:
    """The real numbers of integers; steps are one, or one a channel of ``axis``. Those of a
    depthwise kernel count its channels and multipliers together."""
    shape = [1] * values.ndim
    size = max(steps.size, zeros.size)
    if size > 1 and values.shape[axis] == size:
        shape[axis] = size
    elif size > 1:
        following = axis + 1 if axis + 1 < values.ndim else axis - 1
        shape[min(axis, following)] = values.shape[min(axis, following)]
        shape[max(axis, following)] = values.shape[max(axis, following)]
    wide = values.astype(np.float64) - _spread(zeros, shape)
    return (wide * _spread(steps, shape).astype(np.float32)).astype(np.float32)


def _spread(one: Array, shape: list[int]) -> Array:
    return one.reshape(shape) if one.size > 1 else one.reshape(-1)[:1].astype(np.float64)
