"""Multiply-accumulate counts of an ONNX model, from inferred static shapes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import onnx

from tvm_npu.door.onnx.shapes import check_extents, inferred
from tvm_npu.door.weightless import without_weights
from tvm_npu.door.window_attributes import check_windows

from .errors import ModelShapeError

COUNTED_OPS = ("Conv", "ConvTranspose", "Gemm", "GRU", "LSTM", "MatMul")

Shapes = dict[str, tuple[int, ...]]


def macs(model: onnx.ModelProto, *, ops: Collection[str] = COUNTED_OPS) -> int:
    """MACs of all convolutions, transposed convolutions, Gemms, MatMuls, LSTMs and GRUs (or only
    those in `ops`) for one inference.

    Positions that touch padding count in full, as in published counts; of a transposed convolution
    every input element meets the whole kernel. Of recurrent layers the products of weights count.
    """
    return sum(count for _, count in macs_by_node(model, ops=ops))


def macs_by_node(
    model: onnx.ModelProto, *, ops: Collection[str] = COUNTED_OPS
) -> Iterator[tuple[str, int]]:
    """(node name or first output, MACs) of each counted node, in graph order."""
    shapes = static_shapes(model)
    for node in model.graph.node:
        if node.op_type in ops and node.op_type in COUNTED_OPS:
            yield node.name or node.output[0], _node_macs(node, shapes)


def _node_macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    if node.op_type == "Conv":
        output = math.prod(shape_of(shapes, node.output[0]))
        return output * math.prod(shape_of(shapes, node.input[1])[1:])
    first = shape_of(shapes, node.input[0])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(shape_of(shapes, node.input[1])[1:])
    if node.op_type in ("GRU", "LSTM"):
        return math.prod(first[:2]) * sum(
            math.prod(shape_of(shapes, weight)) for weight in node.input[1:3]
        )
    transposed = node.op_type == "Gemm" and any(
        attribute.name == "transA" and attribute.i for attribute in node.attribute
    )
    output = math.prod(shape_of(shapes, node.output[0]))
    return output * (first[0] if transposed else first[-1])


def shape_of(shapes: Shapes, name: str) -> tuple[int, ...]:
    """The shape of tensor `name`; ModelShapeError where it is not static."""
    try:
        return shapes[name]
    except KeyError:
        raise ModelShapeError(f"tensor {name!r} has no static shape; allowed: static") from None


def static_shapes(model: onnx.ModelProto) -> Shapes:
    """Static shape of every tensor. Inference runs on a copy without the large weights. Raises
    PartitionError for windows and extents that there are not."""
    check_windows(model)
    check_extents(model)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    graph = inferred(without_weights(model)).graph
    for value in [*graph.input, *graph.value_info, *graph.output]:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes.setdefault(value.name, tuple(d.dim_value for d in dims))
    return shapes
