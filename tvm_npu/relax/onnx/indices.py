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

ALONG_AN_AXIS = ("Gather", "GatherElements", "Scatter", "ScatterElements")
OF_SEVERAL_AXES = ("GatherND", "ScatterND")


def move_indices_inside(
    builder: Any, operator: str, inputs: list[Any], attrs: dict[str, Any], called: str
) -> None:
    """Counts constant ones from the front; PartitionError where one is none. Those that a model
    computes are moved inside of the tensor."""
    data, indices = inputs[0], inputs[1]
    if not (isinstance(data.ty, of.TensorType) and isinstance(indices.ty, of.TensorType)):
        return
    shape = of.extents(data.ty)
    if operator in OF_SEVERAL_AXES:
        first, count = int(attrs.get("batch_dims", 0)), of.extents(indices.ty)[-1]
        extents = shape[first : first + count] if isinstance(count, int) else ()
    else:
        axis = int(attrs.get("axis", 0))
        if not -len(shape) <= axis < len(shape):
            raise PartitionError(f"{called} has axis {axis} of a tensor with {len(shape)} axes")
        attrs["axis"] = axis % len(shape)
        extents = shape[attrs["axis"] : attrs["axis"] + 1]
    known = tuple(one for one in extents if isinstance(one, int) and one > 0)
    if not known or len(known) < len(extents):
        return
    if of.is_constant(indices):
        values = of.array_of(indices)
        inputs[1] = relax.const(counted_from_the_front(values, known, called), str(values.dtype))
        return
    inputs[1] = _inside(builder, indices, known)


def _inside(builder: Any, indices: Any, extents: tuple[int, ...]) -> Any:
    dtype = of.dtype_of(indices.ty)
    sizes = np.array(extents if len(extents) > 1 else extents[0], dtype)
    zero, limit = relax.const(0, dtype), relax.const(sizes, dtype)
    from_the_end = builder.emit(relax.op.add(indices, limit))
    found = builder.emit(relax.op.where(relax.op.less(indices, zero), from_the_end, indices))
    found = builder.emit(relax.op.maximum(found, zero))
    return builder.emit(relax.op.minimum(found, relax.const(sizes - 1, dtype)))


def scattered(builder: Any, inputs: list[Any], attrs: dict[str, Any], called: str) -> Any:
    """A ScatterElements of fewer indices than elements, by the places of all axes; None for others.
    Its indices are inside."""
    data, indices, updates = inputs[:3]
    shape, count = of.static_shape(data.ty), of.static_shape(indices.ty)
    if shape is not None and shape == count:
        return None
    if count is None:
        raise PartitionError(
            f"{called} has indices whose extents the model leaves open; say them (shapes=...)"
        )
    dtype, total = of.dtype_of(indices.ty), prod(count)
    grid, of_the_axis = places_of_all_axes(count, int(attrs.get("axis", 0)), dtype)
    flat = builder.emit(relax.op.reshape(indices, (total, 1)))
    places = builder.emit(relax.op.where(relax.const(of_the_axis), flat, relax.const(grid, dtype)))
    values = builder.emit(relax.op.reshape(updates, (total,)))
    reduction = attrs.get("reduction", b"none").decode()
    how = "update" if reduction == "none" else reduction
    return builder.emit(relax.op.scatter_nd(data, places, values, how))
