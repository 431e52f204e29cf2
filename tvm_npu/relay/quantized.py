"""Quantized models as real numbers that are rounded between layers, for rules to read.

    before: qnn.conv2d(q, w) -> bias_add -> qnn.requantize -> q'
    after:  conv2d(x, w s_w) -> bias_add -> divide(s) -> round -> clip -> multiply(s) -> x'

Models of QuantizeLinear and DequantizeLinear alone (QDQ) round halves to even: in theirs the clip
stands in front of the round, which gives the same values.
Integers of 8 bits become the real numbers that they mean, scales the operators that
`codegen.passes.given_scales` reads. What is left on the CPU computes the same to within one step.
Integers appear only where the model has them as inputs and outputs, and around operators that this
module does not know, in `qnn.dequantize` and `qnn.quantize`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relay

from tvm_npu.codegen.graph import Halves
from tvm_npu.door.dequantized import dequantized
from tvm_npu.relay import operands as of
from tvm_npu.relay.qnn_arguments import constant_value, vector

Expr = Any
Reals = NDArray[np.float64]
ROUNDED = ("int8", "uint8")
"""Types whose roundings machines can do."""
QDQ = {"qnn.quantize", "qnn.dequantize"}


@dataclass(frozen=True)
class Meaning:
    """What an integer tensor stands for: ``real``, which is (integer - ``zero_point``) * ``steps``;
    one step, or one a channel along ``axis``."""

    real: Expr
    steps: Reals
    zero_point: int
    dtype: str
    axis: int = -1

    def is_at(self, steps: Reals, zeros: Reals) -> bool:
        """Whether a reader's scale is this one, but for what float32 loses in a product of two."""
        is_zero = bool((zeros == self.zero_point).all())
        return is_zero and np.allclose(steps, self.steps, rtol=1e-5, atol=0)

    def integers(self) -> Expr:
        """The tensor itself."""
        steps = relay.const(self.steps.astype(np.float32).reshape(vector(self.steps)))
        zero_point = relay.const(self.zero_point, "int32")
        return relay.qnn.op.quantize(
            self.real, steps, zero_point, axis=self.axis, out_dtype=self.dtype
        )


Value = Any
"""An expression, a Meaning, or a tuple of these."""


def with_real_numbers(function: relay.Function) -> relay.Function:
    """``function``, with checked types, without the integers inside."""
    operators = {of.op_name(expr) for expr in of.post_order(function.body)}
    integer = {name for name in operators if name.startswith("qnn.")}
    rewriting = _Rewriting("even" if integer <= QDQ else "up")
    body = rewriting.run(function.body)
    return relay.Function(
        function.params, body, None, function.type_params, function.attrs, function.span
    )


class _Rewriting:
    """Values of new expressions by old ones."""

    def __init__(self, halves: Halves) -> None:
        self.halves = halves
        self.memo: dict[Expr, Value] = {}
        self.inputs: dict[tuple[Expr, bytes], Expr] = {}

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
        handler = HANDLERS.get(of.op_name(expr))
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
        if isinstance(known, Meaning):
            if steps is None or zeros is None or known.is_at(steps, zeros):
                return known.real
            known = known.integers()
        values = constant_value(arg)
        if steps is None or zeros is None:
            return relay.qnn.op.dequantize(known, self.memo[scale], self.memo[zero_point], axis)
        if values is not None:
            return relay.const(dequantized(values, steps, zeros, axis))
        key = (arg, steps.tobytes() + zeros.tobytes())
        if key not in self.inputs:
            read = relay.qnn.op.dequantize(known, self.memo[scale], self.memo[zero_point], axis)
            dtype = str(arg.checked_type.dtype)
            self.inputs[key] = self.spelled(read, steps, int(zeros.flat[0]), dtype, arg.span)
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
        if dtype in ROUNDED and steps.size == 1:
            real = self.spelled(real, steps, int(zeros.flat[0]), dtype, call.span)
        return Meaning(real, steps, int(zeros.flat[0]), dtype, axis)


