"""Windows of ONNX nodes of which TVM's importer ignores a part.

It takes the mean of the elements that a window of an LpPool has inside of the padding for that of
all, where ``ceil_mode`` lets it reach behind, and knows no ``output_shape`` of a ConvTranspose.
"""

from __future__ import annotations

from tvm_npu.door.onnx.transposed import asks_for_extents, spell_pads_out
from tvm_npu.errors import PartitionError
from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader


def _make_windows_whole(node: Node) -> None:
    """Pads an LpPool so that no window reaches behind: zeros add nothing to a norm.

    before: LpPool of 8 rows, window 3, stride 2, ceil_mode        after: pads at the end 1
    """
    attrs = node.attrs
    if not attrs.pop("ceil_mode", 0):
        return
    kernel = attrs["kernel_shape"]
    extents = _known_extents(node, 0, len(kernel))
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


def _pad_transposed(node: Node) -> None:
    """Spells out the padding of a ConvTranspose that asks for extents."""
    if asks_for_extents(node.attrs):
        count = len(of.extents(node.inputs[0].ty)) - 2
        kernel = node.attrs.get("kernel_shape") or _known_extents(node, 1, count)
        spell_pads_out(node.attrs, _known_extents(node, 0, count), kernel, node.called)


def _known_extents(node: Node, number: int, count: int) -> tuple[int, ...]:
    """The last ``count`` extents of an input."""
    shape = of.static_shape(node.inputs[number].ty)
    if shape is None:
        raise PartitionError(
            f"{node.called} reads a tensor whose extents the model leaves open; say them "
            "(shapes=...)"
        )
    return shape[-count:]


READERS: dict[str, Reader] = {"ConvTranspose": _pad_transposed, "LpPool": _make_windows_whole}
