"""Operator calls as layers of the NPU graph: one small function for each operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from tvm_npu.codegen import graph as g
from tvm_npu.codegen import ops
from tvm_npu.codegen.ops.functions import ONLY_PARTS
from tvm_npu.door import geometry
from tvm_npu.door.dataflow import Array, Constant, OpCall, TensorShape, Value
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.moving import MAKES_BY_MOVING, MOVING
from tvm_npu.errors import ImportRegionError


def _constant(value: Value) -> Array:
    if not isinstance(value, Constant):
        raise ImportRegionError(f"expected a constant, found a {type(value).__name__.lower()}")
    return value.array


def _per_channel(value: Value, shape: TensorShape) -> g.FloatArray:
    constant = _constant(value)
    vector = geometry.channel_vector(constant, shape)
    if vector is None:
        raise ImportRegionError(f"constant {constant.shape} on {shape} is not per channel")
    return vector


def _conv2d(b: GraphBuilder, call: OpCall) -> None:
    weight = np.ascontiguousarray(_constant(call.operands[1]), dtype=np.float32)
    b.layers.append(
        ops.Conv2d(
            **b.common(call),
            weight=weight,
            bias=np.zeros(weight.shape[0], np.float32),
            stride=call.attributes["strides"],
            padding=call.attributes["padding"],
            dilation=call.attributes["dilation"],
            groups=call.attributes["groups"],
        )
    )


def _transposed_conv(b: GraphBuilder, call: OpCall) -> None:
    """TVM's weight has the input's channels first; those of a group lie together."""
    groups = call.attributes["groups"]
    weight = _constant(call.operands[1])
    channels, per_group, *kernel = weight.shape
    grouped = weight.reshape(groups, channels // groups, per_group, *kernel).swapaxes(1, 2)
    filters_first = grouped.reshape(groups * per_group, channels // groups, *kernel)
    b.layers.append(
        ops.TransposedConv(
            **b.common(call),
            weight=np.ascontiguousarray(filters_first, dtype=np.float32),
            bias=np.zeros(groups * per_group, np.float32),
            stride=call.attributes["strides"],
            padding=call.attributes["padding"],
            output_padding=call.attributes["output_padding"],
            groups=groups,
        )
    )


def _dense(b: GraphBuilder, call: OpCall) -> None:
    weight = _constant(call.operands[1])
    if call.name == "matmul" and not call.attributes["transpose_b"]:
        weight = weight.T
    weight = np.asarray(weight, np.float32)
    bias = np.zeros(weight.shape[0], np.float32)
    b.layers.append(ops.Dense(**b.common(call), weight=weight, bias=bias))


def _scale_shift(
    b: GraphBuilder, call: OpCall, tensor: str, scale: g.FloatArray, bias: g.FloatArray
) -> None:
    b.layers.append(ops.ScaleShift(**b.common(call, tensor), scale=scale, bias=bias))


def _bias_add(b: GraphBuilder, call: OpCall) -> None:
    bias = np.asarray(_constant(call.operands[1]), np.float32)
    _scale_shift(b, call, b.input(call), np.ones_like(bias), bias)


def _batch_norm(b: GraphBuilder, call: OpCall) -> None:
    gamma, beta, mean, variance = (_constant(arg).astype(np.float64) for arg in call.operands[1:])
    scale = 1.0 / np.sqrt(variance + call.attributes["epsilon"])
    if call.attributes["scale"]:
        scale = scale * gamma
    bias = -mean * scale
    if call.attributes["center"]:
        bias = bias + beta
    common = b.common(call, b.input(call), shape=call.operands[0].shape[1:])
    b.layers.append(
        ops.ScaleShift(**common, scale=scale.astype(np.float32), bias=bias.astype(np.float32))
    )
    b.tensors[call.result(0)] = common["outputs"][0]


def _arithmetic(b: GraphBuilder, call: OpCall) -> None:
    """add, subtract and multiply of two tensors, one of which may have one number a channel; add,
    multiply, subtract, divide with a constant."""
    name, shape = call.name, call.shape
    left, right = (isinstance(arg, Constant) for arg in call.operands)
    if not left and not right:
        if call.operands[0].shape != call.operands[1].shape:
            _broadcast(b, call)
            return
        second = b.input(call, 1)
        if name == "subtract":
            second = _scaled(b, call, second, -1.0)
        common = b.common(call, b.input(call, 0), second)
        b.layers.append(ops.Elementwise(**common, op="mul" if name == "multiply" else "add"))
        return
    tensor = b.input(call, 1 if left else 0)
    value = _per_channel(call.operands[0 if left else 1], shape)
    one, zero = np.ones_like(value), np.zeros_like(value)
    if name == "add":
        _scale_shift(b, call, tensor, one, value)
    elif name == "subtract":
        _scale_shift(b, call, tensor, -one if left else one, value if left else -value)
    elif name == "multiply":
        _scale_shift(b, call, tensor, value, zero)
    else:
        _scale_shift(b, call, tensor, one / value, zero)


def _broadcast(b: GraphBuilder, call: OpCall) -> None:
    """A difference whose first operand is the smaller one is a sum with the other's negative."""
    operands = [b.input(call, index) for index in (0, 1)]
    op: Literal["add", "mul"] = "mul" if call.name == "multiply" else "add"
    if call.operands[0].shape != call.shape:
        operands.reverse()
        if call.name == "subtract":
            operands[0] = _scaled(b, call, operands[0], -1.0)
    elif call.name == "subtract":
        b.layers.append(ops.Difference(**b.common(call, *operands)))
        return
    b.layers.append(ops.Broadcast(**b.common(call, *operands), op=op))


