"""What the NPU takes. One rule is one function; its docstring is the rule.

A rule looks at a call and returns None, or what it found and what is allowed. The same docstring
is the refusal's message and the line in the documentation (`door.rule_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.least import LeastNeeds
from tvm_npu.codegen.ops import resize
from tvm_npu.door import geometry
from tvm_npu.door.backend import least_needs
from tvm_npu.door.dataflow import Array, Constant, Input, OpCall, TensorShape, TensorType, Value
from tvm_npu.options import Offload
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

MAX_EXTENT = 65535
MOST_RUNS = 48


@dataclass(frozen=True)
class Context:
    """What the rules may depend on besides the call."""

    machine: MachineDescription
    precision: Precision
    offload: Offload = "all"

    @property
    def least(self) -> LeastNeeds:
        return least_needs(self.machine, self.precision)


@dataclass(frozen=True)
class Violation:
    value: str
    limit: str


Rule = Callable[[OpCall, Context], Violation | None]


def static_shapes(call: OpCall, context: Context) -> Violation | None:
    """Every tensor has a static shape."""
    for type_ in _types(call):
        if type_.static_shape is None:
            return Violation(str(type_), "no unknown extents: give shape= when reading the model")
    return None


def float32_tensors(call: OpCall, context: Context) -> Violation | None:
    """Every tensor of the model is float32; the NPU's own integers come from calibration."""
    for type_ in _types(call):
        if type_.dtype != "float32":
            return Violation(str(type_.dtype), "float32")
    return None


def extents_in_range(call: OpCall, context: Context) -> Violation | None:
    """Every extent of a tensor is at least 1 and at most 65535 (flat tensors: by memory alone)."""
    for shape in _shapes(call):
        largest = max(shape, default=1)
        if 0 in shape:
            return Violation(str(shape), "extents of at least 1")
        if len(shape) == 4 and largest > MAX_EXTENT:
            return Violation(str(largest), f"at most {MAX_EXTENT}")
    return None


def rank_4_or_2(call: OpCall, context: Context) -> Violation | None:
    """Tensors are NCHW feature maps (rank 4) or flat (rank 2: image, feature)."""
    for shape in run_time_shapes(call):
        if len(shape) not in (2, 4):
            return Violation(f"rank {len(shape)}, {shape}", "rank 4 or 2")
    return None


def rank_2_to_6(call: OpCall, context: Context) -> Violation | None:
    """Tensors whose elements are only moved, or joined along one axis, have a batch and one to five
    axes more."""
    for shape in run_time_shapes(call):
        if not 2 <= len(shape) <= 6:
            return Violation(f"rank {len(shape)}, {shape}", "rank 2 to 6")
    return None


def rank_4(call: OpCall, context: Context) -> Violation | None:
    """The operand is an NCHW feature map of rank 4."""
    shape = call.operands[0].shape
    return None if len(shape) == 4 else Violation(f"rank {len(shape)}, {shape}", "rank 4")


def batch_kept(call: OpCall, context: Context) -> Violation | None:
    """The first extent is the batch and stays what it is."""
    shapes = run_time_shapes(call)
    if len({shape[0] for shape in shapes}) > 1:
        return Violation(", ".join(map(str, shapes)), "one first extent throughout")
    return None


def finite_constants(call: OpCall, context: Context) -> Violation | None:
    """Constants contain neither NaN nor infinity."""
    for arg in call.operands:
        values = _array(arg)
        if values is not None and values.dtype.kind == "f":
            bad = int(values.size - np.count_nonzero(np.isfinite(values)))
            if bad:
                return Violation(f"{bad} of {values.size} values of {values.shape}", "0 values")
    return None


def constant_weights(call: OpCall, context: Context) -> Violation | None:
    """Everything but the first operand (weights, biases, statistics) is a constant."""
    for index, arg in enumerate(call.operands[1:], 1):
        if not isinstance(arg, Constant):
            known = f" ({arg.name})" if isinstance(arg, Input) and arg.name else ""
            return Violation(f"operand {index}{known} is only known at run time", "a constant")
    return None


