"""Folding of constants while an ONNX model is read: what TVM does, without compiling it.

TVM 0.19 folds after every operator, walks the whole graph for it, and compiles a program for each
constant expression: a MatMul of rank 4 alone makes it 14 times transposes, slices and joins of
shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay

from tvm_npu.errors import PartitionError
from tvm_npu.relay import operands as of
from tvm_npu.relay.divisors import check_division

Array = NDArray[Any]
PLAIN = (relay.Tuple, relay.TupleGetItem, relay.Constant, relay.Var)
SHAPES = ("shape_of", "ndarray_size")
"""Operators that TVM folds by the type of an operand that is no constant."""

OF_REAL_NUMBERS = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt",
     "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"}
)  # fmt: skip
"""Operators that TVM 0.19 cannot compile for integers; for some LLVM ends the process."""


def _slice(call: Any, x: Array) -> Array | None:
    attrs = call.attrs
    if attrs.slice_mode != "end" or attrs.axes is not None:
        return None
    begins, ends = _numbers(attrs.begin), _numbers(attrs.end)
    steps = _numbers(attrs.strides) or [1] * len(begins)
    steps = steps * len(begins) if len(steps) == 1 else steps
    if min(*begins, *ends, *steps) < 0:
        return None
    return x[tuple(map(slice, begins, ends, steps))]


def _transpose(call: Any, x: Array) -> Array:
    axes = call.attrs.axes
    return np.transpose(x, None if axes is None else _numbers(axes))


NUMPY: dict[str, Callable[..., Array | None]] = {
    "cast": lambda call, x: x.astype(str(call.attrs.dtype)),
    "concatenate": lambda call, *parts: np.concatenate(parts, int(call.attrs.axis)),
    "maximum": lambda call, x, y: np.maximum(x, y),
    "strided_slice": _slice,
    "transpose": _transpose,
}


class QuickFolder:
    """`fold_constant` for expressions that grow: what it has seen once stays as it is."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original
        self._done: dict[Any, Any] = {}

    def __call__(self, expr: Any, mod: Any = None) -> Any:
        if mod is not None:
            return self._original(expr, mod)
        new = self._new_nodes(expr)
        if new is None:
            return self._original(expr)
        for node in new:
            self._done[node] = self._folded(node)
        return self._done[expr]

    def _new_nodes(self, expr: Any) -> list[Any] | None:
        """Operands first; None when there is something else than operators on tensors."""
        order: list[Any] = []
        stack: list[tuple[Any, bool]] = [(expr, False)]
        seen: set[Any] = set()
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
                continue
            if node in self._done or node in seen:
                continue
            seen.add(node)
            if isinstance(node, relay.Call):
                if not isinstance(node.op, tvm.ir.Op) or str(node.op.name) in SHAPES:
                    return None
            elif not isinstance(
                node, relay.Tuple | relay.TupleGetItem | relay.Constant | relay.Var
            ):
                return None
            stack.append((node, True))
            stack += [(child, False) for child in of.children(node)]
        return order

    def _folded(self, node: Any) -> Any:
        children = [self._done[child] for child in of.children(node)]
        kept = all(a.same_as(b) for a, b in zip(children, of.children(node), strict=True))
        if isinstance(node, relay.Tuple):
            return node if kept else relay.Tuple(children, node.span)
        if isinstance(node, relay.TupleGetItem):
            if kept:
                return node
            changed = relay.TupleGetItem(children[0], node.index, node.span)
            return self._original(changed) if isinstance(children[0], relay.Tuple) else changed
        if not isinstance(node, relay.Call):
            return node
        call = node
        if not kept:
            call = relay.Call(node.op, children, node.attrs, node.type_args, node.span)
        check_division(call)
        if not children or not all(map(_is_constant, children)):
            return call
        _check_numbers(call)
        made = _evaluated(call)
        if made is None:
            return self._original(call)
        return relay.Constant(tvm.nd.array(np.ascontiguousarray(made)))


def _is_constant(expr: Any) -> bool:
    if isinstance(expr, relay.Tuple):
        return all(isinstance(item, relay.Constant) for item in expr.fields)
    return isinstance(expr, relay.Constant)


def _check_numbers(call: Any) -> None:
    name = of.op_name(call)
    if name not in OF_REAL_NUMBERS:
        return
    for arg in call.args:
        if not str(arg.data.dtype).startswith(("float", "bfloat")):
            raise PartitionError(
                f"TVM cannot compute {name} of a constant of {arg.data.dtype}; allowed: float "
                "types (a Cast in front of it helps)"
            )


def _evaluated(call: Any) -> Array | None:
    """None where NumPy is not asked."""
    function = NUMPY.get(of.op_name(call))
    if function is None:
        return None
    parts = [
        item.data.numpy()
        for arg in call.args
        for item in (arg.fields if isinstance(arg, relay.Tuple) else [arg])
    ]
    made = function(call, *parts)
    return None if made is None or not made.ndim else made


def _numbers(values: Any) -> list[int]:
    return [int(value) for value in values]