def as_expression(value: Value) -> Expr:
    if isinstance(value, Meaning):
        return value.integers()
    if isinstance(value, tuple):
        return relay.Tuple([as_expression(one) for one in value])
    return value


def spanned(call: relay.Call, span: Any) -> relay.Call:
    return relay.Call(call.op, call.args, call.attrs, call.type_args, span)


def rounded(
    real: Expr, steps: Reals, zero_point: int, dtype: str, span: Any, halves: Halves
) -> Expr:
    """``real`` rounded to a step, within the integers of a type."""
    low, high = np.iinfo(dtype).min - zero_point, np.iinfo(dtype).max - zero_point
    step = relay.const(np.float32(steps.flat[0]))
    found = spanned(relay.divide(real, step), span)
    if halves == "up":
        found = spanned(relay.round(found), span)
    found = spanned(relay.clip(found, float(low), float(high)), span)
    if halves == "even":
        found = spanned(relay.round(found), span)
    return spanned(relay.multiply(found, step), span)


ROUNDINGS = ("multiply", "clip", "round", "divide"), ("multiply", "round", "clip", "divide")
"""What `rounded` makes, the last first."""


def layouts_apart(call: relay.Call, args: list[Expr]) -> Expr:
    """For `normalize.rewrite_calls`: a layout_transform goes in front of a rounding, so that the
    region behind it begins with the rounding; one that regions may end with becomes an operator
    that they know.

    before: x -> rounding -> layout_transform(NHWC to NCHW) -> y
    after:  x -> layout_transform(NHWC to NCHW) -> rounding -> y
    """
    if of.op_name(call) != "layout_transform":
        return None
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        return None
    if target == "NCHW":
        return _in_front(call, args[0])
    shape, made = of.static_shape(call.args[0].checked_type), of.static_shape(call.checked_type)
    if shape is not None and made is not None and sum(extent > 1 for extent in shape[1:]) <= 1:
        return spanned(relay.reshape(args[0], made), call.span)
    return spanned(relay.transpose(args[0], [source.index(one) for one in target]), call.span)


def _in_front(call: relay.Call, rounded_: Expr) -> Expr:
    chain: list[Any] = []
    for _ in ROUNDINGS[0]:
        if not isinstance(rounded_, relay.Call) or not rounded_.args:
            return None
        chain.append(rounded_)
        rounded_ = rounded_.args[0]
    if tuple(of.op_name(one) for one in chain) not in ROUNDINGS:
        return None
    made = relay.Call(call.op, [rounded_], call.attrs, None, call.span)
    for one in reversed(chain):
        made = relay.Call(one.op, [made, *one.args[1:]], one.attrs, None, one.span)
    return made


Handler = Callable[[_Rewriting, Any], Value]


def _product(b: _Rewriting, call: Expr) -> Value:
    """Convolutions and fully connected layers: accumulators with the product of the steps."""
    data, weight, zero_in, zero_w, scale_in, scale_w = call.args
    name, attrs = of.op_name(call), call.attrs
    axis = 0 if name == "qnn.dense" else _filter_axis(name, attrs)
    steps_in, steps_w = constant_value(scale_in), constant_value(scale_w)
    if steps_in is None or steps_w is None:
        return None
    real = b.real(data, scale_in, zero_in)
    weights = b.real(weight, scale_w, zero_w, axis)
    if name == "qnn.dense":
        made = relay.nn.dense(real, weights, units=attrs.units)
    elif name == "qnn.batch_matmul":
        made = relay.nn.batch_matmul(real, weights)
    else:
        make = relay.nn.conv2d if name == "qnn.conv2d" else relay.nn.conv2d_transpose
        more = {}
        if name != "qnn.conv2d":
            more["output_padding"] = attrs.output_padding
        made = make(
            real, weights, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
            groups=attrs.groups, channels=attrs.channels, kernel_size=attrs.kernel_size,
            data_layout=attrs.data_layout, kernel_layout=attrs.kernel_layout,
            out_layout=attrs.out_layout, **more,
        )  # fmt: skip
    return Meaning(spanned(made, call.span), steps_in.flat[0] * steps_w, 0, "int32", 1)


