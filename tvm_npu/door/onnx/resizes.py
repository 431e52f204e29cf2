"""Resizes by scales of which TVM's readers make something else: they compute with the quotient of
the extents, whatever the scale says, and resize no batch and no channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_npu.errors import PartitionError

_BY_EXTENTS = (b"align_corners", b"tf_crop_and_resize")
"""Ways to transform coordinates that do not ask for the scale."""
NEAR = 1e-5
"""How far a scale may be from the quotient: it is a float32."""


def check_scales(
    called: str, extents: tuple[int, ...], scales: Sequence[float], attr: Mapping[str, Any]
) -> None:
    """PartitionError for those of which TVM makes others."""
    _check_first_two(called, scales)
    if attr.get("coordinate_transformation_mode", b"half_pixel") in _BY_EXTENTS:
        return
    for axis, (extent, scale) in enumerate(zip(extents, scales, strict=True)):
        results = int(np.floor(np.float32(extent) * np.float32(scale)))
        if abs(results / extent - scale) > NEAR * scale:
            raise PartitionError(
                f"{called} has the scales {shown(scales)} for {list(extents)}: "
                f"{extent * scale:.7g} elements along axis {axis}, of which TVM would take "
                f"{results} by another scale; give sizes in place of scales, or scales that make "
                "whole numbers"
            )


def check_sizes(called: str, extents: tuple[int, ...], sizes: Sequence[int]) -> None:
    """PartitionError for those that TVM does not make. Their scales are the quotients."""
    _check_first_two(called, np.divide(sizes, extents).tolist())


def _check_first_two(called: str, scales: Sequence[float]) -> None:
    if any(abs(scale - 1) > NEAR for scale in scales[:2]):
        raise PartitionError(
            f"{called} has the scales {shown(scales)}; TVM resizes rows and columns "
            "alone: the first two must be 1"
        )


def shown(scales: Sequence[float]) -> str:
    return str([float(f"{scale:.7g}") for scale in scales])