def _negative(b: GraphBuilder, call: OpCall) -> None:
    channels = call.shape[1]
    scale = np.full(channels, -1, np.float32)
    _scale_shift(b, call, b.input(call), scale, np.zeros_like(scale))


def _activation(b: GraphBuilder, call: OpCall, tensor: str, clip: g.Clip) -> None:
    b.layers.append(ops.Elementwise(**b.common(call, tensor), op="copy", activation=clip))


def _relu(b: GraphBuilder, call: OpCall) -> None:
    _activation(b, call, b.input(call), g.RELU)


def _leaky_relu(b: GraphBuilder, call: OpCall) -> None:
    """before: ``leaky_relu(x, a)``    after: ``a * x + relu((1 - a) * x)``, for a up to 1

    Of which fusing makes a slope of the convolution in front, where a machine has slopes."""
    tensor = b.input(call)
    if call.name == "prelu":
        slopes = np.asarray(_constant(call.operands[1]), np.float32).reshape(-1)
    else:
        slopes = np.array([call.attributes["alpha"]], np.float32)
    _activation(b, call, _scaled(b, call, tensor, 1.0 - slopes), g.RELU)
    positive = b.tensors[call.result()]
    common = b.common(call, _scaled(b, call, tensor, slopes), positive)
    b.layers.append(ops.Elementwise(**common, op="add"))


def _scaled(b: GraphBuilder, call: OpCall, tensor: str, scale: float | Array) -> str:
    """A new tensor of the result's shape: ``tensor`` times one number, or one a channel."""
    common = b.common(call, tensor)
    channels = b.shapes[tensor][0]
    values = np.broadcast_to(np.asarray(scale, np.float32), channels).copy()
    b.layers.append(ops.ScaleShift(**common, scale=values, bias=np.zeros_like(values)))
    return str(common["outputs"][0])


def _table_function(b: GraphBuilder, call: OpCall) -> None:
    b.layers.append(
        ops.TableFunction(**b.common(call), function=call.name)
    )


def _clip(b: GraphBuilder, call: OpCall) -> None:
    bounds = g.Clip(call.attributes["a_min"], call.attributes["a_max"])
    _activation(b, call, b.input(call), bounds)


