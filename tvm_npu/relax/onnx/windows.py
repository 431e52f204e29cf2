"""Windows of ONNX nodes of which TVM's importer ignores a part.

It takes the mean of the elements that a window of an LpPool has inside of the padding for that of
all, where ``ceil_mode`` lets it reach behind, and knows no ``output_shape`` of a ConvTranspose.
"""

from __future__ import annotations

from typing import Any

from tvm_npu.door.onnx.transposed import asks_for_extents, spell_pads_out
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


def pad_transposed(inputs: list[Any], attrs: Attributes, called: str) -> None:
    """Spells out the padding of a ConvTranspose that asks for extents."""
    if asks_for_extents(attrs):
        count = len(of.extents(inputs[0].ty)) - 2
        kernel = attrs.get("kernel_shape") or _known_extents(inputs[1], count, called)
        spell_pads_out(attrs, _known_extents(inputs[0], count, called), kernel, called)


def _known_extents(data: Any, count: int, called: str) -> tuple[int, ...]:
    """The last ``count`` extents of a tensor."""
    shape = of.static_shape(data.ty)
    if shape is None:
        raise PartitionError(
            f"{called} reads a tensor whose extents the model leaves open; say them (shapes=...)"
        )
    return shape[-count:]
