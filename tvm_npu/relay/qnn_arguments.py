"""Constants of quantized operators: scales, zero points, weights."""

from __future__ import annotations

from typing import Any

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


def vector(values: Array) -> tuple[int, ...]:
    """The shape that `qnn` operators want of a scale: none, or one axis."""
    return () if values.size == 1 else (values.size,)
