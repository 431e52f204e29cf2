"""QuantizeLinear and DynamicQuantizeLinear as ONNX means them: halves go to the even integer.

TVM 0.19 rounds them away from 0, so it gets numbers that are rounded already. Zeros have a range of
0, by which it divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.relay.roundings import to_even, whole_steps


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for name in ("_impl_v10", "_impl_v13"):
        convert = getattr(reader.QuantizeLinear, name).__func__
        yield reader.QuantizeLinear, name, _rounded_before(convert, by_channel=name == "_impl_v13")
    yield reader.DynamicQuantizeLinear, "_impl_v11", _by_its_range


def _rounded_before(convert: Callable[..., Any], by_channel: bool) -> Callable[..., Any]:
    """before: quantize(x, s)        after: quantize(whole_steps(x, s), s)"""

    def quantize(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, scale, zero = inputs
        dtype = reader.infer_type(data).checked_type.dtype
        if not dtype.startswith("float"):
            return convert(cls, inputs, attr, params)
        steps, rank = scale, len(reader.infer_shape(data))
        if by_channel and rank > 1 and reader.infer_shape(scale) not in ((), (1,)):
            behind = rank - 1 - int(attr.get("axis", 1)) % rank
            steps = relay.expand_dims(scale, axis=1, num_newaxis=behind)
        return convert(cls, [whole_steps(data, steps, dtype), scale, zero], attr, params)

    return quantize


def _by_its_range(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    data = inputs[0]
    dtype = reader.infer_type(data).checked_type.dtype
    zero, one, steps = (relay.const(value, dtype) for value in (0, 1, 255))
    low = relay.minimum(zero, relay.min(data))
    extent = relay.subtract(relay.maximum(zero, relay.max(data)), low)
    step = relay.where(relay.equal(extent, zero), one, relay.divide(extent, steps))
    place = to_even(relay.clip(relay.divide(relay.negative(low), step), 0, 255), dtype)
    point = relay.cast(place, "uint8")
    whole = whole_steps(data, step, dtype)
    found = relay.qnn.op.quantize(whole, step, relay.cast(point, "int32"), 0, "uint8")
    return relay.expr.TupleWrapper(relay.Tuple([found, step, point]), 3)
