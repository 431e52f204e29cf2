"""Results of ONNX nodes that TVM's importer makes up, or makes of a part of what the node says."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of

Attributes = dict[str, Any]


def is_infinite(builder: Any, data: Any, attrs: Attributes) -> Any:
    """An IsInf that asks for one sign alone; None for one that asks for both."""
    signs = [bool(attrs.get(name, 1)) for name in ("detect_negative", "detect_positive")]
    if all(signs):
        return None
    zero = relax.const(0, of.dtype_of(data.ty))
    found = relax.op.isinf(data)
    compare = relax.op.less if signs[0] else relax.op.greater
    if not any(signs):
        return builder.emit(relax.op.logical_and(found, relax.op.logical_not(found)))
    return builder.emit(relax.op.logical_and(found, compare(data, zero)))


def normalized_layer(builder: Any, made: Any, data: Any, attrs: Attributes) -> Any:
    """The results of a LayerNormalization beside the first one, in place of 0: means, and what the
    distances from them are multiplied by."""
    if attrs["tvm_custom"]["num_outputs"] < 2:
        return made
    rank = len(of.extents(data.ty))
    axes = list(range(int(attrs.get("axis", -1)) % rank, rank))
    mean = builder.emit(relax.op.mean(data, axes, True))
    spread = builder.emit(relax.op.variance(data, axes, True))
    epsilon = relax.const(attrs.get("epsilon", 1e-5), of.dtype_of(data.ty))
    factor = builder.emit(relax.op.rsqrt(relax.op.add(spread, epsilon)))
    return of.Tuple([made.fields[0], mean, factor])


def dropped_out(builder: Any, inputs: list[Any], attrs: Attributes, called: str) -> Any:
    """A Dropout whose mask is asked for: it drops nothing, the mask is True. None for one without;
    PartitionError for one of training."""
    training = inputs[2] if len(inputs) > 2 else None
    if training is not None and not (of.is_constant(training) and not of.array_of(training).any()):
        raise PartitionError(
            f"{called} has a training_mode that is not a constant False, which TVM ignores: export "
            "the model for inference"
        )
    if attrs["tvm_custom"]["num_outputs"] < 2:
        return None
    whole = relax.op.full_like(inputs[0], relax.const(True, "bool"), "bool")
    return of.Tuple([inputs[0], builder.emit(whole)])


def quantized_by_range(builder: Any, data: Any) -> Any:
    """The results of a DynamicQuantizeLinear, of zeros too: TVM's importer divides them by 0."""
    dtype = of.dtype_of(data.ty)
    zero, one, steps = (relax.const(value, dtype) for value in (0, 1, 255))
    low = builder.emit(relax.op.minimum(zero, relax.op.min(data)))
    extent = builder.emit(relax.op.subtract(relax.op.maximum(zero, relax.op.max(data)), low))
    step = builder.emit(relax.op.divide(extent, steps))
    step = builder.emit(relax.op.where(relax.op.equal(extent, zero), one, step))
    place = builder.emit(relax.op.divide(relax.op.negative(low), step))
    place = builder.emit(relax.op.round(relax.op.clip(place, 0, 255)))
    point = builder.emit(relax.op.astype(place, "uint8"))
    found = relax.op.quantize(data, step, point, axis=0, out_dtype="uint8")
    return of.Tuple([builder.emit(found), step, point])
