"""Results of ONNX nodes that TVM's importer makes up, or makes of a part of what the node says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader


def _is_infinite(node: Node) -> Any:
    """An IsInf that asks for one sign alone; None for one that asks for both."""
    data = node.inputs[0]
    signs = [bool(node.attrs.get(name, 1)) for name in ("detect_negative", "detect_positive")]
    if all(signs):
        return None
    zero = relax.const(0, of.dtype_of(data.ty))
    found = relax.op.isinf(data)
    compare = relax.op.less if signs[0] else relax.op.greater
    if not any(signs):
        return node.emit(relax.op.logical_and(found, relax.op.logical_not(found)))
    return node.emit(relax.op.logical_and(found, compare(data, zero)))


def _normalized_layer(node: Node, made: Any) -> Any:
    """The results of a LayerNormalization beside the first one, in place of 0: means, and what the
    distances from them are multiplied by."""
    if node.result_count < 2:
        return made
    data, attrs = node.inputs[0], node.attrs
    rank = len(of.extents(data.ty))
    axes = list(range(int(attrs.get("axis", -1)) % rank, rank))
    mean = node.emit(relax.op.mean(data, axes, True))
    spread = node.emit(relax.op.variance(data, axes, True))
    epsilon = relax.const(attrs.get("epsilon", 1e-5), of.dtype_of(data.ty))
    factor = node.emit(relax.op.rsqrt(relax.op.add(spread, epsilon)))
    return of.Tuple([made.fields[0], mean, factor])


def _dropped_out(node: Node) -> Any:
    """A Dropout whose mask is asked for: it drops nothing, the mask is True. None for one without;
    PartitionError for one of training."""
    inputs = node.inputs
    training = inputs[2] if len(inputs) > 2 else None
    if training is not None and not (of.is_constant(training) and not of.array_of(training).any()):
        raise PartitionError(
            f"{node.called} has a training_mode that is not a constant False, which TVM ignores: "
            "export the model for inference"
        )
    if node.result_count < 2:
        return None
    whole = relax.op.full_like(inputs[0], relax.const(True, "bool"), "bool")
    return of.Tuple([inputs[0], node.emit(whole)])


def _quantized_by_range(node: Node) -> Any:
    """The results of a DynamicQuantizeLinear, of zeros too: TVM's importer divides them by 0."""
    data, emit = node.inputs[0], node.emit
    dtype = of.dtype_of(data.ty)
    zero, one, steps = (relax.const(value, dtype) for value in (0, 1, 255))
    low = emit(relax.op.minimum(zero, relax.op.min(data)))
    extent = emit(relax.op.subtract(relax.op.maximum(zero, relax.op.max(data)), low))
    step = emit(relax.op.divide(extent, steps))
    step = emit(relax.op.where(relax.op.equal(extent, zero), one, step))
    place = emit(relax.op.divide(relax.op.negative(low), step))
    place = emit(relax.op.round(relax.op.clip(place, 0, 255)))
    point = emit(relax.op.astype(place, "uint8"))
    found = relax.op.quantize(data, step, point, axis=0, out_dtype="uint8")
    return of.Tuple([emit(found), step, point])


def _one_hot(node: Node, made: Any) -> Any:
    """Of the type of its values."""
    return relax.op.astype(made, of.dtype_of(node.inputs[2].ty))


READERS: dict[str, Reader] = {
    "Dropout": _dropped_out,
    "DynamicQuantizeLinear": _quantized_by_range,
    "IsInf": _is_infinite,
}
COMPLETED: dict[str, Callable[[Node, Any], Any]] = {
    "LayerNormalization": _normalized_layer,
    "OneHot": _one_hot,
}
"""What ONNX means, of what TVM's converter made."""
