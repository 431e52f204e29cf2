"""The work of operators as Pipe-Search counts it, before and behind TVM's layout changes.

"An online guided tuning approach to run CNN pipelines on edge devices", Equation 1: a convolution
weighs H*W*C*R*S*K (H, W, C of its input, R x S kernel, K filters; the stride does not count), and
C is divided by the groups here, which the paper does not have. Equation 2: a fully connected layer
weighs H*W*C*F. A pool weighs its input's elements. Everything else weighs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relay

from tvm_npu.relay import operands as of

DENSE = frozenset({"nn.dense", "nn.contrib_dense_pack", "nn.matmul", "nn.batch_matmul"})
CONVOLUTIONS = frozenset(
    {
        "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
        "nn.conv3d_transpose", "nn.deformable_conv2d", "nn.contrib_conv2d_NCHWc",
        "nn.contrib_depthwise_conv2d_NCHWc", "nn.contrib_conv2d_gemm_without_weight_transform",
        "nn.contrib_conv2d_winograd_without_weight_transform",
        "nn.contrib_conv3d_winograd_without_weight_transform",
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


def call_work(call: relay.Call) -> Work:
    """The work of one operator's call; all zero for operators that the paper does not weigh and
    for unknown shapes."""
    name = of.op_name(call)
    kind = _kind(name)
    if not kind or not of.is_tensor(call) or not of.is_tensor(call.args[0]):
        return NONE
    data = of.static_shape(call.args[0].checked_type)
    out = of.static_shape(call.checked_type)
    if data is None or out is None or not prod(data) or not prod(out):
        return NONE
    if kind == "pool":
        return Work(kind, float(prod(data)), 0)
    if kind == "dense":
        transposed = bool(getattr(call.attrs, "transpose_a", False))
        macs = prod(out) * data[-2 if transposed else -1]
        return Work(kind, float(macs), macs)
    return _convolution(call, name, data, out)


def _kind(name: str) -> str:
    if name in DENSE:
        return "dense"
    if name in CONVOLUTIONS:
        return "conv"
    return "pool" if "_pool" in name or name in REDUCTIONS else ""


def _convolution(call: relay.Call, name: str, data: of.TensorShape, out: of.TensorShape) -> Work:
    attrs = call.attrs
    layout = _axes(str(attrs.data_layout))
    out_layout = _axes(str(getattr(attrs, "out_layout", "")) or str(attrs.data_layout))
    kernel = of.integers(attrs.kernel_size) or _kernel_extents(call)
    groups = int(attrs.groups)
    in_channels = _channels(layout, data)
    out_channels = _channels(out_layout, out)
    taps = prod(kernel)
    weight = prod(data) * taps * out_channels / groups
    if "transpose" in name:
        macs = prod(data) * taps * out_channels // groups
    else:
        macs = prod(out) * taps * in_channels // groups
    return Work("conv", float(weight), macs)


def _axes(layout: str) -> list[str]:
    """``NCHW8c`` -> N, C, H, W, 8c."""
    return re.findall(r"[A-Z]|\d+[a-z]", layout)


def _channels(axes: list[str], shape: of.TensorShape) -> int:
    return prod(n for axis, n in zip(axes, shape, strict=True) if axis[-1] in "Cc")


def _kernel_extents(call: relay.Call) -> tuple[int, ...]:
    axes = _axes(str(call.attrs.kernel_layout))
    shape = of.shape_of(call.args[1])
    return tuple(n for axis, n in zip(axes, shape, strict=True) if axis[-1] not in "OIoi")


def total(works: Any) -> Work:
    """The sum; its kind is that of the heaviest."""
    works = list(works)
    heaviest = max(works, key=lambda work: work.weight, default=NONE)
    return Work(heaviest.kind, sum(w.weight for w in works), sum(w.macs for w in works))
