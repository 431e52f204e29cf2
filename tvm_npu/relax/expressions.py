"""Walking Relax functions: bindings, operators, operands, types, constants, source names.

Two releases of TVM are served: 0.26 has ``relax.Constant`` with its ``data``, 0.27 a
``GenericConst`` with its ``value``; tuples and calls moved from ``relax`` to ``tvm.ir``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from tvm_npu.door.dataflow import values_of

Expr = Any
Array = NDArray[Any]
TensorShape = tuple[int, ...]

Call = getattr(relax, "Call", None) or tvm.ir.Call
Tuple = getattr(relax, "Tuple", None) or tvm.ir.Tuple
TupleGetItem = getattr(relax, "TupleGetItem", None) or tvm.ir.TupleGetItem
Constant = getattr(relax, "Constant", None) or tvm.ir.GenericConst
TensorType = relax.TensorType
TupleType = getattr(relax, "TupleType", None) or tvm.ir.TupleType
Conditional = relax.If


def bindings(function: relax.Function) -> Iterator[Any]:
    """All bindings of a function in order; those inside of conditionals are their own business."""
    for block in function.body.blocks:
        yield from block.bindings


def op_name(expr: Expr) -> str:
    """The operator of a call; "" for anything that is not a call of an operator."""
    if isinstance(expr, Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""


def name_of(var: Any) -> str:
    """Of a variable."""
    return str(getattr(var, "name_hint", None) or var.name)


def is_constant(expr: Expr) -> bool:
    """Is it a tensor that the module holds?"""
    return isinstance(expr, Constant) and isinstance(expr.ty, TensorType)


def array_of(expr: Expr) -> Array:
    """See `values_of`, for a constant."""
    return values_of(expr.data if hasattr(expr, "data") else expr.value)


def is_turned(expr: Expr) -> bool:
    """Is it a constant matrix that is read the other way round?"""
    if op_name(expr) != "relax.permute_dims" or not is_constant(expr.args[0]):
        return False
    axes = plain(expr.attrs.axes)
    return len(extents(expr.args[0].ty)) == 2 and axes in (None, (1, 0))


def turned_array(expr: Expr) -> Array:
    """A view of its values."""
    return array_of(expr.args[0]).T


def is_tensor(expr: Expr) -> bool:
    return isinstance(expr.ty, TensorType)


def is_value(expr: Expr) -> bool:
    """A tensor or a tuple of them; shapes and numbers are attributes of an operator."""
    return isinstance(expr.ty, TensorType | TupleType)


def tensor_types(type_: Any) -> list[Any]:
    """The tensor types in a type, tuples flattened."""
    if isinstance(type_, TupleType):
        return [tensor for item in type_.fields for tensor in tensor_types(item)]
    return [type_] if isinstance(type_, TensorType) else []


def extents(type_: Any) -> tuple[int | str, ...]:
    """Of a tensor type; an extent that is only known at run time is its name or "?"."""
    if type_.shape is None:
        return ("?",) * max(int(type_.ndim), 1)
    values = getattr(type_.shape, "values", None)
    if values is None:
        return ("?",) * max(int(type_.ndim), 1)
    return tuple(int(v) if isinstance(v, tvm.tirx.IntImm) else str(v) for v in values)


def dtype_of(type_: Any) -> str:
    return str(type_.dtype)


def static_shape(type_: Any) -> TensorShape | None:
    """Extents of a tensor type; None when one of them is not known."""
    found = extents(type_)
    known = tuple(extent for extent in found if isinstance(extent, int))
    return known if len(known) == len(found) and type_.ndim != -1 else None


def source_of(expr: Expr) -> str:
    """Name of the source operator (the frontend's span); "" when there is none."""
    span = getattr(expr, "span", None)
    if span is None:
        return ""
    parts = getattr(span, "spans", None)
    found = [span] if parts is None else list(parts)
    names = [str(one.source_name.name) for one in found]
    return "+".join(dict.fromkeys(name for name in names if name))


def plain(value: Any) -> Any:
    """A TVM number, string, shape or array as Python's own."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    inner = getattr(value, "value", None)
    if inner is not None:
        return plain(inner)
    fields = getattr(value, "fields", None)
    values = getattr(value, "values", None) if fields is None else fields
    return tuple(plain(item) for item in (value if values is None else values))
