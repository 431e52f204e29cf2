"""The real values that integers of 8 bits at a scale can mean."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import Graph, Scale
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange


def range_of(scale: Scale) -> TensorRange:
    """The real values that integers of 8 bits at a scale can mean."""
    ends = np.array(element_limits(1), np.float64)[:, None] - scale.zero_points
    values = ends * scale.steps
    return TensorRange(float(values.min()), float(values.max()))


def is_held(value: float, scale: Scale) -> bool:
    """Whether ``value`` loses no more than a rounding at a scale."""
    entry, half = range_of(scale), 0.5 * float(scale.steps.max())
    return entry.low - half <= value <= entry.high + half


def with_scale_ranges(graph: Graph, ranges: Ranges) -> Ranges:
    """``ranges`` with those of the scales of int8 that the graph gives, in place of what was
    calibrated."""
    given = {tensor: range_of(scale) for tensor, scale in graph.scales.items()}
    return Ranges({**ranges.tensors, **given})
