"""Indices that count from the end of their axis, and those that are none.

TVM 0.19 adds the extent of the first axis to negative ones along an axis that is itself counted
from the end, takes those of GatherND and ScatterND for places in front of the tensor, and reads and
writes wherever others point to. Where a ScatterElements has fewer than elements, it takes them for
those of other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.indices import counted_from_the_front, places_of_all_axes
from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError

_ALONG_AN_AXIS = (reader.Gather, reader.GatherElements, reader.Scatter, reader.ScatterElements)
_OF_SEVERAL_AXES = (reader.GatherND, reader.ScatterND)


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for cls in (*_ALONG_AN_AXIS, *_OF_SEVERAL_AXES):
        for name in vars(cls):
            if name.startswith("_impl_v"):
                yield cls, name, _inside(cls, getattr(cls, name).__func__)


def _inside(of: Any, convert: Callable[..., Any]) -> Callable[..., Any]:
    def indexed(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, indices = inputs[0], inputs[1]
        shape = reader.infer_shape(data)
        if of in _OF_SEVERAL_AXES:
            first = int(attr.get("batch_dims", 0))
            extents = shape[first : first + int(reader.infer_shape(indices)[-1])]
        else:
            axis = int(attr.get("axis", 0))
            if not -len(shape) <= axis < len(shape):
                raise PartitionError(
                    f"{called_in(of.__name__, attr)} has axis {axis} of a tensor with "
                    f"{len(shape)} axes"
                )
            attr["axis"] = axis % len(shape)
            extents = shape[attr["axis"] : attr["axis"] + 1]
        if all(isinstance(one, int) and one > 0 for one in extents):
            indices = _counted_from_the_front(of, indices, extents, called_in(of.__name__, attr))
        if of in (reader.Scatter, reader.ScatterElements):
            count = reader.infer_shape(indices)
            if count != shape and all(isinstance(one, int) for one in count):
                return _by_all_axes(data, indices, inputs[2], count, attr)
        return convert(cls, reader.onnx_input([data, indices, *inputs[2:]]), attr, params)

    return indexed


def _by_all_axes(data: Any, indices: Any, updates: Any, count: tuple[int, ...], attr: Any) -> Any:
    """A ScatterElements by the places of all axes."""
    dtype = reader.infer_type(indices).checked_type.dtype
    grid, of_the_axis = places_of_all_axes(count, attr["axis"], dtype)
    flat = relay.reshape(indices, (len(grid), 1))
    places = relay.where(relay.const(of_the_axis), flat, relay.const(grid, dtype))
    reduction = attr.get("reduction", b"none").decode()
    how = "update" if reduction == "none" else reduction
    values = relay.reshape(updates, (len(grid),))
    return relay.scatter_nd(data, relay.transpose(places, (1, 0)), values, how)


def _counted_from_the_front(of: Any, indices: Any, extents: tuple[int, ...], name: str) -> Any:
    """Constant ones; PartitionError where one is none. Those that a model computes are moved inside
    of the tensor, but for Gather, of which TVM does that."""
    if isinstance(indices, relay.Constant):
        values = indices.data.numpy()
        found = counted_from_the_front(values, extents, name)
        return relay.const(found, str(values.dtype)) if (values < 0).any() else indices
    if of is reader.Gather:
        return indices
    dtype = reader.infer_type(indices).checked_type.dtype
    zero, one = relay.const(0, dtype), relay.const(1, dtype)
    limit = relay.const(np.array(extents if of in _OF_SEVERAL_AXES else extents[0]), dtype)
    found = relay.where(relay.less(indices, zero), relay.add(indices, limit), indices)
    return relay.minimum(relay.maximum(found, zero), relay.subtract(limit, one))
