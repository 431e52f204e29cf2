"""Resizes by scales, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.door.onnx.resizes import NEAR, check_scales, check_sizes, shown
from tvm_npu.errors import PartitionError


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for name, scales in (("_impl_v10", 1), ("_impl_v11", 2), ("_impl_v13", 2)):
        yield reader.Resize, name, _checked(getattr(reader.Resize, name).__func__, scales)
    yield reader.Upsample, "_impl_v9", _checked(reader.Upsample._impl_v9.__func__, 1)


def _checked(convert: Callable[..., Any], scales: int) -> Callable[..., Any]:
    """``scales`` is the number of their input; that of sizes is behind it."""

    def resize(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        extents = reader.infer_shape(inputs[0])
        name = called_in(cls.__name__, attr)
        for number, given in enumerate((inputs[scales], inputs[scales + 1], attr.get("scales"))):
            if isinstance(given, relay.Constant):
                given = given.data.numpy().reshape(-1)
            elif not isinstance(given, tuple | list):
                continue
            if len(given) == len(extents) and all(isinstance(one, int) for one in extents):
                if number == 1:
                    check_sizes(name, extents, given)
                    given = np.divide(given, extents)
                else:
                    check_scales(name, extents, given, attr)
                _check_rounding(name, given, attr)
        return convert(cls, inputs, attr, params)

    return resize


def _check_rounding(called: str, scales: Sequence[float], attr: Mapping[str, Any]) -> None:
    """Of images that TVM 0.19 enlarges by whole numbers it takes the floor, whatever is asked."""
    mode, rounding = attr.get("mode", b"nearest"), attr.get("nearest_mode", b"round_prefer_floor")
    transformation = attr.get("coordinate_transformation_mode", b"half_pixel")
    asked = (mode, transformation, len(scales))
    if asked != (b"nearest", b"asymmetric", 4) or rounding == b"floor":
        return
    harmless = 2 if rounding == b"round_prefer_floor" else 1
    if any(scale > harmless and abs(scale - round(scale)) < NEAR for scale in scales):
        raise PartitionError(
            f"{called} has the scales {shown(scales)}, asymmetric, and nearest_mode "
            f"{rounding.decode()}; TVM 0.19 would take the floor: give nearest_mode floor, or "
            "another coordinate_transformation_mode"
        )
