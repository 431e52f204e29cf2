"""What the NPU takes of operators that only move elements.

One rule is one function, as in `door.rules`.
"""

from __future__ import annotations

from tvm_npu.door import geometry
from tvm_npu.door.dataflow import Constant, OpCall
from tvm_npu.door.rules import Context, Violation, axis_of


def axis_behind_the_batch(call: OpCall, context: Context) -> Violation | None:
    """Concatenations, splits, reversals and softmax go along any axis but the batch."""
    axis = axis_of(call)
    return None if axis > 0 else Violation(f"axis {axis}", "at least 1")


def batch_stays_first(call: OpCall, context: Context) -> Violation | None:
    """A transpose leaves the batch where it is."""
    axes = geometry.transposed_axes(call)
    return None if axes[0] == 0 else Violation(f"axes {axes}", "axis 0 first")


def run_time_fields(call: OpCall, context: Context) -> Violation | None:
    """A concatenation joins run-time tensors only, written as a tuple."""
    for index, field in enumerate(call.operands):
        if field.is_tuple:
            return Violation("a tuple from elsewhere", "a tuple of tensors")
        if isinstance(field, Constant):
            return Violation(f"field {index} is a constant", "a run-time tensor")
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
