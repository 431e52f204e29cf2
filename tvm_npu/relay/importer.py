"""A region function -> `codegen.graph.Graph`: one small function for each Relay operator.

Tensors are called ``in0, in1, ...`` and ``t0, t1, ...`` in the order of the function's body, so
that the same region gives the same names whenever it is imported; ranges refer to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay

from tvm_npu.codegen import graph as g
from tvm_npu.codegen import ops
from tvm_npu.errors import ImportRegionError
from tvm_npu.relay import operands as of

SOURCES_ATTR = "npu.sources"
"""Function attribute: JSON list of source operator names, one for each call of the body."""

Expr = Any


class _Builder:
    """Collects layers; knows which tensor each expression became."""

    def __init__(self) -> None:
        self.layers: list[g.Layer] = []
        self.shapes: dict[str, g.Shape] = {}
        self.inputs: list[str] = []
        self.tensors: dict[Expr, str] = {}
        self.parts: dict[Expr, tuple[str, ...]] = {}
        self.source = ""
        self._names: set[str] = set()

    def add_input(self, var: relay.Var) -> None:
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = of.shape_of(var)[1:]
        self.tensors[var] = name

    def name(self, kind: str) -> str:
        """A layer name of its own: the source operator's when there is one."""
        base = self.source or kind
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base}#{number}"
        self._names.add(name)
        return name

    def new_tensor(self, shape: g.Shape) -> str:
        name = f"t{len(self.shapes) - len(self.inputs)}"
        self.shapes[name] = shape
        return name

    def input(self, call: relay.Call, index: int = 0) -> str:
        return self.tensors[call.args[index]]

    def common(
        self, call: relay.Call, *inputs: str, shape: g.Shape | None = None
    ) -> dict[str, Any]:
        """Fields of every layer; makes the output tensor (batch-free ``shape``, default the
        call's) and remembers it as the call's value when the call has one tensor."""
        output = self.new_tensor(of.shape_of(call)[1:] if shape is None else shape)
        if of.is_tensor(call):
            self.tensors[call] = output
        return {
            "name": self.name(of.op_name(call)),
            "inputs": inputs or (self.input(call),),
            "outputs": (output,),
            "source": (self.source,) if self.source else (),
        }


def import_region(function: relay.Function, name: str = "npu") -> g.Graph:
    """The graph that a partitioned region function means; needs checked types.

    Raises ImportRegionError for operators that the rules would have refused.
    """
    builder = _Builder()
    for var in function.params:
        builder.add_input(var)
    sources = _sources(function)
    position = 0
    for expr in of.post_order(function.body):
        if isinstance(expr, relay.Call):
            operator = of.op_name(expr)
            handler = _HANDLERS.get(operator)
            if handler is None:
                raise ImportRegionError(
                    f"region {name!r} contains {operator or expr.op!r}, which has no NPU layer"
                )
            builder.source = sources[position] if sources is not None else of.source_of(expr)
            position += 1
            handler(builder, expr)
        elif isinstance(expr, relay.TupleGetItem):
            builder.tensors[expr] = builder.parts[expr.tuple_value][expr.index]
        elif not isinstance(expr, relay.Var | relay.Constant | relay.Tuple):
            raise ImportRegionError(f"region {name!r} contains a {type(expr).__name__}")
    body = function.body
    results = body.fields if isinstance(body, relay.Tuple) else [body]
    return g.Graph(
        layers=tuple(builder.layers),
        shapes=builder.shapes,
        inputs=tuple(builder.inputs),
        outputs=tuple(builder.tensors[result] for result in results),
        name=name,
    )


def _sources(function: relay.Function) -> list[str] | None:
    if function.attrs is None or SOURCES_ATTR not in function.attrs:
        return None
    return [str(source) for source in json.loads(str(function.attrs[SOURCES_ATTR]))]


def _constant(expr: Expr) -> of.Array:
    values = of.constant(expr)
    if values is None:
        raise ImportRegionError(f"expected a constant, found {type(expr).__name__}")
    return values


def _per_channel(expr: Expr, shape: of.TensorShape) -> g.FloatArray:
    vector = of.channel_vector(_constant(expr), shape)
    if vector is None:
        raise ImportRegionError(f"constant {_constant(expr).shape} on {shape} is not per channel")
    return vector


