"""ONNX models as every TVM's frontend reads them well: copies in which something is spelled out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.door.constant_sizes import check_constants
from tvm_npu.door.divisors import check_divisors
from tvm_npu.door.onnx.nodes import axes_of
from tvm_npu.door.onnx.plain import check_strings, is_plain, make_plain
from tvm_npu.door.onnx.shapes import check_extents, inferred, known_shapes
from tvm_npu.door.weightless import without_weights
from tvm_npu.door.window_attributes import check_windows
from tvm_npu.errors import PartitionError

_WINDOWED = frozenset(
    {"Conv", "MaxPool", "AveragePool", "LpPool", "QLinearConv", "QLinearAveragePool"}
)
_WEIGHTS = {"QLinearConv": 3}
"""Number of the input that holds the weights, where it is not 1."""
_QUANTIZED = {
    "QLinearAdd": ("Add", slice(0, 4, 3)),
    "QLinearMul": ("Mul", slice(0, 4, 3)),
    "QLinearConcat": ("Concat", slice(2, None, 3)),
    "QLinearAveragePool": ("AveragePool", slice(1)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", slice(1)),
    "QLinearLeakyRelu": ("Identity", slice(1)),
    "QLinearSigmoid": ("Identity", slice(1)),
    "QLinearSoftmax": ("Identity", slice(1)),
    "QGemm": ("Gemm", slice(0, 4, 3)),
}
"""onnxruntime's quantized operators: ONNX's own with results of the same shapes, and its inputs
among theirs."""


def load_model(model: Any) -> Any:
    """A model, or that of a path. Raises PartitionError for a file that is not an ONNX model, and
    for what is neither."""
    import onnx

    if isinstance(model, str | Path):
        try:
            return onnx.load(str(model))
        except Exception as error:  # protobuf's own error types differ between its backends
            raise PartitionError(f"cannot read ONNX model {str(model)!r}: {error}") from error
    if not isinstance(model, onnx.ModelProto):
        raise PartitionError(
            f"an ONNX model is a {type(model).__name__}; expected an onnx.ModelProto or a path"
        )
    return model


def read_model(model: Any) -> Any:
    """As `load_model`, with nodes as `plain` spells them; a copy where that is not how a given
    model spells them. Raises PartitionError, too, for windows and tensors that there are not,
    integers that a constant 0 divides, constants that would be computed larger than memory, and
    strings."""
    given, model = model, load_model(model)
    if not is_plain(model):
        if model is given:
            model = type(given)()
            model.CopyFrom(given)
        make_plain(model)
    check_strings(model)
    check_windows(model)
    check_extents(model)
    check_divisors(model)
    check_constants(model)
    return model


def with_explicit_padding(model: Any, shape: Mapping[str, tuple[int, ...]] | None = None) -> Any:
    """A copy of a model of `read_model` in which ``auto_pad`` is replaced by ``pads``, where shapes
    are known; the model itself when there is nothing to replace.

    before: Conv(auto_pad=SAME_UPPER, kernel 5x5)        after: Conv(pads=[2, 2, 2, 2])
    """
    import onnx

    if not any(_auto_pad(node) for node in model.graph.node):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for graph_input in model.graph.input:
        extents = (shape or {}).get(graph_input.name)
        if extents is not None:
            dims = graph_input.type.tensor_type.shape.dim
            for dim, extent in zip(dims, extents, strict=False):
                dim.dim_value = int(extent)
    shapes = known_shapes(inferred(_with_own_operators(model)).graph)
    for node in model.graph.node:
        mode = _auto_pad(node)
        pads = _pads(node, mode, shapes) if mode else None
        if pads is not None:
            kept = [item for item in node.attribute if item.name not in ("auto_pad", "pads")]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])
    return model


def _with_own_operators(model: Any) -> Any:
    """A copy, without its weights, whose tensors have the same shapes, for ONNX to infer them."""
    plain = without_weights(model)
    for node in plain.graph.node:
        if node.domain != "com.microsoft" or node.op_type not in _QUANTIZED:
            continue
        node.op_type, which = _QUANTIZED[node.op_type]
        node.domain = ""
        inputs = list(node.input)[which]
        del node.input[:]
        node.input.extend(inputs)
    return plain


def with_folded_views(model: Any) -> Any:
    """A copy of an ONNX model in which every Unsqueeze of a weight is a weight itself; the model
    itself when there is none.

    before: Mul(x, Unsqueeze(scale [C]))        after: Mul(x, scale [C, 1, 1])
    """
    import onnx
    from onnx import numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    if not any(_unsqueezed_axes(node, weights) for node in model.graph.node):
        return model
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        axes = _unsqueezed_axes(node, weights)
        if not axes:
            kept.append(node)
            continue
        values = numpy_helper.to_array(weights[node.input[0]])
        tensor = numpy_helper.from_array(np.expand_dims(values, axes), node.output[0])
        weights[tensor.name] = tensor
        graph.initializer.append(tensor)
    del graph.node[:]
    graph.node.extend(kept)
    return model


def _unsqueezed_axes(node: Any, weights: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes that an Unsqueeze adds to a weight."""
    if node.op_type != "Unsqueeze" or node.input[0] not in weights:
        return ()
    return axes_of(node, weights)


def _auto_pad(node: Any) -> str:
    if node.op_type in _WINDOWED:
        for item in node.attribute:
            if item.name == "auto_pad" and item.s not in (b"", b"NOTSET"):
                return str(item.s.decode())
    return ""


def _pads(node: Any, mode: str, shapes: dict[str, tuple[int, ...]]) -> list[int] | None:
    """ONNX's [begins..., ends...] for SAME_UPPER, SAME_LOWER or VALID; None for unknown shapes."""
    attributes = {item.name: tuple(item.ints) for item in node.attribute if item.ints}
    kernel = attributes.get("kernel_shape", ())
    if not kernel and node.op_type in ("Conv", "QLinearConv"):
        kernel = shapes.get(node.input[_WEIGHTS.get(node.op_type, 1)], ())[2:]
    spatial = shapes.get(node.input[0], ())[2:]
    if not kernel or len(spatial) != len(kernel) or 0 in spatial:
        return None
    strides = attributes.get("strides") or (1,) * len(kernel)
    dilations = attributes.get("dilations") or (1,) * len(kernel)
    begins, ends = [], []
    for extent, size, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        window = (size - 1) * dilation + 1
        total = max((-(-extent // stride) - 1) * stride + window - extent, 0)
        if mode == "VALID":
            total = 0
        small, large = total // 2, total - total // 2
        begins.append(large if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else large)
    return begins + ends