def data_is_variable(call: OpCall, context: Context) -> Violation | None:
    """The data operand is computed at run time."""
    if isinstance(call.operands[0], Constant):
        return Violation("a constant", "a run-time tensor")
    return None


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


def channel_axis(call: OpCall, context: Context) -> Violation | None:
    """Biases and batch norms go along the channels (axis 1)."""
    axis = _axis(call)
    return None if axis == 1 else Violation(f"axis {axis}", "axis 1")


def axis_behind_the_batch(call: OpCall, context: Context) -> Violation | None:
    """Concatenations, splits, reversals and softmax go along any axis but the batch."""
    axis = _axis(call)
    return None if axis > 0 else Violation(f"axis {axis}", "at least 1")


def _axis(call: OpCall) -> int:
    rank = len(run_time_shapes(call)[0])
    return geometry.normalized_axis(call.attributes["axis"], rank)


def batch_stays_first(call: OpCall, context: Context) -> Violation | None:
    """A transpose leaves the batch where it is."""
    axes = geometry.transposed_axes(call)
    return None if axes[0] == 0 else Violation(f"axes {axes}", "axis 0 first")


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
        found = len(resize.runs(indices))
        if found > MOST_RUNS:
            return Violation(f"{found} patterns", f"at most {MOST_RUNS}")
    return None


def run_time_fields(call: OpCall, context: Context) -> Violation | None:
    """A concatenation joins run-time tensors only, written as a tuple."""
    for index, field in enumerate(call.operands):
        if field.is_tuple:
            return Violation("a tuple from elsewhere", "a tuple of tensors")
        if isinstance(field, Constant):
            return Violation(f"field {index} is a constant", "a run-time tensor")
    return None


def dense_rank_2(call: OpCall, context: Context) -> Violation | None:
    """A fully connected layer takes a flat tensor, not transposed, and a matrix."""
    shapes = [arg.shape for arg in call.operands]
    if any(len(shape) != 2 for shape in shapes):
        return Violation(f"ranks {[len(shape) for shape in shapes]}", "rank 2")
    if call.name == "matmul" and call.attributes["transpose_a"]:
        return Violation("transpose_a", "data as it is")
    return None


def same_shape_or_channel_constant(call: OpCall, context: Context) -> Violation | None:
    """Arithmetic joins two tensors of one shape, a feature map and a tensor with one number a
    channel (N, C, 1, 1), or a tensor and a constant per channel."""
    constants = [_array(arg) for arg in call.operands]
    shape = call.shape
    if all(arg.shape != shape for arg in call.run_time_operands):
        return Violation("two tensors that broadcast to a third", "one of the result's shape")
    if all(values is not None for values in constants):
        return Violation("two constants", "at least one run-time tensor")
    for arg, values in zip(call.operands, constants, strict=True):
        if values is None and arg.shape not in (shape, (*shape[:2], 1, 1)):
            allowed = "equal shapes, or one number a channel"
            return Violation(f"{arg.shape} broadcast to {shape}", allowed)
        if values is not None and geometry.channel_vector(values, shape) is None:
            return Violation(f"constant {values.shape} on {shape}", "one value per channel")
    return None


def constant_divisor(call: OpCall, context: Context) -> Violation | None:
    """A divisor is a constant."""
    if isinstance(call.operands[1], Constant):
        return None
    return Violation("a run-time divisor", "a constant divisor")


def nonzero_divisor(call: OpCall, context: Context) -> Violation | None:
    """A constant divisor has a finite reciprocal."""
    values = _array(call.operands[1])
    if values is not None:
        with np.errstate(divide="ignore", over="ignore"):
            bad = int(np.count_nonzero(~np.isfinite(np.float32(1) / values.astype(np.float32))))
        if bad:
            return Violation(f"{bad} values without", "0 values without")
    return None


def scalar_bound(call: OpCall, context: Context) -> Violation | None:
    """A minimum compares with one constant number."""
    for number, other in ((0, call.operands[1]), (1, call.operands[0])):
        values = _array(call.operands[number])
        if values is not None and np.all(values == values.flat[0]):
            if not isinstance(other, Constant) and other.shape == call.shape:
                return None
    return Violation("two tensors", "a tensor and a number")


