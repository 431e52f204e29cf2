"""Calls of constants alone become constants, without compiling code for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.codegen.row_blocks import contiguous
from tvm_npu.door.dequantized import dequantized
from tvm_npu.door.divisors import check_divisor
from tvm_npu.relax import expressions as of
from tvm_npu.relax.operators import attribute_reader
from tvm_npu.relax.rewriting import replaced

Compute = Callable[[Any, list[Any]], Any]

_DIVIDING = frozenset({"relax.divide", "relax.floor_divide", "relax.mod", "relax.floor_mod"})


def _shape(call: Any) -> tuple[int, ...]:
    shape = of.static_shape(call.ty)
    if shape is None:
        raise ValueError("no static shape")
    return shape


def _axes(call: Any, values: list[Any]) -> Any:
    axes = attribute_reader(call)("axes")
    return np.transpose(values[0], None if axes is None else axes)


def _dequantized(call: Any, values: list[Any]) -> Any:
    integers, steps, zeros = values
    return dequantized(integers, steps, zeros, int(call.attrs.axis))


def _quotient(call: Any, values: list[Any]) -> Any:
    """Of integers the exact one, rounded towards 0 as TVM's code does."""
    left, right = values
    if left.dtype.kind not in "iu":
        return left / right
    remainder = np.fmod(left, right)  # as large as the divisor at most, its sign the dividend's
    return (left - remainder) // right


COMPUTE: Mapping[str, Compute] = {
    "relax.reshape": lambda call, values: values[0].reshape(_shape(call)),
    "relax.expand_dims": lambda call, values: values[0].reshape(_shape(call)),
    "relax.squeeze": lambda call, values: values[0].reshape(_shape(call)),
    "relax.broadcast_to": lambda call, values: np.broadcast_to(values[0], _shape(call)),
    "relax.permute_dims": _axes,
    "relax.astype": lambda call, values: values[0].astype(of.dtype_of(call.ty)),
    "relax.isnan": lambda call, values: np.isnan(values[0]),
    "relax.where": lambda call, values: np.where(*values),
    "relax.add": lambda call, values: values[0] + values[1],
    "relax.subtract": lambda call, values: values[0] - values[1],
    "relax.multiply": lambda call, values: values[0] * values[1],
    "relax.divide": _quotient,
    "relax.negative": lambda call, values: -values[0],
    "relax.dequantize": _dequantized,
    "relax.sqrt": lambda call, values: np.sqrt(values[0]),
}


def folded_for_rules(call: Any, definitions: Mapping[Any, Any]) -> Any:
    """As `folded`, but a matrix that is read the other way round by matrix products alone (what
    frontends make of Gemm) stays as the model holds it: a copy would be as large as all others."""
    _check_division(call)
    if of.is_turned(call):
        return None
    weight = call.args[1] if of.op_name(call) == "relax.matmul" else None
    turned = {
        arg: relax.const(contiguous(of.turned_array(definitions[arg])))
        for arg in relax.analysis.free_vars(call)
        if of.is_turned(definitions.get(arg)) and not (weight is not None and arg.same_as(weight))
    }
    read = replaced(call, turned)
    made = folded(read, definitions) if isinstance(read, of.Call) else read
    return read if made is None and turned else made


def _check_division(call: Any) -> None:
    if of.op_name(call) in _DIVIDING and of.is_constant(call.args[1]):
        name = of.source_of(call)
        operator = of.op_name(call).removeprefix("relax.")
        check_divisor(f"{operator} {name!r}" if name else operator, of.array_of(call.args[1]))


def folded(call: Any, definitions: Mapping[Any, Any]) -> Any:
    """The constant that ``call`` computes; None when it reads something else."""
    compute = COMPUTE.get(of.op_name(call))
    tensors = [arg for arg in call.args if of.is_value(arg)]
    if compute is None or not tensors or not all(map(of.is_constant, tensors)):
        return None
    if of.is_tensor(call) and of.static_shape(call.ty) is None:
        return None
    with np.errstate(all="ignore"):
        values = compute(call, [of.array_of(arg) for arg in tensors])
    dtype = of.dtype_of(call.ty) if of.is_tensor(call) else str(values.dtype)
    return relax.const(contiguous(np.asarray(values, dtype)), dtype)
