"""ONNX models: small valid ones, and changes of their attributes, shapes, weights, edges, sets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fuzzing.mutation import changed, edge
from fuzzing.onnx_operators import one_node_model

MOST_WEIGHT_BYTES = 1 << 16
_OPERATORS = (
    "Conv", "ConvTranspose", "Relu", "MaxPool", "AveragePool", "GlobalAveragePool", "Gemm",
    "MatMul", "Add", "Mul", "Sub", "Div", "Concat", "Clip", "Softmax", "Flatten", "Reshape",
    "Transpose", "Unsqueeze", "Squeeze", "Slice", "Split", "Pad", "Resize", "LeakyRelu",
    "PRelu", "Gelu", "BatchNormalization", "LayerNormalization", "ReduceMean", "Gather", "LSTM",
    "GRU", "Identity", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearAdd",
    "Constant", "Shape", "Cast", "LpPool", "MaxUnpool", "If", "Loop", "Einsum", "TopK", "Where",
    "DepthToSpace", "Tile", "Nothing",
)  # fmt: skip
_ATTRIBUTES = (
    "strides", "pads", "dilations", "kernel_shape", "group", "auto_pad", "axis", "axes", "perm",
    "alpha", "ceil_mode", "count_include_pad", "transB", "epsilon", "output_padding", "mode", "to",
    "blocksize", "keepdims", "output_shape", "storage_order", "split", "num_outputs", "direction",
    "hidden_size", "approximate", "coordinate_transformation_mode", "value", "equation",
)  # fmt: skip
_STRINGS = (b"SAME_UPPER", b"SAME_LOWER", b"VALID", b"NOTSET", b"", b"\xff", b"linear", b"cubic",
            b"same_upper", b"tanh", b"bidirectional", b"ij,jk->ik", b"x" * 9000)  # fmt: skip
_EXTENTS = (-1, 0, 1, 2, 3, 5, 6, 7, 8, 64)


def _graph(nodes: Sequence[Any], weights: dict[str, Any], out: Sequence[int]) -> bytes:
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", 1, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", 1, list(out))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


@lru_cache(maxsize=1)
def models() -> tuple[bytes, ...]:
    """Windows, shapes, quantized layers and residuals; each has few weights."""
    from onnx import helper

    node = helper.make_node
    draw = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return draw.normal(size=shape).astype(np.float32)

    windows = _graph(
        [
            node("Conv", ["x", "w", "b"], ["a"], auto_pad="SAME_UPPER", strides=[2, 2],
                 kernel_shape=[3, 3]),
            node("Relu", ["a"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]),
            node("AveragePool", ["p"], ["q"], kernel_shape=[3, 3], auto_pad="VALID"),
            node("Flatten", ["q"], ["f"], axis=1),
            node("Gemm", ["f", "v", "c"], ["y"], transB=1),
        ],
        {"w": floats(4, 3, 3, 3), "b": floats(4), "v": floats(5, 4), "c": floats(5)}, [1, 5],
    )  # fmt: skip
    shapes = _graph(
        [
            node("Unsqueeze", ["s", "axes"], ["u"]),
            node("Mul", ["x", "u"], ["m"]),
            node("Concat", ["m", "x"], ["k"], axis=1),
            node("ConvTranspose", ["k", "t"], ["d"], strides=[2, 2], kernel_shape=[2, 2]),
            node("Clip", ["d", "low", "high"], ["e"]),
            node("Transpose", ["e"], ["z"], perm=[0, 2, 3, 1]),
            node("Reshape", ["z", "to"], ["h"]),
            node("Slice", ["h", "first", "last", "one"], ["i"]),
            node("Softmax", ["i"], ["y"], axis=1),
        ],
        {"s": floats(3), "axes": np.array([1, 2]), "t": floats(6, 2, 2, 2),
         "low": np.float32(0), "high": np.float32(6), "to": np.array([1, -1]),
         "first": np.array([4]), "last": np.array([24]), "one": np.array([1])}, [1, 20],
    )  # fmt: skip
    quantized = _graph(
        [
            node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
            node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
            node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"]),
            node("Conv", ["xd", "wd"], ["a"], pads=[1, 1, 1, 1]),
            node("QuantizeLinear", ["a", "sx", "zx"], ["aq"]),
            node("DequantizeLinear", ["aq", "sx", "zx"], ["ad"]),
            node("GlobalAveragePool", ["ad"], ["y"]),
        ],
        {"sx": np.float32(0.05), "zx": np.int8(0), "sw": np.float32(0.02), "zw": np.int8(0),
         "wq": draw.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)}, [1, 4, 1, 1],
    )  # fmt: skip
    residual = _graph(
        [
            node("Conv", ["x", "w"], ["a"], group=3, dilations=[2, 2], pads=[2, 2, 2, 2]),
            node("BatchNormalization", ["a", "g", "o", "o", "g"], ["n"], epsilon=1e-5),
            node("Add", ["n", "x"], ["s"]),
            node("LeakyRelu", ["s"], ["l"], alpha=0.1),
            node("Pad", ["l", "more"], ["k"], mode="reflect"),
            node("Resize", ["k", "", "scales"], ["y"], mode="nearest",
                 coordinate_transformation_mode="asymmetric"),
        ],
        {"w": floats(3, 1, 3, 3), "g": np.ones(3, np.float32), "o": np.zeros(3, np.float32),
         "more": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
         "scales": np.array([1, 1, 2, 2], np.float32)}, [1, 3, 16, 16],
    )  # fmt: skip
    return windows, shapes, quantized, residual


def changed_model(rng: random.Random, data: bytes) -> bytes:
    """A model with some of its parts changed; now and then its bytes, or one of one node."""
    if rng.random() < 0.15:
        return changed(rng, data, 1 << 18)
    if rng.random() < 0.15:
        return one_node_model(rng)
    import onnx

    model = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(_PARTS)(rng, model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _small(rng: random.Random, most: int = 64) -> int:
    """An extent: mostly few elements, for work is no fault."""
    if rng.random() < 0.85:
        return rng.choice(_EXTENTS)
    return edge(rng, 64) if rng.random() < 0.5 else rng.choice((most, 1 << 31, 1 << 20, -(1 << 63)))


def _attribute(rng: random.Random, model: Any) -> None:
    """One that is there with other values, or a new one of any kind."""
    from onnx import helper

    node = rng.choice(model.graph.node)
    if node.attribute and rng.random() < 0.7:
        item = rng.choice(node.attribute)
        if item.ints and rng.random() < 0.9:
            values = list(item.ints)
            choice = rng.random()
            if choice < 0.7:
                values[rng.randrange(len(values))] = _small(rng)
            else:
                values = values[1:] if choice < 0.85 else values + values[:1]
            del item.ints[:]
            item.ints.extend(values)
        elif item.type == 2:
            item.i = _small(rng)
        elif item.type == 3:
            item.s = rng.choice(_STRINGS)
        elif item.type == 1:
            item.f = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e-45, 3e38))
        else:
            item.type = rng.randrange(15)
        if rng.random() < 0.1:
            item.type = rng.randrange(15)
        return
    name = rng.choice(_ATTRIBUTES)
    value: Any = rng.choice((
        _small(rng), [_small(rng) for _ in range(rng.randint(1, 5))], rng.choice(_STRINGS), 0.5,
        [0.5, float("nan")],
    ))  # fmt: skip
    node.attribute.append(helper.make_attribute(name, value))


def _operator(rng: random.Random, model: Any) -> None:
    node = rng.choice(model.graph.node)
    node.op_type = rng.choice(_OPERATORS)
    if rng.random() < 0.15:
        node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "x", "ai.onnx"))


def _edges(rng: random.Random, model: Any) -> None:
    """Inputs and outputs of nodes: others, missing, more, in a circle."""
    graph = model.graph
    node = rng.choice(graph.node)
    names = [name for one in graph.node for name in (*one.input, *one.output)] + ["", "none", "x"]
    side = node.input if rng.random() < 0.7 else node.output
    choice = rng.random()
    if side and choice < 0.6:
        side[rng.randrange(len(side))] = rng.choice(names)
    elif side and choice < 0.8:
        del side[rng.randrange(len(side))]
    else:
        side.append(rng.choice(names))


def _nodes(rng: random.Random, model: Any) -> None:
    nodes = model.graph.node
    at = rng.randrange(len(nodes))
    choice = rng.random()
    if choice < 0.4 and len(nodes) > 1:
        del nodes[at]
    elif choice < 0.7:
        nodes.add().CopyFrom(nodes[at])
    else:
        kept = list(nodes)
        kept.append(kept.pop(at))
        copies = [type(one).FromString(one.SerializeToString()) for one in kept]
        del nodes[:]
        nodes.extend(copies)


def _weight(rng: random.Random, model: Any) -> None:
    """Its type, shape or bytes; they need not agree."""
    if not model.graph.initializer:
        return
    item = rng.choice(model.graph.initializer)
    choice = rng.random()
    if choice < 0.35 and item.dims:
        item.dims[rng.randrange(len(item.dims))] = _small(rng)
    elif choice < 0.45:
        item.dims.append(rng.choice((0, 1, 1, 2)))
    elif choice < 0.6:
        item.data_type = rng.randrange(24)
    elif choice < 0.75:
        item.raw_data = changed(rng, item.raw_data, MOST_WEIGHT_BYTES)
    elif choice < 0.9:
        _numbers(rng, item)
    else:
        item.name = rng.choice(("", "x", "y", "other"))


def _numbers(rng: random.Random, item: Any) -> None:
    """The same shape with other values."""
    from onnx import TensorProto, numpy_helper

    if item.data_type not in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8):
        return
    try:
        old = numpy_helper.to_array(item)
    except Exception:  # a change before made it none
        return
    new = old.copy().reshape(-1)
    for at in range(len(new)) if rng.random() < 0.3 else range(len(new))[:1]:
        if new.dtype == np.float32:
            new[at] = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e-45, 3e38, 0.5))
        elif new.dtype == np.int64:
            new[at] = _small(rng)
        else:
            new[at] = rng.choice((-128, 127, 0))
    item.CopyFrom(numpy_helper.from_array(new.reshape(old.shape), item.name))


def _shape(rng: random.Random, model: Any) -> None:
    """Of an input or output: extents, open ones, its rank, its type."""
    value = rng.choice([*model.graph.input, *model.graph.output])
    tensor = value.type.tensor_type
    choice = rng.random()
    if choice < 0.6 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_value = _small(rng)
    elif choice < 0.7 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_param = rng.choice(("n", "", "x" * 5000))
    elif choice < 0.8:
        tensor.shape.dim.add().dim_value = rng.choice((0, 1, 2))
    elif choice < 0.85:
        tensor.ClearField("shape")
    elif choice < 0.95:
        tensor.elem_type = rng.randrange(24)
    else:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def _set(rng: random.Random, model: Any) -> None:
    choice = rng.random()
    if choice < 0.6 and model.opset_import:
        model.opset_import[0].version = rng.choice((*range(-1, 26), 1 << 40))
    elif choice < 0.75:
        del model.opset_import[:]
    elif choice < 0.9:
        added = model.opset_import.add()
        added.domain, added.version = rng.choice((("", 7), ("com.microsoft", 1), ("x", 0)))
    else:
        model.ir_version = rng.choice((0, 3, 10, 99))


_PARTS: tuple[Callable[[random.Random, Any], None], ...] = (
    _attribute, _attribute, _attribute, _operator, _edges, _nodes, _weight, _weight, _shape, _set,
)  # fmt: skip