def two_tensors_or_scalar_bound(call: OpCall, context: Context) -> Violation | None:
    """A maximum has two run-time tensors of one shape, or a tensor and one constant number."""
    shapes = [arg.shape for arg in call.run_time_operands]
    if len(shapes) == 2:
        if shapes[0] == shapes[1]:
            return None
        return Violation(f"{shapes[0]} and {shapes[1]}", "equal shapes")
    if scalar_bound(call, context) is None:
        return None
    return Violation("a constant of several numbers", "a tensor and a number")


def positive_variance(call: OpCall, context: Context) -> Violation | None:
    """The variance of a batch norm plus epsilon is above 0."""
    variance = _array(call.operands[4])
    if variance is not None:
        lowest = float(variance.min()) + call.attributes["epsilon"]
        if not lowest > 0:
            return Violation(f"{lowest:g}", "above 0")
    return None


def ordered_bounds(call: OpCall, context: Context) -> Violation | None:
    """The lower bound of a clip is not above the upper and neither is NaN."""
    low, high = call.attributes["a_min"], call.attributes["a_max"]
    return None if low <= high else Violation(f"clip({low:g}, {high:g})", "low <= high")


def slope_in_range(call: OpCall, context: Context) -> Violation | None:
    """The slope of a leaky ReLU is a number from 0 to 1."""
    slope = call.attributes["alpha"]
    return None if 0.0 <= slope <= 1.0 else Violation(f"slope {slope:g}", "0 to 1")


def slopes_in_range(call: OpCall, context: Context) -> Violation | None:
    """The slopes of a PReLU are constants between -2 and 1, one a channel or one for all."""
    slopes = _array(call.operands[1])
    channels = call.shape[1]
    if slopes is None or slopes.size not in (1, channels):
        return Violation("other slopes", f"1 or {channels} constants")
    if call.attributes["axis"] != 1:
        return Violation(f"axis {call.attributes['axis']}", "axis 1")
    if not (slopes.min() > -2.0 and slopes.max() <= 1.0):
        return Violation(f"slopes from {slopes.min():g} to {slopes.max():g}", "above -2, up to 1")
    return None


def known_padding(call: OpCall, context: Context) -> Violation | None:
    """Padding fills with one finite constant, or reflects rows and columns."""
    if geometry.is_reflected(call):
        return _reflection(call)
    mode = call.attributes["mode" if call.name == "mirror_pad" else "pad_mode"]
    if mode != "constant":
        return Violation(f"mode {mode}", "constant or reflect")
    values = _array(call.operands[1])
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


def slices_have_elements(call: OpCall, context: Context) -> Violation | None:
    """Slices take at least one element along every axis, and the batch as it is."""
    bounds = geometry.slice_bounds(call)
    for axis, (begin, end, step) in enumerate(bounds):
        if step == 0 or (end - begin) * step <= 0:
            return Violation(f"{begin}:{end}:{step} on axis {axis}", "at least one element")
    if bounds[0] != (0, call.operands[0].shape[0], 1):
        return Violation(f"{bounds[0]} of the batch", "all of it, in order")
    return None


def equal_split(call: OpCall, context: Context) -> Violation | None:
    """A split cuts a feature map or flat tensor into non-empty parts in order."""
    starts = geometry.split_begins(call)
    if list(starts) != sorted(set(starts)):
        return Violation(f"parts begin at {starts}", "increasing positions")
    return None


def _types(call: OpCall) -> list[TensorType]:
    tensors = call.operands[:1] if call.name == "pad" else call.operands  # fill: any type
    return [type_ for one in tensors for type_ in one.types] + list(call.types)


def _shapes(call: OpCall) -> list[TensorShape]:
    return _static(_types(call))


def run_time_shapes(call: OpCall) -> list[TensorShape]:
    """Shapes of the run-time operands and of the results (a batch norm's first result only)."""
    results = call.types[:1] if call.name == "batch_norm" else call.types
    return _static([type_ for one in call.run_time_operands for type_ in one.types] + [*results])


def _static(types: list[TensorType]) -> list[TensorShape]:
    return [shape for shape in (type_.static_shape for type_ in types) if shape is not None]


def _array(value: Value) -> Array | None:
    return value.array if isinstance(value, Constant) else None
