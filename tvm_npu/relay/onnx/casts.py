"""Casts of float64 to float16: TVM 0.19 calls a function for them that answers in another register
on x86. They go through float32, as in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnx import TensorProto
from tvm import relay
from tvm.relay.frontend import onnx as reader


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for cls, name, asks in (
        (reader.Cast, "_impl_v6", lambda inputs, attr: attr["to"] == TensorProto.FLOAT16),
        (reader.CastLike, "_impl_v15", lambda inputs, attr: _dtype(inputs[1]) == "float16"),
    ):
        yield cls, name, _through_float32(getattr(cls, name).__func__, asks)


def _through_float32(
    convert: Callable[..., Any], asks: Callable[[Any, Any], bool]
) -> Callable[..., Any]:
    """before: cast(x, float16)        after: cast(cast(x, float32), float16)"""

    def cast(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if asks(inputs, attr) and _dtype(inputs[0]) == "float64":
            inputs = [relay.cast(inputs[0], "float32"), *list(inputs)[1:]]
        return convert(cls, inputs, attr, params)

    return cast


def _dtype(value: Any) -> str:
    return str(reader.infer_type(value).checked_type.dtype)