def _bound(b: GraphBuilder, call: OpCall) -> None:
    left, right = (isinstance(arg, Constant) for arg in call.operands)
    if not left and not right:
        b.layers.append(ops.Maximum(**b.common(call, b.input(call, 0), b.input(call, 1))))
        return
    value = float(_constant(call.operands[0 if left else 1]).flat[0])
    clip = g.Clip(low=value) if call.name == "maximum" else g.Clip(high=value)
    _activation(b, call, b.input(call, 1 if left else 0), clip)


def _pool(b: GraphBuilder, call: OpCall) -> None:
    """All pooling operators. A counted average counts the padding that the model gives, not what
    ceil_mode adds behind it."""
    name = call.name
    kernel, stride, padding = geometry.pool_windows(call)
    counted = name == "avg_pool2d" and call.attributes["count_include_pad"]
    common = b.common(call, shape=(call.shape[1], *_pooled(call)))
    b.layers.append(
        ops.Pool(
            **common,
            kind="max" if "max" in name else "avg",
            kernel=kernel,
            stride=stride,
            padding=padding,
            count_include_pad=counted,
            counted_padding=call.attributes["padding"] if counted else (0, 0, 0, 0),
        )
    )
    if len(call.shape) == 2:
        _layout(b, call, common["outputs"][0])


def _pooled(call: OpCall) -> tuple[int, int]:
    """Rows and columns of a pooling result; a mean may have dropped its 1x1."""
    shape = call.shape
    return (shape[2], shape[3]) if len(shape) == 4 else (1, 1)


def _layout(b: GraphBuilder, call: OpCall, tensor: str) -> None:
    b.layers.append(ops.Reshape(**b.common(call, tensor)))


def _reshape(b: GraphBuilder, call: OpCall) -> None:
    _layout(b, call, b.input(call))


def _concatenate(b: GraphBuilder, call: OpCall) -> None:
    tensors = [b.tensors[field] for field in call.operands]
    axis = geometry.normalized_axis(call.attributes["axis"], len(call.shape)) - 1
    if axis == 0:
        b.layers.append(ops.Concat(**b.common(call, *tensors)))
        return
    shapes = tuple(b.shapes[tensor] for tensor in tensors)
    b.layers.append(ops.Join(**b.common(call, *tensors), shapes=shapes, axis=axis))


def _split(b: GraphBuilder, call: OpCall) -> None:
    shape = b.shapes[b.input(call)]
    axis = geometry.normalized_axis(call.attributes["axis"], len(shape) + 1) - 1
    for position, begin in enumerate(geometry.split_begins(call)):
        part = call.result(position)
        common = b.common(call, b.input(call), shape=part.shape[1:])
        if axis == 0:
            b.layers.append(ops.ChannelSlice(**common, begin=begin))
        else:
            begins = tuple(begin if k == axis else 0 for k in range(len(shape)))
            one = (1,) * len(shape)
            b.layers.append(
                ops.StridedSlice(
                    **common, shape=shape, begins=begins, steps=one, extents=part.shape[1:]
                )
            )
        b.tensors[part] = common["outputs"][0]


def _pad(b: GraphBuilder, call: OpCall) -> None:
    amounts = call.attributes["pad_width"][1:]
    if geometry.is_reflected(call):
        _, rows, columns = amounts
        padding = (rows[0], columns[0], rows[1], columns[1])
        b.layers.append(ops.ReflectPad(**b.common(call), padding=padding))
        return
    before, after = ((amounts[0][k], amounts[1][k], amounts[2][k]) for k in (0, 1))
    value = float(_constant(call.operands[1]).flat[0])
    b.layers.append(ops.Pad(**b.common(call), before=before, after=after, value=value))


