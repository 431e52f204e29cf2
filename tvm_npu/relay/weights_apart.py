"""Large weights of an ONNX model as arrays of their own, so that the model's file need not stay in
memory while TVM reads it: it holds them once as the file has them, once as its own constants, and
once more where operators turn them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.weightless import without_weights
from tvm_npu.relay.light_check import KEPT_ELEMENTS

Weights = dict[str, NDArray[Any]]
_APART = "tvm_npu.weights_apart"


def with_weights_apart(model: Any) -> tuple[Any, Weights]:
    """A copy of an onnx.ModelProto whose large weights have names and shapes alone, for TVM to read
    inside of `handed_over`, and their values."""
    from onnx import TensorProto, numpy_helper

    light, weights = without_weights(model, KEPT_ELEMENTS), {}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > KEPT_ELEMENTS:
            weights[tensor.name] = numpy_helper.to_array(tensor)
            light.graph.initializer.append(
                TensorProto(
                    name=tensor.name, dims=tensor.dims, data_type=tensor.data_type,
                    doc_string=_APART,
                )
            )  # fmt: skip
    return light, weights


@contextmanager
def handed_over(weights: Weights) -> Iterator[None]:
    """Within it TVM's frontend takes each of ``weights`` once, which then are gone. Within
    `quick_reading`, so one thread at a time."""
    original = reader.get_numpy

    def get_numpy(tensor: Any) -> Any:
        if tensor.doc_string == _APART:
            return weights.pop(tensor.name)
        return original(tensor)

    reader.get_numpy = get_numpy
    try:
        yield
    finally:
        reader.get_numpy = original
