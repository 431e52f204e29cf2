"""What attributes and shapes of a call say together: windows, slices, parts, broadcasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.ops.resize import Interpolation, interpolation, nearest
from tvm_npu.door.dataflow import Array, OpCall, TensorShape


def normalized_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def reduced_axes(call: OpCall) -> tuple[int, ...]:
    """The axes that a reduction names, ascending."""
    rank = len(call.operands[0].shape)
    return tuple(sorted(normalized_axis(axis, rank) for axis in call.attributes["axis"]))


def softmax_count(call: OpCall) -> int:
    """Numbers that share one sum."""
    return call.shape[normalized_axis(call.attributes["axis"], len(call.shape))]


def pool_windows(
    call: OpCall,
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """(kernel, stride, padding) of a pooling call, with what ceil_mode adds at the end.

    TVM's ceil_mode rounds the output extent up; the padding at the bottom and right is widened
    so that every window lies inside the padded tensor.
    """
    _, _, rows, columns = call.operands[0].shape
    if call.name not in ("max_pool2d", "avg_pool2d"):
        return (rows, columns), (1, 1), (0, 0, 0, 0)
    kernel, stride = call.attributes["pool_size"], call.attributes["strides"]
    top, left, bottom, right = call.attributes["padding"]
    _, _, out_rows, out_columns = call.shape
    need_rows = (out_rows - 1) * stride[0] + kernel[0] - rows - top
    need_columns = (out_columns - 1) * stride[1] + kernel[1] - columns - left
    return kernel, stride, (top, left, max(bottom, need_rows), max(right, need_columns))


def is_reflected(call: OpCall) -> bool:
    """Does a padding mirror what lies inside, without the outermost?"""
    return "REFLECT" in (call.attributes.get("mode"), call.attributes.get("pad_mode", "").upper())


def slice_bounds(call: OpCall) -> tuple[tuple[int, int, int], ...]:
    """(begin, end, step) of a strided_slice on every axis, clamped; step keeps its sign."""
    shape, attributes = call.operands[0].shape, call.attributes
    begins, ends, steps = attributes["begin"], attributes["end"], attributes["strides"]
    axes = attributes["axes"] or tuple(range(len(begins)))
    bounds = [(0, extent, 1) for extent in shape]
    for position, raw_axis in enumerate(axes):
        axis = normalized_axis(raw_axis, len(shape))
        extent, begin = shape[axis], begins[position]
        begin = begin + extent if begin < 0 else begin
        if attributes["slice_mode"] == "size":
            size = ends[position]
            step, end = 1, extent if size < 0 else begin + size
        else:
            step = steps[position] if position < len(steps) else (steps[0] if steps else 1)
            end = ends[position] + extent if ends[position] < 0 else ends[position]
        if step > 0:
            bounds[axis] = (min(max(begin, 0), extent), min(max(end, 0), extent), step)
        else:  # the end may be in front of the first element
            begin, end = min(max(begin, -1), extent - 1), min(max(end, -1), extent - 1)
            bounds[axis] = (begin, end, step)
    return tuple(bounds)


def transposed_axes(call: OpCall) -> tuple[int, ...]:
    """Which axis of the operand each axis of a transpose's result is."""
    rank = len(call.operands[0].shape)
    axes = call.attributes["axes"] or tuple(reversed(range(rank)))
    return tuple(normalized_axis(axis, rank) for axis in axes)


@dataclass(frozen=True)
class ResizeChoices:
    """How an image is resized, in the words of `codegen.ops.resize`."""

    method: str
    transformation: str
    rounding: str
    alpha: float


def resize_choices(call: OpCall) -> ResizeChoices:
    """Of an upsampling or a resize2d."""
    attributes = call.attributes
    method = attributes["method"].removeprefix("bi")
    if call.name == "upsampling":
        transformation = "align_corners" if attributes["align_corners"] else "asymmetric"
        return ResizeChoices(method, transformation, "", -0.5)
    return ResizeChoices(
        method, attributes["coordinate_transformation_mode"], attributes["rounding_method"],
        attributes["cubic_alpha"],
    )  # fmt: skip


def nearest_indices(call: OpCall) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The rows and the columns of the operand that a nearest resize picks."""
    chosen = resize_choices(call)
    rows, columns = (
        nearest(extent, out, chosen.transformation, chosen.rounding)
        for extent, out in zip(call.operands[0].shape[2:], call.shape[2:], strict=True)
    )
    return rows, columns


def interpolations(call: OpCall) -> tuple[Interpolation, Interpolation]:
    """The matrices of rows and of columns of a linear or cubic resize."""
    chosen = resize_choices(call)
    rows, columns = (
        interpolation(extent, out, chosen.transformation, chosen.method, chosen.alpha)
        for extent, out in zip(call.operands[0].shape[2:], call.shape[2:], strict=True)
    )
    return rows, columns


def split_begins(call: OpCall) -> tuple[int, ...]:
    """First index of every part of a split along its axis."""
    shape = call.operands[0].shape
    extent = shape[normalized_axis(call.attributes["axis"], len(shape))]
    sections = call.attributes["indices_or_sections"]
    if isinstance(sections, int):
        return tuple(range(0, extent, extent // sections))
    return (0, *sections)


def channel_vector(values: Array, shape: TensorShape) -> NDArray[np.float32] | None:
    """A constant that broadcasts against ``shape`` as one value per channel, [C].

    None when it widens the shape or differs inside a channel or between images.
    """
    if values.ndim > len(shape):
        if any(extent != 1 for extent in values.shape[: values.ndim - len(shape)]):
            return None
        values = values.reshape(values.shape[values.ndim - len(shape) :])
    aligned = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(have not in (1, want) for have, want in zip(aligned.shape, shape, strict=True)):
        return None
    for axis in range(len(shape)):
        if axis != 1 and aligned.shape[axis] > 1:
            first = np.take(aligned, [0], axis=axis)
            if not np.array_equal(np.broadcast_to(first, aligned.shape), aligned):
                return None
            aligned = first
    return np.ascontiguousarray(np.broadcast_to(aligned.reshape(-1), shape[1]), dtype=np.float32)
