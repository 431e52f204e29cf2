"""Nodes of ONNX models that TVM's importer reads in part: what it ignores is made of their inputs
and attributes before it reads them, or of its result."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.images import (
    SCALES,
    check_resize,
    check_wrapped_pads,
    move_regions,
    upsampled,
)
from tvm_npu.relax.onnx.indices import (
    ALONG_AN_AXIS,
    OF_SEVERAL_AXES,
    move_indices_inside,
    scattered,
)
from tvm_npu.relax.onnx.results import (
    dropped_out,
    is_infinite,
    normalized_layer,
    quantized_by_range,
)
from tvm_npu.relax.onnx.windows import make_windows_whole, pad_transposed

_COMPUTE_FIRST = frozenset({"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"})


def prepare(
    builder: Any, operator: str, inputs: list[Any], attrs: dict[str, Any], opset: int
) -> Any:
    """Makes of a node's inputs and attributes what TVM reads well. The result where it reads none
    well, else None."""
    called = f"{operator} {attrs['tvm_custom'].get('name', '')!r}"
    if operator in ALONG_AN_AXIS or operator in OF_SEVERAL_AXES:
        move_indices_inside(builder, operator, inputs, attrs, called)
        if operator == "ScatterElements":
            return scattered(builder, inputs, attrs, called)
    elif operator == "LpPool":
        make_windows_whole(inputs, attrs, called)
    elif operator == "ConvTranspose":
        pad_transposed(inputs, attrs, called)
    elif operator in SCALES:
        check_resize(operator, inputs, attrs, called)
        return upsampled(builder, inputs, attrs, called) if operator == "Upsample" else None
    elif operator == "Pad":
        check_wrapped_pads(inputs, attrs, called)
    elif operator == "RoiAlign":
        move_regions(builder, inputs, attrs, opset)
    elif operator in _COMPUTE_FIRST:
        _check_axes(inputs, attrs, called)
    elif operator == "IsInf":
        return is_infinite(builder, inputs[0], attrs)
    elif operator == "DynamicQuantizeLinear":
        return quantized_by_range(builder, inputs[0])
    elif operator == "Dropout":
        return dropped_out(builder, inputs, attrs, called)
    return None


def complete(
    builder: Any, operator: str, made: Any, inputs: list[Any], attrs: dict[str, Any]
) -> Any:
    """TVM's result, or what ONNX means."""
    if operator == "LayerNormalization":
        return normalized_layer(builder, made, inputs[0], attrs)
    if operator == "OneHot":
        return relax.op.astype(made, of.dtype_of(inputs[2].ty))
    return made


def _check_axes(inputs: list[Any], attrs: dict[str, Any], called: str) -> None:
    """ONNX's opsets differ in whether what is not reduced stays as it is."""
    axes = inputs[1] if len(inputs) > 1 else None
    empty = axes is None or (of.is_constant(axes) and not of.array_of(axes).size)
    if attrs.get("noop_with_empty_axes", 0) and empty and not attrs.get("axes"):
        raise PartitionError(f"{called} has noop_with_empty_axes and no axes; name the axes")
