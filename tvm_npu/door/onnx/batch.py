"""Which axis of an ONNX model's inputs counts images: those of recurrent layers begin with steps.

An LSTM, GRU or RNN reads [steps, batch, features] and states [directions, batch, hidden], or both
with the batch in front (`layout` 1). From there the axis is followed back to the model's inputs
through what leaves it in sight: embeddings, elementwise operators, products with weights, views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.calibration import InputSpec
from tvm_npu.door.onnx.nodes import axes_of, nodes_and_tensors

_RECURRENT = {"LSTM": (0, 5, 6), "GRU": (0, 5), "RNN": (0, 5)}
"""Inputs of three axes that have the batch among them."""
_ELEMENTWISE = frozenset({"Add", "Concat", "Div", "Max", "Mean", "Min", "Mul", "Sub", "Sum"})
_IN_PLACE = frozenset(
    {
        "BatchNormalization", "Cast", "Clip", "DequantizeLinear", "Dropout", "Elu", "Erf", "Gelu",
        "HardSigmoid", "HardSwish", "Identity", "LayerNormalization", "LeakyRelu", "MatMul", "Neg",
        "PRelu", "QuantizeLinear", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Tanh",
    }
)  # fmt: skip
"""The first input has the axes of the result."""


@dataclass(frozen=True)
class _Axis:
    """The one that counts images, of a tensor with so many axes."""

    tensor: str
    number: int
    rank: int


def with_batch_axes(model: Any, inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """``inputs`` of an onnx.ModelProto, each with the axis of its images."""
    nodes = list(nodes_and_tensors(model, lambda tensor: tensor))
    open_axes = [axis for node, _ in nodes for axis in _axes_read(node)]
    if not open_axes:
        return inputs
    makers = {name: (node, weights) for node, weights in nodes for name in node.output}
    found = _batch_axes(open_axes, makers)
    return tuple(
        replace(spec, batch_axis=found[spec.name]) if spec.name in found else spec
        for spec in inputs
    )


def _batch_axes(
    open_axes: list[_Axis], makers: Mapping[str, tuple[Any, Mapping[str, Any]]]
) -> dict[str, int | None]:
    """By tensor, from the axes that recurrent layers read to the front; None: it has no such axis.
    ``makers`` say which node makes a tensor, and the weights that it sees."""
    found: dict[str, int | None] = {}
    while open_axes:
        axis = open_axes.pop()
        if axis.tensor in found or axis.number >= axis.rank:
            continue
        found[axis.tensor] = None if axis.number < 0 else axis.number - axis.rank
        if axis.tensor in makers and axis.number >= 0:
            open_axes += _axes_before(*makers[axis.tensor], axis)
    return found


def _axes_read(node: Any) -> Iterator[_Axis]:
    """Those that a recurrent node reads."""
    if node.op_type not in _RECURRENT:
        return
    in_front = any(item.name == "layout" and item.i for item in node.attribute)
    for number in _RECURRENT[node.op_type]:
        if number < len(node.input) and node.input[number]:
            yield _Axis(node.input[number], 0 if in_front else 1, 3)


def _axes_before(node: Any, weights: Mapping[str, Any], axis: _Axis) -> Iterator[_Axis]:
    """Of what ``node`` makes its result from; number -1: the axis is new in the result."""
    read = [name for name in node.input if name]
    if not read:
        return
    if node.op_type in _ELEMENTWISE:
        yield from (replace(axis, tensor=name) for name in read)
    elif node.op_type in _IN_PLACE:
        yield replace(axis, tensor=read[0])
    elif node.op_type == "Transpose":
        for item in node.attribute:
            if item.name == "perm" and len(item.ints) == axis.rank:
                yield _Axis(read[0], item.ints[axis.number], axis.rank)
    elif node.op_type == "Gather" and read[0] in weights and len(read) > 1:
        rank = axis.rank - len(weights[read[0]].dims) + 1
        if axis.number < rank and not any(item.i for item in node.attribute):
            yield _Axis(read[1], axis.number, rank)
    elif node.op_type == "Unsqueeze":
        new = {one % axis.rank for one in axes_of(node, weights)}
        if new:
            kept = [one for one in range(axis.rank) if one not in new]
            number = kept.index(axis.number) if axis.number in kept else -1
            yield _Axis(read[0], number, len(kept))
    elif node.op_type == "Squeeze":
        axes = axes_of(node, weights)
        rank = axis.rank + len(axes)
        gone = {one % rank for one in axes}
        if gone:
            yield _Axis(
                read[0], [one for one in range(rank) if one not in gone][axis.number], rank
            )
