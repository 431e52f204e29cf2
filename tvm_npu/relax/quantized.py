"""Quantized models (QDQ) as real numbers that are rounded between layers, for rules to read.

    before: quantize(x) -> q -> dequantize -> conv2d
    after:  divide(x, s) -> clip -> round -> multiply(s) -> conv2d

Integers are left where the model has them as inputs and outputs, in `dequantize` and `quantize`.

`codegen.passes.given_scales` reads the scales out of that, as for Relay's door. The clip stands in
front of the round: halves go to even, as ONNX says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.relax import expressions as of
from tvm_npu.relax.rewriting import with_arguments

Expr = Any
Definitions = Mapping[Any, Any]
QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
ROUNDED = ("int8", "uint8")
"""Types whose roundings machines can do."""


def is_quantized(function: relax.Function) -> bool:
    return any(of.op_name(one.value) in (QUANTIZE, DEQUANTIZE) for one in of.bindings(function))


def rounded_numbers(call: Any, definitions: Definitions) -> Any:
    """Integers of 8 bits are made of rounded numbers, and what reads those of others rounds."""
    name = of.op_name(call)
    if name not in (QUANTIZE, DEQUANTIZE):
        return None
    data, scale, zero = call.args
    if name == QUANTIZE:
        found = _rounded(data, scale, zero, of.dtype_of(call.ty))
        return None if found is None else with_arguments(call, [found, scale, zero])
    if of.op_name(definitions.get(data)) == QUANTIZE:
        return None
    return _rounded(call, scale, zero, of.dtype_of(data.ty))


def without_integers(call: Any, definitions: Definitions) -> Any:
    """before: ``dequantize(quantize(x))`` at one scale    after: ``x``, which is rounded"""
    if of.op_name(call) != DEQUANTIZE:
        return None
    made: Any = definitions.get(call.args[0])
    if of.op_name(made) != QUANTIZE or of.dtype_of(made.ty) not in ROUNDED:
        return None
    ours, theirs = call.args[1:], made.args[1:]
    if not all(map(of.is_constant, (*ours, *theirs))):
        return None
    same = all(
        np.array_equal(of.array_of(a), of.array_of(b)) for a, b in zip(ours, theirs, strict=True)
    )
    is_whole = all(of.array_of(one).size == 1 for one in ours)
    return made.args[0] if same and is_whole else None


def _rounded(real: Expr, scale: Expr, zero: Expr, dtype: str) -> Expr | None:
    """``real`` rounded to a step, within the integers of a type; None where that is no constant."""
    if dtype not in ROUNDED or not of.is_constant(scale) or not of.is_constant(zero):
        return None
    steps, zeros = of.array_of(scale), of.array_of(zero)
    if steps.size != 1 or zeros.size != 1:
        return None
    limits, zero_point = np.iinfo(dtype), int(zeros.flat[0])
    step = relax.const(np.float32(steps.flat[0]))
    low, high = float(limits.min - zero_point), float(limits.max - zero_point)
    inside = relax.op.clip(relax.op.divide(real, step), low, high)
    return relax.op.multiply(relax.op.round(inside), step)