def _filter_axis(name: str, attrs: Any) -> int:
    return str(attrs.kernel_layout).index("O") if name.startswith("qnn.conv2d") else -1


def _bias(b: _Rewriting, call: Expr) -> Value:
    """A constant that is added to accumulators."""
    whole, values = b.memo[call.args[0]], constant_value(call.args[1])
    if not isinstance(whole, Meaning) or whole.dtype != "int32" or values is None:
        return None
    steps = whole.steps if whole.steps.size == 1 else whole.steps.reshape(-1)
    if steps.size > 1 and values.size != steps.size:
        return None
    bias = (values.reshape(-1) * steps.reshape(-1)).reshape(values.shape).astype(np.float32)
    made = relay.Call(call.op, [whole.real, relay.const(bias)], call.attrs, None, call.span)
    return Meaning(made, whole.steps, whole.zero_point, whole.dtype, whole.axis)


def _requantize(b: _Rewriting, call: Expr) -> Value:
    data, scale, zero_point, out_scale, out_zero = call.args
    real = b.real(data, scale, zero_point, int(call.attrs.axis))
    return b.rounded(real, call, out_scale, out_zero)


def _quantize(b: _Rewriting, call: Expr) -> Value:
    values = constant_value(call)
    return values if values is not None else b.rounded(b.memo[call.args[0]], call, *call.args[1:])


def _dequantize(b: _Rewriting, call: Expr) -> Value:
    data, scale, zero_point = call.args
    return b.real(data, scale, zero_point, int(call.attrs.axis))


def _joined(b: _Rewriting, call: Expr) -> Value:
    """Sums, differences and products of two tensors."""
    left, right, scale_l, zero_l, scale_r, zero_r, scale, zero_point = call.args
    make = {"qnn.add": relay.add, "qnn.subtract": relay.subtract, "qnn.mul": relay.multiply}
    both = b.real(left, scale_l, zero_l), b.real(right, scale_r, zero_r)
    made = spanned(make[of.op_name(call)](*both), call.span)
    return b.rounded(made, call, scale, zero_point)


def _concatenate(b: _Rewriting, call: Expr) -> Value:
    data, scales, zeros, scale, zero_point = call.args
    fields = [
        b.real(one, step, zero)
        for one, step, zero in zip(data.fields, scales.fields, zeros.fields, strict=True)
    ]
    made = relay.concatenate(relay.Tuple(fields), int(call.attrs.axis))
    return b.rounded(spanned(made, call.span), call, scale, zero_point)


def _function(make: Callable[[Expr], Expr]) -> Handler:
    """A function of every element."""

    def handler(b: _Rewriting, call: Expr) -> Value:
        data, scale, zero_point, out_scale, out_zero = call.args
        made = spanned(make(b.real(data, scale, zero_point)), call.span)
        return b.rounded(made, call, out_scale, out_zero)

    return handler


def _leaky_relu(b: _Rewriting, call: Expr) -> Value:
    def make(real: Expr) -> Expr:
        return relay.nn.leaky_relu(real, float(call.attrs.alpha))

    return _function(make)(b, call)


def _average(b: _Rewriting, call: Expr) -> Value:
    data, scale, zero_point, out_scale, out_zero = call.args
    plain = relay.op.get("nn.avg_pool2d")
    made = relay.Call(plain, [b.real(data, scale, zero_point)], call.attrs, None, call.span)
    return b.rounded(made, call, out_scale, out_zero)


