"""The work of operator calls: multiply-accumulates, and weights as Pipe-Search counts them, before
and behind TVM's layout changes.

"An online guided tuning approach to run CNN pipelines on edge devices", Equation 1: a convolution
weighs H*W*C*R*S*K (H, W, C of its input, R x S kernel, K filters; the stride does not count), and
C is divided by the groups here, which the paper does not have. Equation 2: a fully connected layer
weighs H*W*C*F. A pool weighs its input's elements. Everything else weighs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.ops.transposed_conv import tap_ranges
from tvm_npu.door.dataflow import OpCall, TensorShape

DENSE = frozenset({"dense", "contrib_dense_pack", "matmul", "batch_matmul"})
CONVOLUTIONS = frozenset(
    {
        "conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose", "conv3d_transpose",
        "deformable_conv2d", "contrib_conv2d_NCHWc", "contrib_depthwise_conv2d_NCHWc",
        "contrib_conv2d_gemm_without_weight_transform",
        "contrib_conv2d_winograd_without_weight_transform",
        "contrib_conv3d_winograd_without_weight_transform",
    }
)  # fmt: skip
REDUCTIONS = frozenset({"mean", "sum", "max", "min"})
"""Pools in other words: frontends spell global pools like this."""


@dataclass(frozen=True)
class Work:
    """``weight`` by Equation 1 or 2; ``macs`` are the multiply-accumulates really done."""

    kind: str
    weight: float
    macs: int


NONE = Work("", 0.0, 0)


def call_work(call: OpCall) -> Work:
    """The work of one operator's call; all zero for operators that the paper does not weigh and
    for unknown shapes."""
    kind = _kind(call.name)
    if not kind or call.returns_tuple or not call.operands or call.operands[0].is_tuple:
        return NONE
    data, out = call.operands[0].type.static_shape, call.types[0].static_shape
    if data is None or out is None or not prod(data) or not prod(out):
        return NONE
    if kind == "pool":
        return Work(kind, float(prod(data)), 0)
    if kind == "dense":
        transposed = call.attributes.get("transpose_a", False)
        macs = prod(out) * data[-2 if transposed else -1]
        return Work(kind, float(macs), macs)
    return _convolution(call, data, out)


def _kind(name: str) -> str:
    if name in DENSE:
        return "dense"
    if name in CONVOLUTIONS:
        return "conv"
    return "pool" if "_pool" in name or name in REDUCTIONS else ""


def _convolution(call: OpCall, data: TensorShape, out: TensorShape) -> Work:
    attributes = call.attributes
    layout = _axes(attributes["data_layout"])
    out_layout = _axes(attributes["out_layout"]) or layout
    kernel = attributes["kernel_size"] or _kernel_extents(call)
    groups = attributes["groups"]
    in_channels = _channels(layout, data)
    out_channels = _channels(out_layout, out)
    taps = prod(kernel)
    weight = prod(data) * taps * out_channels / groups
    if call.name == "conv2d_transpose" and len(data) == 4 and layout == list("NCHW"):
        macs = _needed(call, data, out) * data[0] * data[1] * out_channels // groups
    elif "transpose" in call.name:
        macs = prod(data) * taps * out_channels // groups
    else:
        macs = prod(out) * taps * in_channels // groups
    return Work("conv", float(weight), macs)


def _needed(call: OpCall, data: TensorShape, out: TensorShape) -> int:
    """Pairs of input and kernel element, rows and columns, that some output needs."""
    kernel = call.operands[1].shape[2:]
    attributes = call.attributes
    return prod(
        sum(
            len(met)
            for _, met, _ in tap_ranges(
                data[2 + i], out[2 + i], kernel[i], attributes["strides"][i],
                attributes["padding"][i],
            )
        )
        for i in range(2)
    )  # fmt: skip


def _axes(layout: str) -> list[str]:
    """``NCHW8c`` -> N, C, H, W, 8c."""
    return re.findall(r"[A-Z]|\d+[a-z]", layout)


def _channels(axes: list[str], shape: TensorShape) -> int:
    return prod(n for axis, n in zip(axes, shape, strict=True) if axis[-1] in "Cc")


def _kernel_extents(call: OpCall) -> tuple[int, ...]:
    axes = _axes(call.attributes["kernel_layout"])
    shape = call.operands[1].shape
    return tuple(n for axis, n in zip(axes, shape, strict=True) if axis[-1] not in "OIoi")


def total(works: Iterable[Work]) -> Work:
    """The sum; its kind is that of the heaviest."""
    works = list(works)
    heaviest = max(works, key=lambda work: work.weight, default=NONE)
    return Work(heaviest.kind, sum(w.weight for w in works), sum(w.macs for w in works))