def _conv2d(b: _Builder, call: relay.Call) -> None:
    weight = np.ascontiguousarray(_constant(call.args[1]), dtype=np.float32)
    b.layers.append(
        ops.Conv2d(
            **b.common(call),
            weight=weight,
            bias=np.zeros(weight.shape[0], np.float32),
            stride=of.pair(call.attrs.strides),
            padding=of.padding_of(call.attrs.padding),
            dilation=of.pair(call.attrs.dilation),
            groups=int(call.attrs.groups),
        )
    )


def _dense(b: _Builder, call: relay.Call) -> None:
    weight = _constant(call.args[1])
    if of.op_name(call) == "nn.matmul" and not call.attrs.transpose_b:
        weight = weight.T
    weight = np.ascontiguousarray(weight, dtype=np.float32)
    bias = np.zeros(weight.shape[0], np.float32)
    b.layers.append(ops.Dense(**b.common(call), weight=weight, bias=bias))


def _affine(
    b: _Builder, call: relay.Call, tensor: str, scale: g.FloatArray, bias: g.FloatArray
) -> None:
    b.layers.append(ops.ScaleShift(**b.common(call, tensor), scale=scale, bias=bias))


def _bias_add(b: _Builder, call: relay.Call) -> None:
    bias = np.asarray(_constant(call.args[1]), np.float32)
    _affine(b, call, b.input(call), np.ones_like(bias), bias)


def _batch_norm(b: _Builder, call: relay.Call) -> None:
    gamma, beta, mean, variance = (_constant(arg).astype(np.float64) for arg in call.args[1:])
    scale = 1.0 / np.sqrt(variance + float(call.attrs.epsilon))
    if call.attrs.scale:
        scale = scale * gamma
    bias = -mean * scale
    if call.attrs.center:
        bias = bias + beta
    common = b.common(call, b.input(call), shape=of.shape_of(call.args[0])[1:])
    b.layers.append(
        ops.ScaleShift(**common, scale=scale.astype(np.float32), bias=bias.astype(np.float32))
    )
    b.parts[call] = common["outputs"]


def _arithmetic(b: _Builder, call: relay.Call) -> None:
    """add and multiply of two tensors; add, multiply, subtract, divide with a constant."""
    name, shape = of.op_name(call), of.shape_of(call)
    left, right = (isinstance(arg, relay.Constant) for arg in call.args)
    if not left and not right:
        common = b.common(call, b.input(call, 0), b.input(call, 1))
        b.layers.append(ops.Elementwise(**common, op="add" if name == "add" else "mul"))
        return
    tensor = b.input(call, 1 if left else 0)
    value = _per_channel(call.args[0 if left else 1], shape)
    one, zero = np.ones_like(value), np.zeros_like(value)
    if name == "add":
        _affine(b, call, tensor, one, value)
    elif name == "subtract":
        _affine(b, call, tensor, -one if left else one, value if left else -value)
    elif name == "multiply":
        _affine(b, call, tensor, value, zero)
    else:
        _affine(b, call, tensor, one / value, zero)


def _negative(b: _Builder, call: relay.Call) -> None:
    channels = of.shape_of(call)[1]
    scale = np.full(channels, -1, np.float32)
    _affine(b, call, b.input(call), scale, np.zeros_like(scale))


def _activation(b: _Builder, call: relay.Call, tensor: str, clip: g.Clip) -> None:
    b.layers.append(ops.Elementwise(**b.common(call, tensor), op="copy", activation=clip))


def _relu(b: _Builder, call: relay.Call) -> None:
    _activation(b, call, b.input(call), g.RELU)


def _leaky_relu(b: _Builder, call: relay.Call) -> None:
    """before: ``leaky_relu(x, a)``    after: ``a * x + relu((1 - a) * x)``, for a from 0 to 1"""
    slope, tensor, shape = float(call.attrs.alpha), b.input(call), of.shape_of(call)[1:]

    def scaled(scale: float) -> str:
        common = b.common(call, tensor, shape=shape)
        values = np.full(shape[0], scale, np.float32)
        b.layers.append(ops.ScaleShift(**common, scale=values, bias=np.zeros_like(values)))
        return str(common["outputs"][0])

    steep = scaled(1.0 - slope)
    _activation(b, call, steep, g.RELU)
    positive = b.tensors[call]
    common = b.common(call, scaled(slope), positive)
    b.layers.append(ops.Elementwise(**common, op="add"))


def _clip(b: _Builder, call: relay.Call) -> None:
    bounds = g.Clip(float(call.attrs.a_min), float(call.attrs.a_max))
    _activation(b, call, b.input(call), bounds)


