"""Rules about memory: the smallest tiles of a layer fit the machine's buffers, tensors its DRAM.

One rule is one function, as in `door.rules`.
"""

from __future__ import annotations

from math import prod

from tvm_npu.codegen.least import Need, dram_need
from tvm_npu.codegen.passes.averages import largest_part
from tvm_npu.codegen.passes.dilation import live_taps
from tvm_npu.door import geometry
from tvm_npu.door.dataflow import Constant, OpCall
from tvm_npu.door.geometry import softmax_count
from tvm_npu.door.rules import MAX_EXTENT, Context, Violation, run_time_shapes


def tensors_fit_memory(call: OpCall, context: Context) -> Violation | None:
    """Operands and result of one image lie in the machine's DRAM together."""
    data = sum(prod(shape[1:]) for shape in run_time_shapes(call))
    constants = sum(prod(arg.shape) for arg in call.operands if isinstance(arg, Constant))
    need = dram_need(context.machine, context.precision, data + constants)
    if not need.fits:
        return Violation(f"{need.needed} bytes", f"{need.available} bytes of DRAM")
    return None


def conv_tile_fits(call: OpCall, context: Context) -> Violation | None:
    """The smallest input tile of a convolution (one channel of one window) fits its memory."""
    window, kernel = _window(call)
    need = context.least.conv_input(
        window, kernel, _channels(call), call.attributes["strides"]
    )
    return _too_large(need, f"window {_by(window)}")


def conv_weights_fit(call: OpCall, context: Context) -> Violation | None:
    """The smallest weight tile (one channel of one filter) fits its memory."""
    window, kernel = _window(call)
    need = context.least.conv_weight(window, kernel, _channels(call))
    return _too_large(need, f"kernel {_by(kernel)}")


def biases_fit(call: OpCall, context: Context) -> Violation | None:
    """The biases of a layer fit the bias memories of all cores together."""
    groups = call.attributes.get("groups", 1)
    filters = call.shape[1] // groups
    return _too_large(context.least.biases(filters), f"{filters} filters")


def dense_input_fits(call: OpCall, context: Context) -> Violation | None:
    """What a fully connected layer takes at a time (an input; all of them where a machine keeps no
    partial sums) fits its memory."""
    features = call.operands[0].shape[-1]
    return _too_large(context.least.dense_input(features), f"{features} inputs")


def padded_pixel_fits(call: OpCall, context: Context) -> Violation | None:
    """What a padding takes at a time (an element; all channels of a pixel where they lie side by
    side) fits its memory."""
    channels = call.shape[1]
    return _too_large(context.least.padded_pixel(channels), f"{channels} channels")


def pool_tile_fits(call: OpCall, context: Context) -> Violation | None:
    """One channel of one pooling window fits the memory for input tiles; of a window that is the
    whole feature map, equal parts do."""
    window, _, padding = geometry.pool_windows(call)
    need = context.least.pool_input(window)
    rows, columns = call.operands[0].shape[2:]
    if window == (rows, columns) and not any(padding) and not need.fits:
        if largest_part(rows, columns, context.least) is not None:
            return None
    return _too_large(need, f"window {_by(window)}")


def softmax_row_fits(call: OpCall, context: Context) -> Violation | None:
    """The numbers that a softmax divides by one sum fit the memory for input tiles, and as many
    weights that for weights; there are at most 65535 such rows."""
    row = (1, softmax_count(call))
    rows = prod(call.shape) // row[1]
    if rows > MAX_EXTENT:
        return Violation(f"{rows} rows", f"at most {MAX_EXTENT}")
    for need in (context.least.pool_input(row), context.least.conv_weight(row, row)):
        if not need.fits:
            return _too_large(need, f"{row[1]} numbers")
    return None


def _too_large(need: Need, what: str) -> Violation | None:
    if need.fits:
        return None
    value = f"{what} = {need.needed} bytes {need.where}".rstrip()
    return Violation(value, f"{need.available} bytes of {need.memory}")


def _by(extents: tuple[int, int]) -> str:
    return f"{extents[0]}x{extents[1]}"


def _channels(call: OpCall) -> int:
    """Input channels of a group."""
    return call.operands[0].shape[1] // call.attributes.get("groups", 1)


def _window(call: OpCall) -> tuple[tuple[int, int], tuple[int, int]]:
    """(rows, columns) of a window, dilation included, and of its kernel, of taps that meet the map
    somewhere."""
    attributes = call.attributes
    dilation = attributes["dilation"]
    rows, columns = (
        len(taps)
        for taps in live_taps(
            call.operands[0].shape[2:], call.shape[2:], call.operands[1].shape[2:],
            attributes["strides"], dilation, attributes["padding"][:2],
        )
    )  # fmt: skip
    return ((rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1), (rows, columns)
