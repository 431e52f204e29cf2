"""Values of a quantized model as real numbers that mean the same, expression by expression.

How each operator is written on such values is told by handlers (`relay.qnn_operators`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relay

from tvm_npu.codegen.graph import Halves
from tvm_npu.door.dequantized import dequantized
from tvm_npu.relay import operands as of
from tvm_npu.relay.qnn_arguments import constant_value, vector
from tvm_npu.relay.roundings import Expr, Reals, rounded

ROUNDED = ("int8", "uint8")
"""Types whose roundings machines can do."""


@dataclass(frozen=True)
class Meaning:
    """What an integer tensor stands for: ``real``, which is (integer - ``zero_point``) * ``steps``;
    one step, or one a channel along ``axis``."""

    real: Expr
    steps: Reals
    zero_point: int
    dtype: str
    axis: int = -1

    def is_at(self, steps: Reals, zeros: Reals, axis: int) -> bool:
        """Whether a reader's scale is this one, but for what float32 loses in a product of two."""
        is_zero = bool((zeros == self.zero_point).all())
        is_along = min(steps.size, self.steps.size) == 1 or axis == self.axis
        return is_zero and is_along and np.allclose(steps, self.steps, rtol=1e-5, atol=0)

    def integers(self) -> Expr:
        """The tensor itself."""
        steps = relay.const(self.steps.astype(np.float32).reshape(vector(self.steps)))
        zero_point = relay.const(self.zero_point, "int32")
        return relay.qnn.op.quantize(
            self.real, steps, zero_point, axis=self.axis, out_dtype=self.dtype
        )


Value = Any
"""An expression, a Meaning, or a tuple of these."""


class Rewriting:
    """Values of new expressions by old ones. ``handlers`` by operator; one that cannot say what an
    operator means gives None, and integers stay."""

    def __init__(self, handlers: Mapping[str, Handler], halves: Halves) -> None:
        self.handlers = handlers
        self.halves = halves
        self.memo: dict[Expr, Value] = {}
        self.inputs: dict[tuple[Expr, bytes, int], Expr] = {}

    def run(self, body: Expr) -> Expr:
        for expr in of.post_order(body):
            self.memo[expr] = self._value(expr)
        return as_expression(self.memo[body])

    def _value(self, expr: Expr) -> Value:
        if isinstance(expr, relay.Tuple):
            return tuple(self.memo[field] for field in expr.fields)
        if isinstance(expr, relay.TupleGetItem):
            return self._part(expr)
        if not isinstance(expr, relay.Call):
            return expr
        handler = self.handlers.get(of.op_name(expr))
        made = None if handler is None else handler(self, expr)
        if made is not None:
            return made
        arguments = [as_expression(self.memo[arg]) for arg in expr.args]
        return relay.Call(expr.op, arguments, expr.attrs, expr.type_args, expr.span)

    def _part(self, expr: Expr) -> Value:
        whole = self.memo[expr.tuple_value]
        if isinstance(whole, tuple):
            return whole[expr.index]
        if isinstance(whole, Meaning):
            part = relay.TupleGetItem(whole.real, expr.index, expr.span)
            return Meaning(part, whole.steps, whole.zero_point, whole.dtype)
        return relay.TupleGetItem(whole, expr.index, expr.span)

    def real(self, arg: Expr, scale: Expr, zero_point: Expr, axis: int = -1) -> Expr:
        """The real numbers of an operand of which a reader says the scale, be it another than that
        of whoever made it; a constant is one."""
        known = self.memo[arg]
        steps, zeros = constant_value(scale), constant_value(zero_point)
        axis %= max(len(arg.checked_type.shape), 1)
        if isinstance(known, Meaning):
            if steps is None or zeros is None or known.is_at(steps, zeros, axis):
                return known.real
            known = known.integers()
        values = constant_value(arg)
        if steps is None or zeros is None:
            return relay.qnn.op.dequantize(known, self.memo[scale], self.memo[zero_point], axis)
        if values is not None:
            return relay.const(dequantized(values, steps, zeros, axis))
        key = (arg, steps.tobytes() + zeros.tobytes(), axis)
        if key not in self.inputs:
            read = relay.qnn.op.dequantize(known, self.memo[scale], self.memo[zero_point], axis)
            dtype = str(arg.checked_type.dtype)
            if dtype in ROUNDED and steps.size == zeros.size == 1:
                read = self.spelled(read, steps, int(zeros.flat[0]), dtype, arg.span)
            self.inputs[key] = read
        return self.inputs[key]

    def spelled(self, real: Expr, steps: Reals, zero_point: int, dtype: str, span: Any) -> Expr:
        """``real`` rounded as the model rounds."""
        return rounded(real, steps, zero_point, dtype, span, self.halves)

    def rounded(self, real: Expr, call: Expr, scale: Expr, zero_point: Expr) -> Value:
        """``real`` as the result of ``call``, of its integer type at a scale. None: not a constant
        one."""
        steps, zeros = constant_value(scale), constant_value(zero_point)
        if steps is None or zeros is None or zeros.size != 1:
            return None
        dtype = str(call.checked_type.dtype)
        axis = int(getattr(call.attrs, "axis", -1)) if call.attrs is not None else -1
        axis %= max(len(call.checked_type.shape), 1)
        if dtype in ROUNDED and steps.size == 1:
            real = self.spelled(real, steps, int(zeros.flat[0]), dtype, call.span)
        return Meaning(real, steps, int(zeros.flat[0]), dtype, axis)


Handler = Callable[[Rewriting, Any], Value]
"""What a call means, by what its operands mean."""


def as_expression(value: Value) -> Expr:
    if isinstance(value, Meaning):
        return value.integers()
    if isinstance(value, tuple):
        return relay.Tuple([as_expression(one) for one in value])
    return value
