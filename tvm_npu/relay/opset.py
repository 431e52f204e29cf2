"""ONNX operator sets that TVM's Relay frontend can be trusted with."""

from __future__ import annotations

from typing import Any

from tvm_npu.door.onnx.attributes import UNDERSTOOD_BY_ALL, Understood, check_attributes
from tvm_npu.door.onnx.nodes import called, nodes_of
from tvm_npu.door.onnx.shapes import inferred, known_shapes
from tvm_npu.errors import PartitionError

NEWEST_OPSET = 18
"""The newest operator set for which TVM 0.19 has converters of its own; it reads later operators
by their last older definition without a word."""

ONLY_MORE_TYPES = frozenset(
    {
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "Bernoulli", "Cast",
        "CastLike", "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh",
        "DequantizeLinear", "Dropout", "Elu", "Equal", "EyeLike", "Flatten", "GRU",
        "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample", "HardSigmoid",
        "HardSwish", "Identity", "If", "InstanceNormalization", "IsInf", "IsNaN", "LSTM", "Loop",
        "LpNormalization", "LpPool", "MaxPool", "MaxUnpool", "Mish", "Multinomial",
        "NegativeLogLikelihoodLoss", "Pad", "QLinearMatMul", "QuantizeLinear", "RNN",
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "ReduceMax",
        "ReduceMin", "Reshape", "Resize", "RoiAlign",
        "Round", "Scan", "Selu", "Shape", "Sin", "Sinh", "Size",
        "Softplus", "Softsign", "Squeeze", "Tan", "ThresholdedRelu", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose definitions after `NEWEST_OPSET` mean the same for float32 tensors (and for int8
and uint8 where they quantize), apart from the attributes in `NEW_MEANINGS`."""

NEW_AND_KNOWN = frozenset({"DFT", "Gelu"})
"""Operators whose definitions after `NEWEST_OPSET` are known: one that TVM 0.19 has of
onnxruntime's own set, and one that is read here (`relay/onnx/fourier.py`)."""

NEW_MEANINGS: dict[str, dict[str, tuple[object, ...]]] = {
    "DequantizeLinear": {"block_size": (0,), "output_dtype": (0,)},
    "Gelu": {"approximate": (b"none",)},
    "Pad": {"mode": (b"constant", b"reflect", b"edge")},
    "QuantizeLinear": {"block_size": (0,), "output_dtype": (0,), "precision": (0,)},
    "Resize": {
        "coordinate_transformation_mode": (
            b"half_pixel", b"pytorch_half_pixel", b"align_corners", b"asymmetric",
            b"tf_half_pixel_for_nn", b"tf_crop_and_resize",
        ),
    },
    "RoiAlign": {"coordinate_transformation_mode": (b"output_half_pixel",)},
}  # fmt: skip
"""operator -> attribute -> values that older converters understand; one that is left out has its
default."""

_RECURRENT: dict[str, tuple[object, ...]] = {
    "direction": (b"forward", b"bidirectional"),
    "clip": (),
    "input_forget": (0,),
}
LAST_TYPE = 16
"""Number of the last of ONNX's element types that TVM 0.19 has, BFLOAT16: it takes those of 8 and 4
bits that came later for wider ones."""
_FOUR_BITS = "UINT4", "INT4"
_READERS = frozenset({"Cast", "DequantizeLinear"})
"""They read numbers of four bits from the bytes in which TVM has them."""
UNDERSTOOD: Understood = {
    **UNDERSTOOD_BY_ALL,
    "GRU": _RECURRENT,
    "LSTM": _RECURRENT,
    "RNN": _RECURRENT,
    "QLinearAveragePool": {"channels_last": (0,)},
    "QLinearGlobalAveragePool": {"channels_last": (0,)},
}
"""It reads others without a word, a reverse direction as a forward one."""
SEQUENCE_LENGTHS = 4
"""Number of that input; TVM 0.19 ignores it in RNN and LSTM."""


def opset_of(model: Any) -> int:
    """The operator set of ONNX's own operators."""
    versions = (item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    return max(versions, default=1)


def check_understood(model: Any) -> None:
    """Raises PartitionError for an operator of which TVM 0.19 would ignore a part, for which it
    would write outside of its result, or which would end the process."""
    check_attributes(model, UNDERSTOOD, "TVM 0.19")
    _check_reductions(model)
    _check_types(model)
    for node in nodes_of(model):
        if node.op_type == "EyeLike":
            _check_diagonal(node, model.graph)
        has_lengths = len(node.input) > SEQUENCE_LENGTHS and node.input[SEQUENCE_LENGTHS]
        if has_lengths and node.op_type in ("LSTM", "RNN") and not _are_whole(node, model.graph):
            raise PartitionError(
                f"{node.op_type} {node.name!r} has lengths of sequences, which TVM 0.19 ignores; "
                "cut the sequences to one length"
            )


def _check_types(model: Any) -> None:
    from onnx import TensorProto

    graph = model.graph
    narrow = {TensorProto.DataType.Value(name) for name in _FOUR_BITS}
    found = [(f"weights {one.name!r}", one.data_type) for one in graph.initializer]
    for one in graph.input:
        number = one.type.tensor_type.elem_type
        if number not in narrow or not _is_only_read(one.name, model):
            found.append((f"input {one.name!r}", number))
    found += [
        (called(node), item.i)
        for node in nodes_of(model)
        for item in node.attribute
        if node.op_type == "Cast" and item.name == "to"
    ]
    for what, number in found:
        if number > LAST_TYPE:
            known = number in TensorProto.DataType.values()
            name = TensorProto.DataType.Name(number) if known else number
            raise PartitionError(
                f"{what} has the element type {name}, which TVM 0.19 does not know: export the "
                "model with float, int8 or uint8"
            )


def _is_only_read(tensor: str, model: Any) -> bool:
    """Whether all that takes a tensor takes its numbers for what they are."""
    readers = [node for node in nodes_of(model) if tensor in node.input]
    return bool(readers) and all(node.op_type in _READERS for node in readers)


def _check_diagonal(node: Any, graph: Any) -> None:
    """TVM 0.19 writes a one in every row of an EyeLike, whether there is such a column or not."""
    shape = known_shapes(graph).get(node.input[0])
    k = next((item.i for item in node.attribute if item.name == "k"), 0)
    if shape is None or len(shape) != 2 or not all(shape):
        raise PartitionError(
            f"EyeLike {node.name!r} is like a tensor whose extents the model does not say; "
            "TVM 0.19 may write outside of its result: say the shape, or make it a constant"
        )
    if k < 0 or shape[0] + k > shape[1]:
        raise PartitionError(
            f"EyeLike {node.name!r} has {shape[0]} rows, {shape[1]} columns and k {k}; TVM 0.19 "
            "would write outside of it: allowed are k of at least 0, and a column for every row's "
            "one (a constant helps)"
        )


def _check_reductions(model: Any) -> None:
    """TVM 0.19 aborts on a reduction along one axis twice, unless it keeps the axes."""
    ranks: dict[str, int] | None = None
    for node in nodes_of(model):
        axes = [list(item.ints) for item in node.attribute if item.name == "axes"]
        if not node.op_type.startswith("Reduce") or not axes:
            continue
        given, names = axes[0], set(axes[0])
        if min(given, default=0) < 0 <= max(given, default=0):
            if ranks is None:  # seldom: exporters count from one end
                shapes = known_shapes(inferred(model).graph)
                ranks = {name: len(shape) for name, shape in shapes.items()}
            rank = ranks.get(node.input[0])
            if rank is None:
                raise PartitionError(
                    f"{called(node)} has the axes {given} of a tensor whose number of axes the "
                    "model does not say; TVM 0.19 ends the process where two of them are one: "
                    "count them from one end"
                )
            names = {axis % rank if rank else axis for axis in given}
        if len(names) < len(given):
            raise PartitionError(
                f"{called(node)} has the axes {given}, one of them twice, for which TVM 0.19 ends "
                "the process; name each once"
            )


def _are_whole(node: Any, graph: Any) -> bool:
    """Whether constant lengths of sequences are all that of the sequences' own axis."""
    from onnx import numpy_helper

    lengths = [one for one in graph.initializer if one.name == node.input[SEQUENCE_LENGTHS]]
    known = [one for one in (*graph.input, *graph.value_info) if one.name == node.input[0]]
    if not lengths or not known or any(item.name == "layout" and item.i for item in node.attribute):
        return False
    dims = known[0].type.tensor_type.shape.dim
    extent = dims[0].dim_value if dims else 0
    return extent > 0 and bool((numpy_helper.to_array(lengths[0]) == extent).all())


def check_opset(model: Any) -> None:
    """Raises PartitionError when the model's operators may mean what TVM 0.19 does not know, or
    several things: of several operator sets TVM takes the first."""
    from onnx import defs

    version = opset_of(model)
    given = {item.version for item in model.opset_import if item.domain in ("", "ai.onnx")}
    if len(given) > 1:
        raise PartitionError(
            f"the model uses the ONNX opsets {', '.join(map(str, sorted(given)))} at once; a model "
            "has one"
        )
    if version <= NEWEST_OPSET:
        return
    known = defs.onnx_opset_version()
    if version > known:
        raise PartitionError(
            f"the model uses ONNX opset {version}; the installed onnx package knows opsets up to "
            f"{known} and TVM 0.19 up to {NEWEST_OPSET}: export it with opset {NEWEST_OPSET}"
        )
    for node in model.graph.node:
        if node.domain in ("", "ai.onnx") and _is_news(node, version):
            since = defs.get_schema(node.op_type, version).since_version
            raise PartitionError(
                f"{node.op_type} {node.name!r} is defined by ONNX opset {since}; TVM 0.19 knows "
                f"opsets up to {NEWEST_OPSET}: export the model with opset {NEWEST_OPSET}"
            )


def _is_news(node: Any, version: int) -> bool:
    from onnx import defs, helper

    try:
        since = defs.get_schema(node.op_type, version).since_version
    except defs.SchemaError:
        return False  # no such operator: TVM's frontend says so
    if since <= NEWEST_OPSET:
        return False
    if node.op_type not in ONLY_MORE_TYPES | NEW_AND_KNOWN:
        return True
    given = {item.name: item for item in node.attribute}
    defaults = defs.get_schema(node.op_type, version).attributes
    for name, understood in NEW_MEANINGS.get(node.op_type, {}).items():
        item = given.get(name, defaults[name].default_value if name in defaults else None)
        if item is None or item.type == item.UNDEFINED:
            continue
        if helper.get_attribute_value(item) not in understood:
            return True
    return False
