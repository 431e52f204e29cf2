"""ONNX operator sets that TVM's Relay frontend can be trusted with."""

from __future__ import annotations

from typing import Any

from tvm_npu.errors import PartitionError

NEWEST_OPSET = 18
"""The newest operator set for which TVM 0.19 has converters of its own; it reads later operators
by their last older definition without a word."""

ONLY_MORE_TYPES = frozenset(
    {
        "AveragePool", "Cast", "CastLike", "Constant", "ConstantOfShape", "Conv", "ConvTranspose",
        "Dropout", "Elu", "Equal", "EyeLike", "Flatten", "GlobalAveragePool", "GlobalLpPool",
        "GlobalMaxPool", "HardSigmoid", "HardSwish", "Identity", "If", "InstanceNormalization",
        "IsInf", "IsNaN", "Loop", "LpNormalization", "LpPool", "MaxPool", "Pad", "Reshape", "Scan",
        "Selu", "Shape", "Size", "Softplus", "Softsign", "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose definitions after `NEWEST_OPSET` mean the same for float32 tensors, apart from
the attributes in `NEW_MEANINGS`."""

NEW_MEANINGS: dict[str, tuple[str, tuple[object, ...]]] = {
    "AveragePool": ("dilations", ([], [1], [1, 1], [1, 1, 1])),
    "Pad": ("mode", (b"constant", b"reflect", b"edge")),
}
"""operator -> (attribute, values that older converters understand)."""


UNDERSTOOD: dict[str, tuple[object, ...]] = {
    "direction": (b"forward", b"bidirectional"),
    "clip": (),
    "input_forget": (0,),
}
"""Attribute of recurrent operators -> values with which TVM 0.19 computes what ONNX says; it reads
others without a word, a reverse direction as a forward one."""
SEQUENCE_LENGTHS = 4
"""Number of that input; TVM 0.19 ignores it in RNN and LSTM."""


def check_recurrent(model: Any) -> None:
    """Raises PartitionError for a recurrent operator of which TVM 0.19 would ignore a part."""
    from onnx import helper

    for node in model.graph.node:
        if node.op_type not in ("GRU", "LSTM", "RNN"):
            continue
        for item in node.attribute:
            value = helper.get_attribute_value(item)
            if value not in UNDERSTOOD.get(item.name, (value,)):
                shown = value.decode() if isinstance(value, bytes) else value
                raise PartitionError(
                    f"{node.op_type} {node.name!r} has {item.name} {shown}, which TVM 0.19 ignores"
                )
        has_lengths = len(node.input) > SEQUENCE_LENGTHS and node.input[SEQUENCE_LENGTHS]
        if has_lengths and node.op_type != "GRU":
            raise PartitionError(
                f"{node.op_type} {node.name!r} has lengths of sequences, which TVM 0.19 ignores; "
                "cut the sequences to one length"
            )


def check_opset(model: Any) -> None:
    """Raises PartitionError when the model's operators may mean what TVM 0.19 does not know."""
    from onnx import defs

    version = max(
        (item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), default=1
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
    if node.op_type not in ONLY_MORE_TYPES:
        return True
    name, understood = NEW_MEANINGS.get(node.op_type, ("", ()))
    return any(
        item.name == name and helper.get_attribute_value(item) not in understood
        for item in node.attribute
    )
