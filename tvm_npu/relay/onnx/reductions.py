"""Reductions whose axes are an input: TVM 0.19 takes the first of them alone, so that the mean over
rows and columns is one over rows. Its extremes of no elements are finite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError

_PLAIN = reader.Reduce
_COMPUTE_FIRST = (reader.ReduceL1, reader.ReduceL2, reader.ReduceLogSum, reader.ReduceSumSquare)
"""Those that do something with each element, also where they reduce nothing."""


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`. Since opset 13 or 18 axes are an input."""
    for cls in (_PLAIN, *_COMPUTE_FIRST):
        yield cls, "_impl_v13", _reduction
    for cls in (reader.ReduceMax, reader.ReduceMin):
        yield cls, "run_calculation", _extreme


def _extreme(cls: Any, inputs: Any, axis: Any, keepdims: Any) -> Any:
    shape = reader.infer_shape(inputs[0])
    if any(shape[one] == 0 for one in (axis if isinstance(axis, list | tuple) else [axis])):
        raise PartitionError(
            f"a {cls.__name__} over no elements is infinite in ONNX, and the last float in TVM "
            f"0.19; the tensor has the extents {list(shape)}: leave it out of the model"
        )
    return _PLAIN.run_calculation.__func__(cls, inputs, axis, keepdims)


def _reduction(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    """The axes, input or attribute, as the attribute that every opset's converter reads."""
    given = list(inputs)
    name = called_in("reduction", attr)
    axes = list(attr.get("axes", ()))
    if len(given) > 1 and given[1] is not None:
        if not isinstance(given[1], relay.Constant):
            raise PartitionError(
                f"{name} has axes that the model computes; TVM 0.19 needs constant ones"
            )
        axes = given[1].data.numpy().reshape(-1).tolist()
    attr.pop("axes", None)
    if axes:
        attr["axes"] = _checked(axes, len(reader.infer_shape(given[0])), name)
    elif attr.get("noop_with_empty_axes", 0):
        if issubclass(cls, _COMPUTE_FIRST):
            raise PartitionError(f"{name} has noop_with_empty_axes and no axes; name the axes")
        return given[0]
    return cls._impl_v1(given[:1], attr, params)


def _checked(axes: list[int], rank: int, name: str) -> list[int]:
    """TVM 0.19 ends the process for an axis that is there twice."""
    rank = max(rank, 1)
    if not all(-rank <= axis < rank for axis in axes):
        raise PartitionError(f"{name} has the axes {axes}; allowed: {-rank} to {rank - 1}")
    if len({axis % rank for axis in axes}) < len(axes):
        raise PartitionError(
            f"{name} has the axes {axes}, one of them twice, for which TVM 0.19 ends "
            "the process; name each once"
        )
    return [int(axis) for axis in axes]
