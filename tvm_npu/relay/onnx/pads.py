"""Pads that say which axes they are of: TVM 0.19 takes them for those of all axes, and the value
for 0 where axes are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`. Since opset 18 there is an input for axes."""
    yield reader.Pad, "_impl_v18", _pad


def _pad(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    data, pads, value, axes = (*inputs, None, None)[:4]
    if axes is not None:
        pads = _of_all_axes(pads, axes, len(reader.infer_shape(data)), attr)
    return cls._impl_v11([data, pads, value], attr, params)


def _of_all_axes(pads: Any, axes: Any, rank: int, attr: Any) -> Any:
    name = called_in("Pad", attr)
    if not (isinstance(pads, relay.Constant) and isinstance(axes, relay.Constant)):
        raise PartitionError(
            f"{name} has axes, and they or the pads are computed; TVM 0.19 needs constants"
        )
    given = axes.data.numpy().reshape(-1).tolist()
    values = pads.data.numpy().reshape(-1)
    places = [axis % rank for axis in given if -rank <= axis < rank]
    if len(set(places)) < len(given) or len(values) != 2 * len(given):
        raise PartitionError(
            f"{name} has the axes {given} and {len(values)} pads; allowed: axes from {-rank} "
            f"to {rank - 1}, each once, and two pads for each"
        )
    whole = np.zeros((2, rank), values.dtype)
    whole[:, places] = values.reshape(2, -1)
    return relay.const(whole.reshape(-1), str(whole.dtype))
