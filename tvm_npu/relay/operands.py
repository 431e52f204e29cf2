"""Walking Relay expressions: operators, operands, types, constants, source names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relay

from tvm_npu.door.dataflow import values_of

Expr = Any
Array = NDArray[Any]
TensorShape = tuple[int, ...]


def op_name(expr: Expr) -> str:
    """The operator of a call; "" for anything that is not a call of an operator."""
    if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
        return str(expr.op.name)
    return ""


def children(expr: Expr) -> tuple[Expr, ...]:
    """Operands of a dataflow node. Functions, conditionals and bindings are leaves."""
    if isinstance(expr, relay.Call):
        return tuple(expr.args)
    if isinstance(expr, relay.Tuple):
        return tuple(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return (expr.tuple_value,)
    return ()


def post_order(root: Expr) -> Iterator[Expr]:
    """Dataflow nodes below ``root``, operands first, each once; needs no recursion."""
    seen: set[Expr] = {root}
    stack: list[tuple[Expr, Iterator[Expr]]] = [(root, iter(children(root)))]
    while stack:
        expr, rest = stack[-1]
        for child in rest:
            if child not in seen:
                seen.add(child)
                stack.append((child, iter(children(child))))
                break
        else:
            stack.pop()
            yield expr


def _span_names(span: Any) -> list[str]:
    if isinstance(span, relay.Span):
        return [str(span.source_name.name)]
    parts = getattr(span, "spans", None)
    return [name for part in parts for name in _span_names(part)] if parts is not None else []


def source_of(expr: Expr) -> str:
    """Name of the source operator (the frontend's span); "" when no pass kept it."""
    names = [name for name in _span_names(expr.span) if name] if expr.span is not None else []
    return "+".join(dict.fromkeys(names))


def is_tensor(expr: Expr) -> bool:
    return isinstance(expr.checked_type, relay.TensorType)


def static_shape(type_: Any) -> TensorShape | None:
    """Extents of a tensor type; None when one of them is not known."""
    if not all(isinstance(extent, tvm.tir.IntImm) for extent in type_.shape):
        return None
    return tuple(int(extent) for extent in type_.shape)


def shape_of(expr: Expr) -> TensorShape:
    """Shape of a tensor whose rules have been checked."""
    shape = static_shape(expr.checked_type)
    if shape is None:
        raise ValueError(f"{expr.checked_type} has no static shape")
    return shape


def tensor_types(type_: Any) -> list[Any]:
    """The tensor types in a type, tuples flattened."""
    if isinstance(type_, relay.TupleType):
        return [tensor for item in type_.fields for tensor in tensor_types(item)]
    return [type_] if isinstance(type_, relay.TensorType) else []


def constant(expr: Expr) -> Array | None:
    return array_of(expr) if isinstance(expr, relay.Constant) else None


def array_of(expr: relay.Constant) -> Array:
    """See `values_of`, for a constant."""
    return values_of(expr.data)
