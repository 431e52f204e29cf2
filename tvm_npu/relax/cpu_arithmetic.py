"""Float operators on the CPU, written so that they give the bits that Relay's TVM gives.

Both TVMs make the same loops of the same operators, but Relay's simplifiers turn quotients into
products: of a constant, which is inverted when the model is compiled, and of a square root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.relax import expressions as of
from tvm_npu.relax.operators import attribute_reader
from tvm_npu.relax.rewriting import stamped

Definitions = Mapping[Any, Any]


def as_in_relay(call: Any, definitions: Definitions) -> Any:
    """What stands for a call that stays on the CPU, its inner calls nested; often itself.
    ``definitions``: what variables are bound to that stay there, too."""
    rewrite = _REWRITES.get(of.op_name(call))
    if rewrite is None or not of.is_tensor(call) or of.dtype_of(call.ty) != "float32":
        return call
    found = rewrite(call, definitions)
    return call if found is None else stamped(found, call.span)


def _mean(call: Any, definitions: Definitions) -> Any:
    """before: ``mean(x)``    after: ``sum(x) * (1 / n)``"""
    (data,) = call.args
    read = attribute_reader(call)
    axes, shape = read("axis"), of.static_shape(data.ty)
    count = 0 if shape is None else prod(shape if axes is None else (shape[one] for one in axes))
    if count == 0:
        return None
    return relax.op.multiply(relax.op.sum(data, axes, bool(read("keepdims"))), _number(1.0 / count))


def _quotient(call: Any, definitions: Definitions) -> Any:
    """before: ``x / c``          after: ``x * (1 / c)``, where c is one number
    before: ``x / sqrt(y)``    after: ``x * rsqrt(y)``"""
    data, divisor = call.args
    if of.is_constant(divisor) and of.static_shape(divisor.ty) == ():
        value = float(of.array_of(divisor))
        return None if value == 0 else relax.op.multiply(data, _number(1.0 / value))
    made: Any = definitions.get(divisor) if isinstance(divisor, relax.Var) else None
    if of.op_name(made) != "relax.sqrt":
        return None
    return relax.op.multiply(data, relax.op.rsqrt(made.args[0]))


def _number(value: float) -> Any:
    return relax.const(np.float32(value), "float32")


_REWRITES: Mapping[str, Callable[[Any, Definitions], Any]] = {
    "relax.mean": _mean,
    "relax.divide": _quotient,
}
