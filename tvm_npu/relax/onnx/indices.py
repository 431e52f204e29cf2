"""Indices that count from the end of their axis, and those that are none.

TVM's importer takes the negative ones of a Scatter for places in front of the tensor, and reads and
writes wherever others point to. Where a ScatterElements has fewer than elements, it takes them for
those of other rows.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.door.onnx.indices import counted_from_the_front, places_of_all_axes
from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader

_ALONG_AN_AXIS = ("Gather", "GatherElements", "Scatter", "ScatterElements")
_OF_SEVERAL_AXES = ("GatherND", "ScatterND")


def _move_indices_inside(node: Node) -> None:
    """Counts constant ones from the front; PartitionError where one is none. Those that a model
    computes are moved inside of the tensor."""
    inputs, attrs = node.inputs, node.attrs
    data, indices = inputs[0], inputs[1]
    if not (isinstance(data.ty, of.TensorType) and isinstance(indices.ty, of.TensorType)):
        return
    shape = of.extents(data.ty)
    if node.operator in _OF_SEVERAL_AXES:
        first, count = int(attrs.get("batch_dims", 0)), of.extents(indices.ty)[-1]
        extents = shape[first : first + count] if isinstance(count, int) else ()
    else:
        axis = int(attrs.get("axis", 0))
        if not -len(shape) <= axis < len(shape):
            raise PartitionError(
                f"{node.called} has axis {axis} of a tensor with {len(shape)} axes"
            )
        attrs["axis"] = axis % len(shape)
        extents = shape[attrs["axis"] : attrs["axis"] + 1]
    known = tuple(one for one in extents if isinstance(one, int) and one > 0)
    if not known or len(known) < len(extents):
        return
    if of.is_constant(indices):
        values = of.array_of(indices)
        inputs[1] = relax.const(
            counted_from_the_front(values, known, node.called), str(values.dtype)
        )
        return
    inputs[1] = _inside(node, indices, known)


def _inside(node: Node, indices: Any, extents: tuple[int, ...]) -> Any:
    dtype = of.dtype_of(indices.ty)
    sizes = np.array(extents if len(extents) > 1 else extents[0], dtype)
    zero, limit = relax.const(0, dtype), relax.const(sizes, dtype)
    from_the_end = node.emit(relax.op.add(indices, limit))
    found = node.emit(relax.op.where(relax.op.less(indices, zero), from_the_end, indices))
    found = node.emit(relax.op.maximum(found, zero))
    return node.emit(relax.op.minimum(found, relax.const(sizes - 1, dtype)))


def _scattered(node: Node) -> Any:
    """A ScatterElements of fewer indices than elements, by the places of all axes; None for
    others."""
    _move_indices_inside(node)
    data, indices, updates = node.inputs[:3]
    shape, count = of.static_shape(data.ty), of.static_shape(indices.ty)
    if shape is not None and shape == count:
        return None
    if count is None:
        raise PartitionError(
            f"{node.called} has indices whose extents the model leaves open; say them (shapes=...)"
        )
    dtype, total = of.dtype_of(indices.ty), prod(count)
    grid, of_the_axis = places_of_all_axes(count, int(node.attrs.get("axis", 0)), dtype)
    flat = node.emit(relax.op.reshape(indices, (total, 1)))
    places = node.emit(relax.op.where(relax.const(of_the_axis), flat, relax.const(grid, dtype)))
    values = node.emit(relax.op.reshape(updates, (total,)))
    reduction = node.attrs.get("reduction", b"none").decode()
    how = "update" if reduction == "none" else reduction
    return node.emit(relax.op.scatter_nd(data, places, values, how))


READERS: dict[str, Reader] = {
    **dict.fromkeys((*_ALONG_AN_AXIS, *_OF_SEVERAL_AXES), _move_indices_inside),
    "ScatterElements": _scattered,
}
