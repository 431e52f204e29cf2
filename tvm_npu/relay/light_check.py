"""ONNX's checker, which TVM's frontend asks about every model, without the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm_npu.door.weightless import without_weights

KEPT_ELEMENTS = 1 << 14
"""What is checked with the nodes: all but large weights."""


def light_check(whole: Callable[..., Any]) -> Callable[..., Any]:
    """``onnx.checker.check_model`` with large weights declared as inputs of the graph."""

    def check_model(model: Any, *arguments: Any, **named: Any) -> Any:
        return whole(without_weights(model, KEPT_ELEMENTS), *arguments, **named)

    return check_model
