"""Windows of ONNX nodes of which TVM's importer ignores a part.

It takes the mean of the elements that a window of an LpPool has inside of the padding for that of
all, where ``ceil_mode`` lets it reach behind, and knows no ``output_shape`` of a ConvTranspose.
"""

from __future__ import annotations

from typing import Any

from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of

Attributes = dict[str, Any]


def make_windows_whole(inputs: list[Any], attrs: Attributes, called: str) -> None:
    """Pads an LpPool so that no window reaches behind: zeros add nothing to a norm.

    before: LpPool of 8 rows, window 3, stride 2, ceil_mode        after: pads at the end 1
    """
    if not attrs.pop("ceil_mode", 0):
        return
    kernel = attrs["kernel_shape"]
    extents = _known_extents(inputs[0], len(kernel), called)
    pads = list(attrs.get("pads", ())) or [0] * 2 * len(kernel)
    strides = attrs.get("strides") or [1] * len(kernel)
    dilations = attrs.get("dilations") or [1] * len(kernel)
    for axis, extent in enumerate(extents):
        window = (kernel[axis] - 1) * dilations[axis] + 1
        begin, end = pads[axis], pads[len(kernel) + axis]
        room = extent + begin + end - window
        more = -room % strides[axis]
        if room + more < extent + begin:  # else the window would begin in the padding
            pads[len(kernel) + axis] = end + more
    attrs["pads"] = pads


def pads_of_output_shape(inputs: list[Any], attrs: Attributes, called: str) -> None:
    """The ``pads`` of a ConvTranspose with which it makes its ``output_shape``.

    before: ConvTranspose of 5 rows, kernel 3, stride 2, output_shape [10]    after: pads [1, 0]
    """
    wanted = attrs.pop("output_shape", ())
    if not wanted:
        return
    count = len(of.extents(inputs[0].ty)) - 2
    extents = _known_extents(inputs[0], count, called)
    kernel = attrs.get("kernel_shape") or _known_extents(inputs[1], count, called)
    strides = attrs.get("strides") or [1] * count
    dilations = attrs.get("dilations") or [1] * count
    more = list(attrs.get("output_padding") or [0] * count)
    ends_first = attrs.pop("auto_pad", b"NOTSET") == b"SAME_UPPER"
    begins, ends = [], []
    for axis, extent in enumerate(extents):
        window = (kernel[axis] - 1) * dilations[axis] + 1
        made = strides[axis] * (extent - 1) + more[axis] + window
        total = made - wanted[-count:][axis]
        if total < 0:
            more[axis], total = more[axis] - total, 0
            if more[axis] >= strides[axis]:
                raise PartitionError(
                    f"{called} has the output_shape {list(wanted)}; its windows make {made} "
                    f"elements along axis {axis + 2}, and it may ask for fewer than "
                    f"{strides[axis]} more: pad its result by a Pad"
                )
        small, large = total // 2, total - total // 2
        begins.append(small if ends_first else large)
        ends.append(large if ends_first else small)
    attrs["pads"], attrs["output_padding"] = begins + ends, more


def _known_extents(data: Any, count: int, called: str) -> tuple[int, ...]:
    """The last ``count`` extents of a tensor."""
    shape = of.static_shape(data.ty)
    if shape is None:
        raise PartitionError(
            f"{called} reads a tensor whose extents the model leaves open; say them (shapes=...)"
        )
    return shape[-count:]
