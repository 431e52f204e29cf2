"""Reading Relay calls: shapes, constants, windows, names. Shared by the rules and the importer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay

Expr = Any
Array = NDArray[Any]
TensorShape = tuple[int, ...]

MULTI_OUTPUT = frozenset({"nn.batch_norm", "nn.dropout", "split"})
"""Operators whose result is a tuple."""


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
    return expr.data.numpy() if isinstance(expr, relay.Constant) else None


def data_operands(call: relay.Call) -> tuple[Expr, ...]:
    """The operands that are tensors at run time: tuples flattened, constants left out."""
    found: list[Expr] = []
    for arg in call.args:
        fields = arg.fields if isinstance(arg, relay.Tuple) else [arg]
        found += [field for field in fields if not isinstance(field, relay.Constant)]
    return tuple(found)


def integers(values: Any) -> tuple[int, ...]:
    if values is None:
        return ()
    if isinstance(values, int | tvm.tir.IntImm):
        return (int(values),)
    return tuple(int(value) for value in values)


def pair(values: Any) -> tuple[int, int]:
    found = integers(values)
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])


def padding_of(values: Any) -> tuple[int, int, int, int]:
    """TVM's one, two or four padding amounts as (top, left, bottom, right)."""
    found = integers(values)
    if len(found) == 4:
        return (found[0], found[1], found[2], found[3])
    vertical, horizontal = pair(values)
    return (vertical, horizontal, vertical, horizontal)


def normalized_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def channel_vector(values: Array, shape: TensorShape) -> NDArray[np.float32] | None:
    """A constant that broadcasts against ``shape`` as one value per channel, [C].

    None when it widens the shape or differs inside a channel or between images.
    """
    if values.ndim > len(shape):
        if any(extent != 1 for extent in values.shape[: values.ndim - len(shape)]):
            return None
        values = values.reshape(values.shape[values.ndim - len(shape) :])
    aligned = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(have not in (1, want) for have, want in zip(aligned.shape, shape, strict=True)):
        return None
    for axis in range(len(shape)):
        if axis != 1 and aligned.shape[axis] > 1:
            first = np.take(aligned, [0], axis=axis)
            if not np.array_equal(np.broadcast_to(first, aligned.shape), aligned):
                return None
            aligned = first
    return np.ascontiguousarray(np.broadcast_to(aligned.reshape(-1), shape[1]), dtype=np.float32)


def pool_windows(
    call: relay.Call,
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """(kernel, stride, padding) of a pooling call, with what ceil_mode adds at the end.

    Relay's ceil_mode rounds the output extent up; the padding at the bottom and right is widened
    so that every window lies inside the padded tensor.
    """
    _, _, rows, columns = shape_of(call.args[0])
    name = op_name(call)
    if name not in ("nn.max_pool2d", "nn.avg_pool2d"):
        return (rows, columns), (1, 1), (0, 0, 0, 0)
    kernel, stride = pair(call.attrs.pool_size), pair(call.attrs.strides)
    top, left, bottom, right = padding_of(call.attrs.padding)
    _, _, out_rows, out_columns = shape_of(call)
    need_rows = (out_rows - 1) * stride[0] + kernel[0] - rows - top
    need_columns = (out_columns - 1) * stride[1] + kernel[1] - columns - left
    return kernel, stride, (top, left, max(bottom, need_rows), max(right, need_columns))


def slice_bounds(call: relay.Call) -> tuple[tuple[int, int, int], ...]:
    """(begin, end, step) of a strided_slice on every axis, clamped; step keeps its sign."""
    shape = shape_of(call.args[0])
    begins, ends = integers(call.attrs.begin), integers(call.attrs.end)
    steps = integers(call.attrs.strides)
    axes = integers(call.attrs.axes) or tuple(range(len(begins)))
    bounds = [(0, extent, 1) for extent in shape]
    for position, raw_axis in enumerate(axes):
        axis = normalized_axis(raw_axis, len(shape))
        extent, begin = shape[axis], begins[position]
        begin = begin + extent if begin < 0 else begin
        if call.attrs.slice_mode == "size":
            size = ends[position]
            step, end = 1, extent if size < 0 else begin + size
        else:
            step = steps[position] if position < len(steps) else (steps[0] if steps else 1)
            end = ends[position] + extent if ends[position] < 0 else ends[position]
        bounds[axis] = (min(max(begin, 0), extent), min(max(end, 0), extent), step)
    return tuple(bounds)


def split_sections(call: relay.Call) -> tuple[int, ...]:
    """First index of every part of a split along its axis."""
    shape = shape_of(call.args[0])
    extent = shape[normalized_axis(int(call.attrs.axis), len(shape))]
    sections = call.attrs.indices_or_sections
    if isinstance(sections, int | tvm.tir.IntImm):
        return tuple(range(0, extent, extent // int(sections)))
    return (0, *integers(sections))
