"""QuantizeLinear as ONNX means it: halves go to the even integer. TVM 0.19 rounds them away from 0,
so it gets numbers that are rounded already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.relay.roundings import whole_steps


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for name in ("_impl_v10", "_impl_v13"):
        convert = getattr(reader.QuantizeLinear, name).__func__
        yield reader.QuantizeLinear, name, _rounded_before(convert, by_channel=name == "_impl_v13")


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