def _passed(b: _Rewriting, call: Expr) -> Value:
    """What moves and selects numbers, or takes their means, does so with real ones."""
    first = b.memo[call.args[0]]
    parts = first if isinstance(first, tuple) else (first,)
    if not all(isinstance(one, Meaning) for one in parts):
        return None
    scales = {(one.steps.tobytes(), one.zero_point, one.dtype) for one in parts}
    if len(scales) > 1 or parts[0].steps.size > 1:
        return None
    one = parts[0]
    real = relay.Tuple([p.real for p in parts]) if isinstance(first, tuple) else one.real
    rest = [as_expression(b.memo[arg]) for arg in call.args[1:]]
    made = relay.Call(call.op, [real, *rest], call.attrs, None, call.span)
    return Meaning(made, one.steps, one.zero_point, one.dtype)


def _pad(b: _Rewriting, call: Expr) -> Value:
    data, value = b.memo[call.args[0]], constant_value(call.args[1])
    if not isinstance(data, Meaning) or value is None or data.steps.size > 1:
        return None
    fill = relay.const(np.float32((float(value.flat[0]) - data.zero_point) * data.steps.flat[0]))
    made = relay.Call(call.op, [data.real, fill], call.attrs, None, call.span)
    return Meaning(made, data.steps, data.zero_point, data.dtype)


def _clip(b: _Rewriting, call: Expr) -> Value:
    data = b.memo[call.args[0]]
    if not isinstance(data, Meaning) or data.steps.size > 1:
        return None
    low, high = float(call.attrs.a_min), float(call.attrs.a_max)
    limits = np.iinfo(data.dtype)
    if low <= limits.min and high >= limits.max:
        return data
    step = float(data.steps.flat[0])
    made = relay.clip(data.real, (low - data.zero_point) * step, (high - data.zero_point) * step)
    return Meaning(spanned(made, call.span), data.steps, data.zero_point, data.dtype)


def _cast(b: _Rewriting, call: Expr) -> Value:
    """Between integer types: wider ones hold sums on the way to an average, which 8 bits round."""
    data, dtype = b.memo[call.args[0]], str(call.attrs.dtype)
    if not isinstance(data, Meaning) or not dtype.startswith(("int", "uint")):
        return None
    real = data.real
    if dtype in ROUNDED and data.dtype != dtype and data.steps.size == 1:
        real = b.spelled(real, data.steps, data.zero_point, dtype, call.span)
    return Meaning(real, data.steps, data.zero_point, dtype, data.axis)


def _hard_swish(real: Expr) -> Expr:
    gate = relay.clip(relay.add(real, relay.const(np.float32(3.0))), 0.0, 6.0)
    return relay.multiply(relay.multiply(real, gate), relay.const(np.float32(1.0 / 6.0)))


PASSED = (
    "nn.max_pool2d", "nn.avg_pool2d", "nn.global_max_pool2d", "nn.global_avg_pool2d", "mean",
    "reshape", "squeeze", "expand_dims", "transpose", "strided_slice", "concatenate", "split",
    "nn.batch_flatten", "nn.depth_to_space", "nn.space_to_depth", "layout_transform", "reverse",
)  # fmt: skip
HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.batch_matmul"), _product
    ),
    **dict.fromkeys(("nn.bias_add", "add"), _bias),
    "qnn.requantize": _requantize,
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    **dict.fromkeys(("qnn.add", "qnn.subtract", "qnn.mul"), _joined),
    "qnn.concatenate": _concatenate,
    "qnn.sigmoid": _function(relay.sigmoid),
    "qnn.tanh": _function(relay.tanh),
    "qnn.exp": _function(relay.exp),
    "qnn.erf": _function(relay.erf),
    "qnn.sqrt": _function(relay.sqrt),
    "qnn.abs": _function(relay.abs),
    "qnn.log": _function(relay.log),
    "qnn.hardswish": _function(_hard_swish),
    "qnn.leaky_relu": _leaky_relu,
    "qnn.avg_pool2d": _average,
    **dict.fromkeys(PASSED, _passed),
    "nn.pad": _pad,
    "clip": _clip,
    "cast": _cast,
}
"""By operator; a handler that cannot say what an operator means gives None, and integers stay."""
