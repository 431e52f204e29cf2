"""Constants of quantized operators: scales, zero points, weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.relay import operands as of

Array = NDArray[Any]


def constant_value(expr: Any) -> Array | None:
    """A constant, through operators that change its type or shape; None for anything else."""
    found = of.constant(expr)
    if found is not None:
        return found
    name = of.op_name(expr)
    if name not in ("cast", "reshape", "squeeze", "expand_dims"):
        return None
    inner = constant_value(expr.args[0])
    if inner is None:
        return None
    if name == "cast":
        return inner.astype(str(expr.attrs.dtype))
    shape = of.static_shape(expr.checked_type)
    return None if shape is None else inner.reshape(shape)


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


def vector(values: Array) -> tuple[int, ...]:
    """The shape that `qnn` operators want of a scale: none, or one axis."""
    return () if values.size == 1 else (values.size,)
