"""LogSoftmax as one operator: TVM's ONNX frontend takes the logarithm of a Softmax, which is minus
infinity where that is too small for its type."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`. Before opset 13 all axes from ``axis`` on are one."""
    yield reader.LogSoftmax, "_impl_v1", _of_the_rest
    yield reader.LogSoftmax, "_impl_v13", _of_an_axis


def _of_an_axis(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    axis, rank = int(attr.get("axis", -1)), len(reader.infer_shape(inputs[0]))
    return relay.nn.log_softmax(inputs[0], axis % rank)


def _of_the_rest(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    shape = reader.infer_shape(inputs[0])
    axis = int(attr.get("axis", 1)) % len(shape)
    rows = relay.reshape(inputs[0], (prod(shape[:axis]), -1))
    return relay.reshape(relay.nn.log_softmax(rows, 1), shape)