def _strided_slice(b: GraphBuilder, call: OpCall) -> None:
    shape = call.operands[0].shape[1:]
    bounds = geometry.slice_bounds(call)[1:]
    rest = tuple((0, extent, 1) for extent in shape[1:])
    if bounds[1:] == rest and bounds[0][2] == 1:
        b.layers.append(ops.ChannelSlice(**b.common(call), begin=bounds[0][0]))
        return
    if len(shape) != 3 or bounds[0][2] != 1 or min(step for _, _, step in bounds) < 0:
        begins, _, steps = (tuple(one) for one in zip(*bounds, strict=True))
        common = b.common(call)
        b.layers.append(
            ops.StridedSlice(
                **common, shape=shape, begins=begins, steps=steps, extents=call.shape[1:]
            )
        )
        return
    channels, rows, columns = bounds
    b.layers.append(
        ops.Pad(
            **b.common(call),
            before=(-channels[0], -rows[0], -columns[0]),
            after=(channels[1] - shape[0], rows[1] - shape[1], columns[1] - shape[2]),
            stride=(rows[2], columns[2]),
        )
    )


FUNCTIONS = ("sigmoid", "tanh", "exp", "erf", "log", "sqrt", "abs", "round")
"""Operators that are called as their functions in `codegen.ops.functions`."""

HANDLERS: dict[str, Callable[[GraphBuilder, OpCall], None]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _transposed_conv,
    "dense": _dense,
    "matmul": _dense,
    "bias_add": _bias_add,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "prelu": _leaky_relu,
    **dict.fromkeys(FUNCTIONS, _table_function),
    "clip": _clip,
    "maximum": _bound,
    "minimum": _bound,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_max_pool2d": _pool,
    "global_avg_pool2d": _pool,
    "adaptive_avg_pool2d": _pool,
    "adaptive_max_pool2d": _pool,
    "mean": _pool,
    "add": _arithmetic,
    "multiply": _arithmetic,
    "subtract": _arithmetic,
    "divide": _arithmetic,
    "negative": _negative,
    "concatenate": _concatenate,
    "split": _split,
    "batch_flatten": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "pad": _pad,
    "mirror_pad": _pad,
    "strided_slice": _strided_slice,
    **MOVING,
}
"""operator -> what appends its layers."""

_WINDOW_LAYERS = (ops.Pool, ops.Reshape)
_ARITHMETIC_LAYERS = (ops.Elementwise, ops.Broadcast, ops.Difference, ops.ScaleShift)
MAKES: dict[str, tuple[type[g.Layer], ...]] = {
    **dict.fromkeys(HANDLERS, ()),
    **dict.fromkeys(("relu", "clip", "minimum"), (ops.Elementwise,)),
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _ARITHMETIC_LAYERS),
    **dict.fromkeys((name for name in HANDLERS if "_pool2d" in name), _WINDOW_LAYERS),
    **dict.fromkeys(("batch_flatten", "reshape", "squeeze", "expand_dims"), (ops.Reshape,)),
    **dict.fromkeys(("bias_add", "batch_norm", "negative"), (ops.ScaleShift,)),
    **dict.fromkeys(FUNCTIONS, (ops.TableFunction,)),
    **dict.fromkeys(("dense", "matmul"), (ops.Dense,)),
    "conv2d": (ops.Conv2d,),
    "conv2d_transpose": (ops.TransposedConv,),
    **dict.fromkeys(("leaky_relu", "prelu"), (ops.Elementwise, ops.ScaleShift)),
    "maximum": (ops.Elementwise, ops.Maximum, ops.MaxFeatureMap),
    "mean": _WINDOW_LAYERS,
    "concatenate": (ops.Concat, ops.Join),
    "split": (ops.ChannelSlice, ops.StridedSlice),
    "pad": (ops.Pad, ops.ReflectPad),
    "mirror_pad": (ops.ReflectPad,),
    "strided_slice": (ops.ChannelSlice, ops.Pad, ops.StridedSlice),
    **MAKES_BY_MOVING,
}
"""operator -> the types of layers that it becomes, fused with its neighbours or not."""


def only_a_part(layer: g.Layer) -> str | None:
    """The function of a layer that computes one which has no table of its own."""
    if isinstance(layer, ops.TableFunction) and layer.function in ONLY_PARTS:
        return str(layer.function)
    return None
