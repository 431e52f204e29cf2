"""Operators of quantized models on real numbers: what each means, as a `real_values.Handler`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay

from tvm_npu.relay import operands as of
from tvm_npu.relay.qnn_arguments import constant_value
from tvm_npu.relay.real_values import ROUNDED, Handler, Meaning, Rewriting, Value, as_expression
from tvm_npu.relay.roundings import Expr, before_whole_steps, spanned


def _product(b: Rewriting, call: Expr) -> Value:
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
    steps, channels = steps_in.flat[0] * steps_w, _channel_axis(name, call)
    return Meaning(spanned(made, call.span), steps, 0, "int32", channels)


def _channel_axis(name: str, call: Expr) -> int:
    """Of the result."""
    if name.startswith("qnn.conv2d"):
        return str(call.attrs.out_layout or call.attrs.data_layout).index("C")
    return len(call.checked_type.shape) - 1


def _filter_axis(name: str, attrs: Any) -> int:
    return str(attrs.kernel_layout).index("O") if name.startswith("qnn.conv2d") else -1


def _bias(b: Rewriting, call: Expr) -> Value:
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


def _requantize(b: Rewriting, call: Expr) -> Value:
    data, scale, zero_point, out_scale, out_zero = call.args
    real = b.real(data, scale, zero_point, int(call.attrs.axis))
    return b.rounded(real, call, out_scale, out_zero)


def _quantize(b: Rewriting, call: Expr) -> Value:
    values = constant_value(call)
    if values is not None:
        return values
    return b.rounded(b.memo[before_whole_steps(call.args[0])], call, *call.args[1:])


def _dequantize(b: Rewriting, call: Expr) -> Value:
    data, scale, zero_point = call.args
    return b.real(data, scale, zero_point, int(call.attrs.axis))


def _joined(b: Rewriting, call: Expr) -> Value:
    """Sums, differences and products of two tensors."""
    left, right, scale_l, zero_l, scale_r, zero_r, scale, zero_point = call.args
    make = {"qnn.add": relay.add, "qnn.subtract": relay.subtract, "qnn.mul": relay.multiply}
    both = b.real(left, scale_l, zero_l), b.real(right, scale_r, zero_r)
    made = spanned(make[of.op_name(call)](*both), call.span)
    return b.rounded(made, call, scale, zero_point)


def _concatenate(b: Rewriting, call: Expr) -> Value:
    data, scales, zeros, scale, zero_point = call.args
    fields = [
        b.real(one, step, zero)
        for one, step, zero in zip(data.fields, scales.fields, zeros.fields, strict=True)
    ]
    made = relay.concatenate(relay.Tuple(fields), int(call.attrs.axis))
    return b.rounded(spanned(made, call.span), call, scale, zero_point)


def _function(make: Callable[[Expr], Expr]) -> Handler:
    """A function of every element."""

    def handler(b: Rewriting, call: Expr) -> Value:
        data, scale, zero_point, out_scale, out_zero = call.args
        made = spanned(make(b.real(data, scale, zero_point)), call.span)
        return b.rounded(made, call, out_scale, out_zero)

    return handler


def _leaky_relu(b: Rewriting, call: Expr) -> Value:
    def make(real: Expr) -> Expr:
        return relay.nn.leaky_relu(real, float(call.attrs.alpha))

    return _function(make)(b, call)


def _average(b: Rewriting, call: Expr) -> Value:
    data, scale, zero_point, out_scale, out_zero = call.args
    plain = relay.op.get("nn.avg_pool2d")
    made = relay.Call(plain, [b.real(data, scale, zero_point)], call.attrs, None, call.span)
    return b.rounded(made, call, out_scale, out_zero)


def _passed(b: Rewriting, call: Expr) -> Value:
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


def _pad(b: Rewriting, call: Expr) -> Value:
    data, value = b.memo[call.args[0]], constant_value(call.args[1])
    if not isinstance(data, Meaning) or value is None or data.steps.size > 1:
        return None
    fill = relay.const(np.float32((float(value.flat[0]) - data.zero_point) * data.steps.flat[0]))
    made = relay.Call(call.op, [data.real, fill], call.attrs, None, call.span)
    return Meaning(made, data.steps, data.zero_point, data.dtype)


def _clip(b: Rewriting, call: Expr) -> Value:
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


def _cast(b: Rewriting, call: Expr) -> Value:
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
"""By operator."""