def _bound(b: _Builder, call: relay.Call) -> None:
    left = isinstance(call.args[0], relay.Constant)
    value = float(_constant(call.args[0 if left else 1]).flat[0])
    clip = g.Clip(low=value) if of.op_name(call) == "maximum" else g.Clip(high=value)
    _activation(b, call, b.input(call, 1 if left else 0), clip)


def _pool(b: _Builder, call: relay.Call) -> None:
    """All pooling operators. A counted average divides by the whole kernel in Relay, also where
    ceil_mode lets a window run over the end, so there all padding is counted."""
    name = of.op_name(call)
    kernel, stride, padding = of.pool_windows(call)
    counted = name == "nn.avg_pool2d" and bool(call.attrs.count_include_pad)
    common = b.common(call, shape=(of.shape_of(call)[1], *_pooled(call)))
    b.layers.append(
        ops.Pool(
            **common,
            kind="max" if "max" in name else "avg",
            kernel=kernel,
            stride=stride,
            padding=padding,
            count_include_pad=counted,
            counted_padding=padding if counted else (0, 0, 0, 0),
        )
    )
    if len(of.shape_of(call)) == 2:
        _layout(b, call, common["outputs"][0])


def _pooled(call: relay.Call) -> tuple[int, int]:
    """Rows and columns of a pooling result; a mean may have dropped its 1x1."""
    shape = of.shape_of(call)
    return (shape[2], shape[3]) if len(shape) == 4 else (1, 1)


def _layout(b: _Builder, call: relay.Call, tensor: str) -> None:
    b.layers.append(ops.Reshape(**b.common(call, tensor)))


def _reshape(b: _Builder, call: relay.Call) -> None:
    _layout(b, call, b.input(call))


def _concatenate(b: _Builder, call: relay.Call) -> None:
    tensors = [b.tensors[field] for field in call.args[0].fields]
    b.layers.append(ops.Concat(**b.common(call, *tensors)))


def _split(b: _Builder, call: relay.Call) -> None:
    outputs: list[str] = []
    fields = call.checked_type.fields
    for begin, type_ in zip(of.split_sections(call), fields, strict=True):
        shape = of.static_shape(type_)
        if shape is None:
            raise ImportRegionError(f"split part {type_} has no static shape")
        common = b.common(call, b.input(call), shape=shape[1:])
        b.layers.append(ops.ChannelSlice(**common, begin=begin))
        outputs += common["outputs"]
    b.parts[call] = tuple(outputs)


def _pad(b: _Builder, call: relay.Call) -> None:
    amounts = [of.integers(both) for both in call.attrs.pad_width][1:]
    before, after = ((amounts[0][k], amounts[1][k], amounts[2][k]) for k in (0, 1))
    value = float(_constant(call.args[1]).flat[0])
    b.layers.append(ops.Pad(**b.common(call), before=before, after=after, value=value))


def _strided_slice(b: _Builder, call: relay.Call) -> None:
    shape = of.shape_of(call.args[0])[1:]
    channels, rows, columns = of.slice_bounds(call)[1:]
    if rows == (0, shape[1], 1) and columns == (0, shape[2], 1):
        b.layers.append(ops.ChannelSlice(**b.common(call), begin=channels[0]))
        return
    b.layers.append(
        ops.Pad(
            **b.common(call),
            before=(-channels[0], -rows[0], -columns[0]),
            after=(channels[1] - shape[0], rows[1] - shape[1], columns[1] - shape[2]),
            stride=(rows[2], columns[2]),
        )
    )


_HANDLERS: dict[str, Callable[[_Builder, relay.Call], None]] = {
    "nn.conv2d": _conv2d,
    "nn.dense": _dense,
    "nn.matmul": _dense,
    "nn.bias_add": _bias_add,
    "nn.batch_norm": _batch_norm,
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "clip": _clip,
    "maximum": _bound,
    "minimum": _bound,
    "nn.max_pool2d": _pool,
    "nn.avg_pool2d": _pool,
    "nn.global_max_pool2d": _pool,
    "nn.global_avg_pool2d": _pool,
    "nn.adaptive_avg_pool2d": _pool,
    "nn.adaptive_max_pool2d": _pool,
    "mean": _pool,
    "add": _arithmetic,
    "multiply": _arithmetic,
    "subtract": _arithmetic,
    "divide": _arithmetic,
    "negative": _negative,
    "concatenate": _concatenate,
    "split": _split,
    "nn.batch_flatten": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "nn.pad": _pad,
    "strided_slice": _strided_slice,
}
