"""Attributes of ONNX nodes whose values a reader of TVM's ignores: such models are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_npu.door.onnx.nodes import nodes_of
from tvm_npu.errors import PartitionError

Understood = Mapping[str, Mapping[str, tuple[object, ...]]]
"""operator -> attribute -> values with which a reader computes what ONNX says, in every operator
set."""

UNDERSTOOD_BY_ALL: Understood = {
    "BatchNormalization": {"training_mode": (0,)},
    "Resize": {"antialias": (0,), "keep_aspect_ratio_policy": (b"stretch",), "axes": ()},
    "RoiAlign": {"mode": (b"avg",)},
    "SpaceToDepth": {"mode": (b"DCR",)},
}


def check_attributes(model: Any, understood: Understood, reader: str) -> None:
    """PartitionError for a node, in subgraphs and functions too, with a value that ``reader``, a
    release of TVM, ignores."""
    from onnx import helper

    for node in nodes_of(model):
        for item in node.attribute if node.op_type in understood else ():
            value = helper.get_attribute_value(item)
            if value not in understood[node.op_type].get(item.name, (value,)):
                shown = value.decode() if isinstance(value, bytes) else value
                raise PartitionError(
                    f"{node.op_type} {node.name!r} has {item.name} {shown}, which {reader} ignores"
                )
