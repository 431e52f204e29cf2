"""What TVM's frontends write in several operators, in the words that rules know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod
from typing import Any

from tvm import relax

from tvm_npu.relax import expressions as of
from tvm_npu.relax.operators import attribute_reader

Definitions = Mapping[Any, Any]


def plain_spelling(call: Any, definitions: Definitions) -> Any:
    """What stands for a call; None to keep it."""
    for rewrite in _REWRITES.get(of.op_name(call), ()):
        found = rewrite(call, definitions)
        if found is not None:
            return found
    return None


def _no_broadcast(call: Any, definitions: Definitions) -> Any:
    """``broadcast_to(x, the shape of x)`` is x."""
    (data, *_) = call.args
    shape = of.static_shape(call.ty)
    same = shape is not None and shape == of.static_shape(data.ty)
    return data if same else None


def _joined(operator: Callable[[Any, Any], Any]) -> Callable[[Any, Definitions], Any]:
    """before: ``sum(stack([a, b, c], axis=0), axis=0)``    after: ``add(add(a, b), c)``

    The ONNX frontend's Sum, Max and Min of several tensors.
    """

    def rewrite(call: Any, definitions: Definitions) -> Any:
        stack: Any = definitions.get(call.args[0]) if isinstance(call.args[0], relax.Var) else None
        if of.op_name(stack) != "relax.stack" or not isinstance(stack.args[0], of.Tuple):
            return None
        read, inner = attribute_reader(call), attribute_reader(stack)
        if read("axis") not in (0, (0,)) or read("keepdims") or inner("axis") != 0:
            return None
        return reduce(operator, stack.args[0].fields)

    return rewrite


def _clip(call: Any, definitions: Definitions) -> Any:
    """before: ``minimum(maximum(x, low), high)``    after: ``clip(x, low, high)``"""
    data, high = call.args
    inner: Any = definitions.get(data) if isinstance(data, relax.Var) else None
    if of.op_name(inner) != "relax.maximum":
        return None
    low, high = _number(inner.args[1]), _number(high)
    if low is None or high is None or not low <= high:
        return None
    return relax.op.clip(inner.args[0], low, high)


def _number(expr: Any) -> float | None:
    """The one number of a constant."""
    if not of.is_constant(expr):
        return None
    values = of.array_of(expr)
    return float(values.item()) if values.size == 1 else None


def _flat_rows(call: Any, definitions: Definitions) -> Any:
    """before: ``matmul(x [N, H, W, K], w [K, M])``    after: ``reshape(matmul(x [N H W, K], w))``

    As Relay's frontend writes a fully connected layer over tokens or pixels.
    """
    data, weight = call.args
    shape, result = of.static_shape(data.ty), of.static_shape(call.ty)
    if shape is None or result is None or len(shape) < 3 or not of.is_constant(weight):
        return None
    if len(of.extents(weight.ty)) != 2:
        return None
    rows = relax.op.reshape(data, (prod(shape[:-1]), shape[-1]))
    return relax.op.reshape(relax.op.matmul(rows, weight), result)


_REWRITES: Mapping[str, tuple[Callable[[Any, Definitions], Any], ...]] = {
    "relax.broadcast_to": (_no_broadcast,),
    "relax.sum": (_joined(relax.op.add),),
    "relax.max": (_joined(relax.op.maximum),),
    "relax.min": (_joined(relax.op.minimum),),
    "relax.minimum": (_clip,),
    "relax.matmul": (_flat_rows,),
}
