"""The padding with which a ConvTranspose of an ONNX model makes the extents that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_npu.errors import PartitionError

SAME = (b"SAME_UPPER", b"SAME_LOWER")


def asks_for_extents(attrs: dict[str, Any]) -> bool:
    return bool(attrs.get("output_shape")) or attrs.get("auto_pad") in SAME


def spell_pads_out(
    attrs: dict[str, Any], extents: Sequence[int], kernel: Sequence[int], called: str
) -> None:
    """Sets ``pads`` and ``output_padding`` of a node that `asks_for_extents`, for axes of
    ``extents`` elements, in place of ``output_shape`` and ``auto_pad``.

    before: ConvTranspose of 5 rows, kernel 3, stride 2, output_shape [10]    after: pads [1, 0]
    """
    count = len(extents)
    strides = attrs.get("strides") or [1] * count
    dilations = attrs.get("dilations") or [1] * count
    more = list(attrs.get("output_padding") or [0] * count)
    said = list(attrs.pop("output_shape", ()))[-count:]
    wanted = said or [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    ends_first = attrs.pop("auto_pad", b"NOTSET") == b"SAME_UPPER"
    begins, ends = [], []
    for axis, extent in enumerate(extents):
        window = (kernel[axis] - 1) * dilations[axis] + 1
        made = strides[axis] * (extent - 1) + more[axis] + window
        total = made - wanted[axis]
        if total < 0 and not said:
            raise PartitionError(
                f"{called} has automatic padding, and its windows make {made} elements of "
                f"{wanted[axis]} along axis {axis + 2}: ONNX and its runtime differ in what that "
                "means; give it an output_shape, or pads"
            )
        if total < 0:
            more[axis], total = more[axis] - total, 0
            if more[axis] >= strides[axis]:
                raise PartitionError(
                    f"{called} asks for the extents {wanted}; its windows make {made} elements "
                    f"along axis {axis + 2}, and there may be fewer than {strides[axis]} beside "
                    "them: pad its result by a Pad"
                )
        small, large = total // 2, total - total // 2
        begins.append(small if ends_first else large)
        ends.append(large if ends_first else small)
    attrs["pads"], attrs["output_padding"] = begins + ends, more
