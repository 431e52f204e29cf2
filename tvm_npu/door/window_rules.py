"""What the NPU takes of operators that look at rows and columns: windows, layouts, padding, sizes.

One rule is one function, as in `door.rules`.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.ops import resize
from tvm_npu.door import geometry
from tvm_npu.door.dataflow import OpCall
from tvm_npu.door.rules import Context, Violation, constant_array

MOST_RUNS = 48


def nchw_layout(call: OpCall, context: Context) -> Violation | None:
    """Layouts are NCHW for data and OIHW for weights."""
    return _layouts(call, "OIHW")


def transposed_layout(call: OpCall, context: Context) -> Violation | None:
    """Layouts of a transposed convolution are NCHW for data and IOHW for weights."""
    return _layouts(call, "IOHW")


def _layouts(call: OpCall, wanted: str) -> Violation | None:
    attributes = call.attributes
    data = attributes.get("data_layout") or attributes["layout"]
    for key, layout in (("data", data), ("out", attributes["out_layout"])):
        if layout not in ("", "NCHW"):
            return Violation(f"{key} layout {layout}", "NCHW")
    weights = attributes.get("kernel_layout", wanted)
    return None if weights == wanted else Violation(f"weight layout {weights}", wanted)


def transposed_not_dilated(call: OpCall, context: Context) -> Violation | None:
    """The kernel of a transposed convolution is not dilated."""
    dilation = call.attributes["dilation"]
    return None if dilation == (1, 1) else Violation(f"dilation {dilation}", "(1, 1)")


def pool_not_dilated(call: OpCall, context: Context) -> Violation | None:
    """Pooling windows are not dilated."""
    dilation = call.attributes["dilation"]
    return None if dilation == (1, 1) else Violation(f"dilation {dilation}", "(1, 1)")


def windows_meet_tensor(call: OpCall, context: Context) -> Violation | None:
    """Every pooling window contains at least one element of the tensor."""
    kernel, stride, padding = geometry.pool_windows(call)
    extents, outs = call.operands[0].shape[2:], call.shape[2:]
    for axis, (extent, out) in enumerate(zip(extents, outs, strict=True)):
        before = padding[axis]
        if before >= kernel[axis] or (out - 1) * stride[axis] - before >= extent:
            return Violation(
                f"kernel {kernel}, stride {stride}, padding {padding} on {extents}",
                "no window that lies in the padding",
            )
    return None


def windows_move(call: OpCall, context: Context) -> Violation | None:
    """Strides and dilations are at least 1."""
    for name in ("strides", "dilation"):
        steps = call.attributes[name]
        if min(steps) < 1:
            return Violation(f"{name} {steps}", "at least 1")
    return None


def padding_not_negative(call: OpCall, context: Context) -> Violation | None:
    """The padding of a window operation is not negative."""
    padding = call.attributes["padding"]
    return Violation(str(padding), "at least 0") if min(padding) < 0 else None


def global_output(call: OpCall, context: Context) -> Violation | None:
    """Adaptive pooling reduces every feature map to 1x1."""
    out = call.shape[2:]
    return None if out == (1, 1) else Violation(f"output {out[0]}x{out[1]}", "1x1")


def mean_over_space(call: OpCall, context: Context) -> Violation | None:
    """A mean is taken over rows and columns, the axes (2, 3), and nothing else."""
    rank = len(call.operands[0].shape)
    axes = list(geometry.reduced_axes(call))
    if rank != 4 or axes != [2, 3] or call.attributes["exclude"]:
        return Violation(f"axes {axes} of rank {rank}", "axes (2, 3) of rank 4")
    return None


def known_padding(call: OpCall, context: Context) -> Violation | None:
    """Padding fills with one finite constant, or reflects rows and columns."""
    if geometry.is_reflected(call):
        return _reflection(call)
    mode = call.attributes["mode" if call.name == "mirror_pad" else "pad_mode"]
    if mode != "constant":
        return Violation(f"mode {mode}", "constant or reflect")
    values = constant_array(call.operands[1])
    if values is None or values.size != 1 or not np.all(np.isfinite(values)):
        return Violation("another fill value", "one finite number")
    return None


def _reflection(call: OpCall) -> Violation | None:
    """Rows and columns that mirror others of the tensor, and nothing else."""
    for axis, amounts in enumerate(call.attributes["pad_width"]):
        limit = 0 if axis < 2 else call.operands[0].shape[axis] - 1
        if not 0 <= min(amounts) <= max(amounts) <= limit:
            return Violation(f"{amounts} on axis {axis}", f"0 to {limit} when it reflects")
    return None


def nchw_blocks(call: OpCall, context: Context) -> Violation | None:
    """Blocks between channels and rows and columns: the layout is NCHW."""
    layout = call.attributes["layout"]
    return None if layout == "NCHW" else Violation(f"layout {layout}", "NCHW")


def known_resize(call: OpCall, context: Context) -> Violation | None:
    """A resize is nearest, linear or cubic, NCHW, and says where rows lie in a way that has no
    region of interest and leaves no weight out at the border."""
    chosen = geometry.resize_choices(call)
    if call.attributes["layout"] != "NCHW":
        return Violation(f"layout {call.attributes['layout']}", "NCHW")
    if chosen.method not in ("nearest_neighbor", "linear", "cubic"):
        return Violation(f"method {chosen.method}", "nearest_neighbor, linear or cubic")
    if chosen.transformation not in resize.TRANSFORMATIONS:
        return Violation(chosen.transformation, ", ".join(resize.TRANSFORMATIONS))
    if chosen.rounding not in resize.ROUNDINGS:
        return Violation(f"rounding {chosen.rounding}", ", ".join(resize.ROUNDINGS[1:]))
    if call.attributes.get("cubic_exclude"):
        return Violation("cubic_exclude", "weights that go on outside of the image")
    if call.attributes.get("out_dtype") not in ("", "float32", None):
        return Violation(f"out_dtype {call.attributes['out_dtype']}", "float32")
    return None


def resize_in_runs(call: OpCall, context: Context) -> Violation | None:
    """The rows and columns that a nearest resize picks are at most 48 patterns that repeat
    themselves."""
    chosen = geometry.resize_choices(call)
    if chosen.method != "nearest_neighbor":
        return None
    for indices in geometry.nearest_indices(call):
        if len(resize.runs(indices, MOST_RUNS)) > MOST_RUNS:
            value = f"more than {MOST_RUNS} patterns in {len(indices)}"
            return Violation(value, f"at most {MOST_RUNS}")
    return None
