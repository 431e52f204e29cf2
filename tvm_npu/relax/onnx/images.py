"""Resizes, pads and regions of images of which TVM's importer ignores a part."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.door.onnx.resizes import check_scales, check_sizes
from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader

_SCALES = {"Resize": 2, "Upsample": 1}
"""Number of the input with the scales; sizes are behind it."""


def _check_resize(node: Node) -> None:
    """PartitionError for scales of which TVM makes others."""
    shape, number = of.static_shape(node.inputs[0].ty), _SCALES[node.operator]
    for place, given in enumerate((*node.inputs[number : number + 2], node.attrs.get("scales"))):
        values = _values(given)
        if shape is not None and values is not None and len(values) == len(shape):
            if place == 1:
                check_sizes(node.called, shape, [int(one) for one in values])
            else:
                check_scales(node.called, shape, values, node.attrs)


def _upsampled(node: Node) -> Any:
    """An Upsample: TVM's importer knows no input for its scales, and takes the nearest element in
    place of the one below."""
    _check_resize(node)
    inputs = node.inputs
    given = inputs[1] if len(inputs) > 1 else node.attrs.get("scales")
    scales, shape = _values(given), of.static_shape(inputs[0].ty)
    mode = node.attrs.get("mode", b"nearest").decode()
    if scales is None or shape is None or len(shape) != 4 or mode not in ("nearest", "linear"):
        raise PartitionError(
            f"{node.called}: TVM's importer for Relax reads those with constant scales, of "
            "nearest and linear mode, of images with known extents"
        )
    size = [
        int(np.floor(np.float32(extent) * np.float32(scale)))
        for extent, scale in zip(shape[2:], scales[2:], strict=True)
    ]
    method = "nearest_neighbor" if mode == "nearest" else mode
    return node.emit(
        relax.op.image.resize2d(
            inputs[0],
            relax.ShapeExpr(size),
            layout="NCHW",
            method=method,
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    )


def _check_wrapped_pads(node: Node) -> None:
    """PartitionError for a Pad that wraps around and crops."""
    pads = _values(node.inputs[1]) if len(node.inputs) > 1 else None
    if node.attrs.get("mode") == b"wrap" and (pads is None or min(pads, default=0) < 0):
        raise PartitionError(
            f"{node.called} has mode wrap and pads that are negative or not constant, which TVM's "
            "importer for Relax reads otherwise: crop by a Slice"
        )


def _move_regions(node: Node) -> None:
    """The regions of a RoiAlign so that half a pixel is one of the scaled image: TVM's importer
    takes it from what is not scaled yet."""
    inputs, attrs = node.inputs, node.attrs
    scale = attrs.get("spatial_scale", 1.0)
    newest = b"half_pixel" if node.opset >= 16 else b"output_half_pixel"
    if attrs.get("coordinate_transformation_mode", newest) == b"half_pixel" and scale != 1.0:
        offset = relax.const(0.5 - 0.5 / scale, of.dtype_of(inputs[1].ty))
        inputs[1] = node.emit(relax.op.add(inputs[1], offset))


def _values(given: Any) -> list[float] | None:
    """Of an attribute or a constant; None for what a model computes or leaves out."""
    if given is None or isinstance(given, tuple | list):
        return None if given is None else list(given)
    return list(of.array_of(given).reshape(-1)) if of.is_constant(given) else None


READERS: dict[str, Reader] = {
    "Pad": _check_wrapped_pads,
    "Resize": _check_resize,
    "RoiAlign": _move_regions,
    "Upsample": _upsampled,
}
