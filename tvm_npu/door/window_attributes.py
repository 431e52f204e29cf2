"""What ONNX models say of windows, checked before anything computes with it.

ONNX's own inference of shapes divides by strides, and its checker looks at no values: a stride of
0 ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm_npu.door.onnx.nodes import called, nodes_and_tensors
from tvm_npu.errors import PartitionError

MOST = 1 << 20
"""Elements that a window may have, and its steps and its padding along an axis."""

_WEIGHTS = {
    "Conv": 1, "ConvTranspose": 1, "DeformConv": 1, "ConvInteger": 1, "FusedConv": 1,
    "NhwcFusedConv": 1, "NhwcConv": 1, "QLinearConv": 3, "QLinearConvTranspose": 3,
}  # fmt: skip
"""Number of the input that holds the weights."""
_CHANNELS_LAST = frozenset({"NhwcConv", "NhwcFusedConv"})
_WINDOWED = _WEIGHTS.keys() | {
    "MaxPool", "AveragePool", "LpPool", "MaxUnpool", "QLinearAveragePool", "NhwcMaxPool",
    "Col2Im",
}  # fmt: skip
_LEAST = {
    "kernel_shape": 1, "strides": 1, "dilations": 1, "pads": -MOST, "output_padding": 0,
    "output_shape": 1, "group": 1, "offset_group": 1,
}  # fmt: skip
_ONE_NUMBER = frozenset({"group", "offset_group"})
_AXES = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 2}
"""Numbers that an attribute has for each axis."""
_MODES = frozenset({b"", b"NOTSET", b"SAME_UPPER", b"SAME_LOWER", b"VALID"})
_LARGEST_GROUP = (1 << 31) - 1


def check_windows(model: Any) -> None:
    """PartitionError for a node, in subgraphs and functions too, with a window that there is not:
    it names the node, the attribute, its value and the limit."""
    for node, weights in nodes_and_tensors(model, lambda tensor: tuple(tensor.dims)):
        if node.op_type in _WINDOWED:
            _check(node, weights)


def _check(node: Any, weights: Mapping[str, tuple[int, ...]]) -> None:
    from onnx import AttributeProto

    axes: dict[str, int] = {}
    for item in node.attribute:
        if item.ref_attr_name:  # of a function: its callers say what it is
            continue
        if item.name == "auto_pad" and item.s not in _MODES:
            known = ", ".join(sorted(mode.decode() for mode in _MODES if mode))
            raise _wrong(node, item.name, item.s, f"one of {known}")
        if item.name not in _LEAST:
            continue
        single = item.name in _ONE_NUMBER
        wanted = AttributeProto.INT if single else AttributeProto.INTS
        if item.type not in (wanted, AttributeProto.UNDEFINED):
            kind = AttributeProto.AttributeType.Name(item.type)
            raise _wrong(node, item.name, kind, "a whole number" if single else "whole numbers")
        values = (item.i,) if single else tuple(item.ints)
        _check_range(node, item.name, values, _LARGEST_GROUP if single else MOST)
        if item.name == "kernel_shape" and prod(values) > MOST:
            raise _wrong(node, item.name, list(values), f"windows of at most {MOST} elements")
        if values and item.name in _AXES:
            if len(values) % _AXES[item.name]:
                raise _wrong(node, item.name, list(values), "two for each axis")
            axes[item.name] = len(values) // _AXES[item.name]
    number = _WEIGHTS.get(node.op_type)
    if number is not None and number < len(node.input):
        shape = weights.get(node.input[number])
        if shape is not None:
            kernel = shape[1:-1] if node.op_type in _CHANNELS_LAST else shape[2:]
            what = f"weights {node.input[number]!r}"
            _check_range(node, f"{what} kernel", kernel, MOST, 1)
            axes[what] = len(kernel)
    if len(set(axes.values())) > 1:
        found = ", ".join(f"{name} {count}" for name, count in axes.items())
        raise PartitionError(
            f"{called(node)}: its attributes are of windows with different numbers of axes "
            f"({found}); all must have as many"
        )


def _check_range(
    node: Any, name: str, values: tuple[int, ...], most: int, least: int | None = None
) -> None:
    least = _LEAST[name] if least is None else least
    if any(not least <= value <= most for value in values):
        shown = values[0] if name in _ONE_NUMBER else list(values[:8])
        raise _wrong(node, name, shown, f"whole numbers from {least} to {most}")


def _wrong(node: Any, name: str, value: Any, limit: str) -> PartitionError:
    return PartitionError(f"{called(node)}: {name} is {value}; allowed: {limit}")
