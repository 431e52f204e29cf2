"""What the NPU takes of operators that compute element by element, and of matrices.

One rule is one function, as in `door.rules`.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.door import geometry
from tvm_npu.door.dataflow import Constant, OpCall
from tvm_npu.door.rules import Context, Violation, axis_of, constant_array


def channel_axis(call: OpCall, context: Context) -> Violation | None:
    """Biases and batch norms go along the channels (axis 1)."""
    axis = axis_of(call)
    return None if axis == 1 else Violation(f"axis {axis}", "axis 1")


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
    constants = [constant_array(arg) for arg in call.operands]
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
    values = constant_array(call.operands[1])
    if values is not None:
        with np.errstate(divide="ignore", over="ignore"):
            bad = int(np.count_nonzero(~np.isfinite(np.float32(1) / values.astype(np.float32))))
        if bad:
            return Violation(f"{bad} values without", "0 values without")
    return None


def scalar_bound(call: OpCall, context: Context) -> Violation | None:
    """A minimum compares with one constant number."""
    for number, other in ((0, call.operands[1]), (1, call.operands[0])):
        values = constant_array(call.operands[number])
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
    variance = constant_array(call.operands[4])
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
    slopes = constant_array(call.operands[1])
    channels = call.shape[1]
    if slopes is None or slopes.size not in (1, channels):
        return Violation("other slopes", f"1 or {channels} constants")
    if slopes.size > 1 and call.attributes["axis"] != 1:
        return Violation(f"axis {call.attributes['axis']}", "axis 1")
    if not (slopes.min() > -2.0 and slopes.max() <= 1.0):
        return Violation(f"slopes from {slopes.min():g} to {slopes.max():g}", "above -2, up to 1")
    return None
