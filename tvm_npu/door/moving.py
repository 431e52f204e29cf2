"""Operators that move elements, or join those along one axis, as layers of the NPU graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tvm_npu.codegen import graph as g
from tvm_npu.codegen import ops
from tvm_npu.codegen.ops.resize import Interpolation, runs
from tvm_npu.door import geometry
from tvm_npu.door.dataflow import OpCall
from tvm_npu.door.graph_builder import GraphBuilder

MOST_BLOCK = 64
"""Rows of the result of an interpolation that one convolution makes: each needs few rows of the
image, so one for all would mostly multiply by zero."""


def transposed(b: GraphBuilder, call: OpCall, tensor: str, axes: tuple[int, ...]) -> str:
    """A layer of ``call``: ``tensor`` with its axes in another order, as a reshape where nothing
    has to move."""
    shape = b.shapes[tensor]
    target = tuple(shape[axis] for axis in axes)
    common = b.common(call, tensor, shape=target)
    long = [axis for axis in axes if shape[axis] > 1]
    if long == sorted(long):
        b.layers.append(ops.Reshape(**common))
    else:
        b.layers.append(ops.Transpose(**common, shape=shape, axes=axes))
    return str(common["outputs"][0])


def reshaped(b: GraphBuilder, call: OpCall, tensor: str, shape: g.Shape) -> str:
    """A layer of ``call``: ``tensor`` under another shape."""
    common = b.common(call, tensor, shape=shape)
    b.layers.append(ops.Reshape(**common))
    return str(common["outputs"][0])


def _transpose(b: GraphBuilder, call: OpCall) -> None:
    axes = tuple(axis - 1 for axis in geometry.transposed_axes(call)[1:])
    transposed(b, call, b.input(call), axes)


def _reverse(b: GraphBuilder, call: OpCall) -> None:
    shape = b.shapes[b.input(call)]
    axis = geometry.normalized_axis(call.attributes["axis"], len(shape) + 1) - 1
    begins = tuple(extent - 1 if k == axis else 0 for k, extent in enumerate(shape))
    steps = tuple(-1 if k == axis else 1 for k in range(len(shape)))
    common = b.common(call)
    b.layers.append(
        ops.StridedSlice(**common, shape=shape, begins=begins, steps=steps, extents=shape)
    )


def _depth_to_space(b: GraphBuilder, call: OpCall) -> None:
    block = call.attributes["block_size"]
    channels, rows, columns = b.shapes[b.input(call)]
    depth = channels // block**2
    if call.attributes["mode"] == "DCR":
        parted, axes = (block, block, depth, rows, columns), (2, 3, 0, 4, 1)
    else:
        parted, axes = (depth, block, block, rows, columns), (0, 3, 1, 4, 2)
    turned = transposed(b, call, reshaped(b, call, b.input(call), parted), axes)
    reshaped(b, call, turned, call.shape[1:])


def _space_to_depth(b: GraphBuilder, call: OpCall) -> None:
    block = call.attributes["block_size"]
    channels, rows, columns = b.shapes[b.input(call)]
    parted = (channels, rows // block, block, columns // block, block)
    turned = transposed(b, call, reshaped(b, call, b.input(call), parted), (2, 4, 0, 1, 3))
    reshaped(b, call, turned, call.shape[1:])


def _resize(b: GraphBuilder, call: OpCall) -> None:
    if geometry.resize_choices(call).method == "nearest_neighbor":
        _nearest(b, call)
    else:
        _interpolate(b, call)


def _nearest(b: GraphBuilder, call: OpCall) -> None:
    """One layer where rows and columns are one pattern each; else rows, then columns, these as rows
    of the turned image: whole rows are moved at once."""
    rows, columns = geometry.nearest_indices(call)
    tensor = b.input(call)
    channels, _, width = b.shapes[tensor]

    def pick(tensor: str, picked: tuple[int, ...], others: tuple[int, ...]) -> str:
        shape = b.shapes[tensor]
        common = b.common(call, tensor, shape=(shape[0], len(picked), len(others)))
        b.layers.append(ops.ResizeNearest(**common, shape=shape, rows=picked, columns=others))
        return str(common["outputs"][0])

    if len(runs(columns)) == 1:
        pick(tensor, rows, columns)
        return
    if rows != tuple(range(len(rows))) or len(rows) != b.shapes[tensor][1]:
        tensor = pick(tensor, rows, tuple(range(width)))
    turned = transposed(b, call, tensor, (2, 0, 1))
    flat = reshaped(b, call, turned, (1, width, channels * len(rows)))
    picked = pick(flat, columns, tuple(range(channels * len(rows))))
    turned = reshaped(b, call, picked, (len(columns), channels, len(rows)))
    transposed(b, call, turned, (1, 2, 0))


def _interpolate(b: GraphBuilder, call: OpCall) -> None:
    """Rows, then columns, or the other way round where that takes fewer products."""
    down, across = geometry.interpolations(call)
    tensor = b.input(call)
    _, rows, columns = b.shapes[tensor]
    down_first = rows * down.out * columns + columns * across.out * down.out
    across_first = columns * across.out * rows + rows * down.out * across.out
    if down_first <= across_first:
        made = _weighed(b, call, transposed(b, call, tensor, (1, 0, 2)), down)
        made = _weighed(b, call, transposed(b, call, made, (2, 1, 0)), across)
        transposed(b, call, made, (1, 2, 0))
    else:
        made = _weighed(b, call, transposed(b, call, tensor, (2, 0, 1)), across)
        made = _weighed(b, call, transposed(b, call, made, (2, 1, 0)), down)
        transposed(b, call, made, (1, 0, 2))


def _weighed(b: GraphBuilder, call: OpCall, tensor: str, matrix: Interpolation) -> str:
    """Sums along the first axis of ``tensor`` by the rows of ``matrix``, as 1x1 convolutions of
    the part of it that each block of rows needs."""
    shape = b.shapes[tensor]
    count = -(-matrix.out // MOST_BLOCK)
    made = []
    for number in range(count):
        begin, block = matrix.part(
            matrix.out * number // count, matrix.out * (number + 1) // count
        )
        end = begin + block.shape[1]
        source = tensor
        if end - begin < shape[0]:
            common = b.common(call, tensor, shape=(end - begin, *shape[1:]))
            b.layers.append(ops.ChannelSlice(**common, begin=begin))
            source = common["outputs"][0]
        weight = np.ascontiguousarray(block[..., None, None])
        common = b.common(call, source, shape=(len(block), *shape[1:]))
        b.layers.append(ops.Conv2d(**common, weight=weight, bias=np.zeros(len(block), np.float32)))
        made.append(common["outputs"][0])
    if count == 1:
        return str(made[0])
    common = b.common(call, *made, shape=(matrix.out, *shape[1:]))
    b.layers.append(ops.Concat(**common))
    return str(common["outputs"][0])


def _softmax(b: GraphBuilder, call: OpCall) -> None:
    """Along the last axis; another one is turned there and back."""
    shape = b.shapes[b.input(call)]
    axis = geometry.normalized_axis(call.attributes["axis"], len(shape) + 1) - 1
    order = (*(k for k in range(len(shape)) if k != axis), axis)
    source = b.input(call)
    if axis < len(shape) - 1:
        source = transposed(b, call, source, order)
    common = b.common(call, source, shape=b.shapes[source])
    b.layers.append(ops.Softmax(**common, count=shape[axis]))
    if axis < len(shape) - 1:
        back = tuple(order.index(k) for k in range(len(shape)))
        transposed(b, call, common["outputs"][0], back)


MOVING: dict[str, Callable[[GraphBuilder, OpCall], None]] = {
    "transpose": _transpose,
    "reverse": _reverse,
    "softmax": _softmax,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "upsampling": _resize,
    "image.resize2d": _resize,
}
"""operator -> what appends its layers."""

_RESIZED = (
    ops.ResizeNearest, ops.Reshape, ops.Transpose, ops.Conv2d, ops.ChannelSlice, ops.Concat,
)  # fmt: skip
MAKES_BY_MOVING: dict[str, tuple[type[g.Layer], ...]] = {
    **dict.fromkeys(
        ("transpose", "depth_to_space", "space_to_depth"), (ops.Transpose, ops.Reshape)
    ),
    "reverse": (ops.StridedSlice,),
    "softmax": (ops.Softmax, ops.Transpose, ops.Reshape),
    "upsampling": _RESIZED,
    "image.resize2d": _RESIZED,
}
"""operator -> the types of layers that it becomes."""
