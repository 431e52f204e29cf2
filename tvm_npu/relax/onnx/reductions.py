"""Reductions whose axes TVM's importer takes for all."""

from __future__ import annotations

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader

_COMPUTE_FIRST = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


def _check_axes(node: Node) -> None:
    """ONNX's opsets differ in whether what is not reduced stays as it is."""
    attrs = node.attrs
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    empty = axes is None or (of.is_constant(axes) and not of.array_of(axes).size)
    if attrs.get("noop_with_empty_axes", 0) and empty and not attrs.get("axes"):
        raise PartitionError(f"{node.called} has noop_with_empty_axes and no axes; name the axes")


READERS: dict[str, Reader] = dict.fromkeys(_COMPUTE_FIRST, _check_axes)
