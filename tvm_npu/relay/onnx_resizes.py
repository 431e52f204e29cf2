"""Resizes by scales, checked: TVM 0.19 computes with the quotient of the extents, whatever the
scale says, and resizes no batch and no channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.errors import PartitionError

_BY_EXTENTS = (b"align_corners", b"tf_crop_and_resize")
"""Ways to transform coordinates that do not ask for the scale."""
_NEAR = 1e-5
"""How far a scale may be from the quotient: it is a float32."""


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for name, scales in (("_impl_v10", 1), ("_impl_v11", 2), ("_impl_v13", 2)):
        yield reader.Resize, name, _checked(getattr(reader.Resize, name).__func__, scales)
    yield reader.Upsample, "_impl_v9", _checked(reader.Upsample._impl_v9.__func__, 1)


def _checked(convert: Callable[..., Any], scales: int) -> Callable[..., Any]:
    """``scales`` is the number of their input; that of sizes is behind it."""

    def resize(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        extents = reader.infer_shape(inputs[0])
        name = f"{cls.__name__} {attr.get('tvm_custom', {}).get('name', '')!r}"
        for number, given in enumerate((inputs[scales], inputs[scales + 1], attr.get("scales"))):
            if isinstance(given, relay.Constant):
                given = given.data.numpy().reshape(-1)
            elif not isinstance(given, tuple | list):
                continue
            if len(given) == len(extents) and all(isinstance(one, int) for one in extents):
                asked = np.divide(given, extents) if number == 1 else given
                _check(name, extents, asked, attr)
        return convert(cls, inputs, attr, params)

    return resize


def _check(name: str, extents: tuple[int, ...], scales: Any, attr: Any) -> None:
    if any(abs(scale - 1) > _NEAR for scale in scales[:2]):
        raise PartitionError(
            f"{name} has the scales {_shown(scales)}; TVM 0.19 resizes rows and columns "
            "alone: the first two must be 1"
        )
    if attr.get("coordinate_transformation_mode", b"half_pixel") in _BY_EXTENTS:
        return
    for axis, (extent, scale) in enumerate(zip(extents, scales, strict=True)):
        results = int(np.floor(np.float32(extent) * np.float32(scale)))
        if abs(results / extent - scale) > _NEAR * scale:
            raise PartitionError(
                f"{name} has the scales {_shown(scales)} for {list(extents)}: "
                f"{extent * scale:.7g} elements along axis {axis}, of which TVM 0.19 would take "
                f"{results} by another scale; give sizes in place of scales, or scales that make "
                "whole numbers"
            )
    _check_rounding(name, scales, attr)


def _check_rounding(name: str, scales: Any, attr: Any) -> None:
    """Of images that TVM 0.19 enlarges by whole numbers it takes the floor, whatever is asked."""
    mode, rounding = attr.get("mode", b"nearest"), attr.get("nearest_mode", b"round_prefer_floor")
    transformation = attr.get("coordinate_transformation_mode", b"half_pixel")
    if (mode, transformation, len(scales)) != (
        b"nearest",
        b"asymmetric",
        4,
    ) or rounding == b"floor":
        return
    harmless = 2 if rounding == b"round_prefer_floor" else 1
    if any(scale > harmless and abs(scale - round(scale)) < _NEAR for scale in scales):
        raise PartitionError(
            f"{name} has the scales {_shown(scales)}, asymmetric, and nearest_mode "
            f"{rounding.decode()}; TVM 0.19 would take the floor: give nearest_mode floor, or "
            "another coordinate_transformation_mode"
        )


def _shown(scales: Any) -> str:
    return str([float(f"{scale:.7g}") for scale in scales])
