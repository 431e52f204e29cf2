"""What TVM's frontends write in several operators, in the words that rules know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import pi, prod, sqrt
from typing import Any

import numpy as np
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


def _no_dropout(call: Any, definitions: Definitions) -> Any:
    """before: ``dropout(x)``    after: ``(x, ones_like(x))``: inference drops nothing."""
    (data,) = call.args
    return of.Tuple([data, relax.op.ones_like(data)])


def _same_shape(call: Any, definitions: Definitions) -> Any:
    """``broadcast_to`` and ``reshape`` of x to the shape of x are x."""
    (data, *_) = call.args
    shape = of.static_shape(call.ty)
    same = shape is not None and shape == of.static_shape(data.ty)
    return data if same else None


def _softmax_of_rows(call: Any, definitions: Definitions) -> Any:
    """before: ``reshape(softmax(reshape(x [N, H, W], [N H, W])), [N, H, W])``
    after: ``softmax(x)``

    The ONNX frontend's Softmax of operator sets before 13, over the last axis.
    """

    def made_by(expr: Any, name: str) -> Any:
        found: Any = definitions.get(expr) if isinstance(expr, relax.Var) else None
        return found if of.op_name(found) == name else None

    softmax = made_by(call.args[0], "relax.nn.softmax")
    rows = None if softmax is None else made_by(softmax.args[0], "relax.reshape")
    if rows is None:
        return None
    data = rows.args[0]
    shape, flat = of.static_shape(data.ty), of.static_shape(rows.ty)
    if shape is None or not flat or shape != of.static_shape(call.ty) or shape[-1:] != flat[-1:]:
        return None
    last = attribute_reader(softmax)("axis") in (-1, len(flat) - 1)
    return relax.op.nn.softmax(data, axis=-1) if last else None


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


def _prelu(call: Any, definitions: Definitions) -> Any:
    """before: ``where(greater(x, 0), x, multiply(slopes [1, C, 1, 1], x))``
    after: ``prelu(x, slopes [C], axis=1)``

    What is left of `torch.export`'s PReLU behind its decompositions.
    """
    condition, data, other = call.args
    above: Any = definitions.get(condition) if isinstance(condition, relax.Var) else None
    product: Any = definitions.get(other) if isinstance(other, relax.Var) else None
    if of.op_name(above) != "relax.greater" or of.op_name(product) != "relax.multiply":
        return None
    slopes, *rest = sorted(product.args, key=of.is_constant, reverse=True)
    if not of.is_constant(slopes) or not all(one.same_as(data) for one in (*rest, above.args[0])):
        return None
    shape, channels = of.static_shape(data.ty), of.array_of(slopes)
    if _number(above.args[1]) != 0 or shape is None or len(shape) < 2:
        return None
    if channels.shape not in ((1, shape[1], *(1 for _ in shape[2:])), (1,) * len(shape)):
        return None
    values = np.ascontiguousarray(np.broadcast_to(channels.reshape(-1), shape[1]))
    return relax.op.nn.prelu(data, relax.const(values, str(values.dtype)), 1)


def _gelu(call: Any, definitions: Definitions) -> Any:
    """before: ``gelu(x)``    after: ``x * (0.5 + 0.5 * erf(x / sqrt(2)))``"""
    (data,) = call.args
    number = _numbers_like(data)
    gate = relax.op.multiply(relax.op.erf(relax.op.multiply(data, number(sqrt(0.5)))), number(0.5))
    return relax.op.multiply(data, relax.op.add(gate, number(0.5)))


def _gelu_tanh(call: Any, definitions: Definitions) -> Any:
    """before: ``gelu_tanh(x)``
    after: ``x * (0.5 + 0.5 * tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))``"""
    (data,) = call.args
    number = _numbers_like(data)
    cube = relax.op.multiply(relax.op.multiply(data, data), data)
    inner = relax.op.add(data, relax.op.multiply(cube, number(0.044715)))
    bent = relax.op.tanh(relax.op.multiply(inner, number(sqrt(2 / pi))))
    gate = relax.op.add(relax.op.multiply(bent, number(0.5)), number(0.5))
    return relax.op.multiply(data, gate)


def _numbers_like(data: Any) -> Callable[[float], Any]:
    return lambda value: relax.const(value, of.dtype_of(data.ty))


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
    if shape is None or result is None or len(shape) < 3:
        return None
    if not of.is_constant(weight) and not of.is_turned(definitions.get(weight)):
        return None
    if len(of.extents(weight.ty)) != 2:
        return None
    rows = relax.op.reshape(data, (prod(shape[:-1]), shape[-1]))
    return relax.op.reshape(relax.op.matmul(rows, weight), result)


_REWRITES: Mapping[str, tuple[Callable[[Any, Definitions], Any], ...]] = {
    "relax.broadcast_to": (_same_shape,),
    "relax.reshape": (_same_shape, _softmax_of_rows),
    "relax.sum": (_joined(relax.op.add),),
    "relax.max": (_joined(relax.op.maximum),),
    "relax.min": (_joined(relax.op.minimum),),
    "relax.minimum": (_clip,),
    "relax.nn.dropout": (_no_dropout,),
    "relax.nn.gelu": (_gelu,),
    "relax.nn.gelu_tanh": (_gelu_tanh,),
    "relax.where": (_prelu,),
    "relax.matmul": (_flat_rows,),
}
