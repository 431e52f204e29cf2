"""Q-points of tensors: the radix point of each from its range, then the ties between tensors.

Follows the quantization pass of the TSO paper (section V): calibration gives the Q-point of every
logged tensor, a forward traversal hands it on over operations that keep it, a backward traversal
makes the inputs of concatenations and additions agree. Both traversals amount to classes of tied
tensors (a union-find); a class takes the smallest Q-point, the widest range, of its members.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import MAX_Q_POINT, MIN_Q_POINT, largest_q_point
from tvm_npu.codegen.graph import Graph, Scale, q_point_scales
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.calibrate import Octave, Ranges, TensorRange
from tvm_npu.codegen.passes.scales import ties_of

RESIDUAL_HEADROOM_BITS = 12
"""A residual's Q-point may exceed its sum's by this much; finer digits could not show there."""


def squared_error(octaves: tuple[Octave, ...], q_point: int, element_bytes: int) -> float:
    """Expected sum of squared quantization errors of the observed values at a Q-point.

    Values beyond the type's limit err by their distance to it, values below half a step by
    themselves, all others by step**2 / 12.
    """
    step = math.ldexp(1.0, -q_point)
    clip_exponent = 8 * element_bytes - 1 - q_point
    limit = math.ldexp(1.0, clip_exponent)
    error = 0.0
    for octave in octaves:
        if octave.exponent >= clip_exponent:
            error += octave.square_sum - 2.0 * limit * octave.magnitude_sum
            error += octave.count * limit * limit
        elif octave.exponent + 1 <= -q_point - 1:
            error += octave.square_sum
        else:
            error += octave.count * step * step / 12.0
    return error


def range_q_point(entry: TensorRange, element_bytes: int, may_clip: bool) -> int | None:
    """The Q-point that one tensor would take on its own; None when it is always zero.

    int16 never clips the calibrated range. int8 has no bits to spare for outliers: where octaves
    were observed and ``may_clip``, the next finer Q-point is taken if its expected squared error
    is smaller.
    """
    magnitude = entry.magnitude(element_bytes)
    if magnitude == 0.0:
        return None
    f = largest_q_point(magnitude, element_bytes)
    if element_bytes > 1 or not may_clip or not entry.octaves or f >= MAX_Q_POINT:
        return f
    finer = squared_error(entry.octaves, f + 1, element_bytes)
    return f + 1 if finer < squared_error(entry.octaves, f, element_bytes) else f


class _Classes:
    """Union-find over tensor names; a class is known by its earliest tensor."""

    def __init__(self, tensors: tuple[str, ...]) -> None:
        self._order = {tensor: index for index, tensor in enumerate(tensors)}
        self._parent = {tensor: tensor for tensor in tensors}

    def find(self, tensor: str) -> str:
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor

    def union(self, a: str, b: str) -> None:
        first, second = sorted((self.find(a), self.find(b)), key=self._order.__getitem__)
        self._parent[second] = first


def assign_scales(
    graph: Graph, ranges: Ranges, widths: Mapping[str, int]
) -> dict[str, Scale]:
    """The scale of every tensor of a fused graph, whose elements have ``widths`` bytes: the
    model's, else a Q-point. A state has that of the tensors it is tied to.

    Raises QuantizationError for a tensor without a range or with one too wide for MIN_Q_POINT, and
    for scales of the model that contradict each other.
    """
    states = [state.tensor for layer in graph.layers for state in layer.states]
    tensors = (*graph.tensors, *states)
    classes = _Classes(tensors)
    for layer in graph.layers:
        for tied in ties_of(layer, graph.scales):
            for tensor in tied[1:]:
                classes.union(tied[0], tensor)
    fixed = _given(graph, classes)
    chosen: dict[str, int] = {}
    observed = [tensor for tensor in states if tensor in ranges]
    for tensor in (*graph.tensors, *observed):
        if classes.find(tensor) in fixed:
            continue
        f = range_q_point(ranges[tensor], widths[tensor], tensor not in graph.outputs)
        if f is None:
            continue
        if f < MIN_Q_POINT:
            entry = ranges[tensor]
            raise QuantizationError(
                f"tensor {tensor!r} with range [{entry.low}, {entry.high}] needs Q-point {f}; the "
                f"smallest is {MIN_Q_POINT}"
            )
        root = classes.find(tensor)
        chosen[root] = min(f, chosen.get(root, MAX_Q_POINT))
    measured = {*fixed, *(classes.find(tensor) for tensor in (*graph.tensors, *observed))}
    for tensor in states:
        if classes.find(tensor) not in measured:
            raise QuantizationError(
                f"state {tensor!r} is tied to no tensor, so that no range says its Q-point; give "
                "it an initial or final value, or let its operator tie it to an output"
            )
    for tensor in tensors:
        root = classes.find(tensor)
        if root not in fixed:
            chosen.setdefault(root, 8 * widths[tensor] - 1)
        elif fixed[root].is_q_point:
            chosen[root] = fixed[root].q_point
    _limit_residuals(graph, classes, chosen, frozenset(fixed))
    scales = {**fixed, **q_point_scales(chosen)}
    return {tensor: scales[classes.find(tensor)] for tensor in tensors}


def _given(graph: Graph, classes: _Classes) -> dict[str, Scale]:
    """The scales that the model fixes, by class."""
    found: dict[str, Scale] = {}
    named: dict[str, str] = {}
    for tensor, scale in graph.scales.items():
        root = classes.find(tensor)
        if found.setdefault(root, scale) != scale:
            raise QuantizationError(
                f"tensors {named[root]!r} and {tensor!r} must share a scale; the model gives them "
                f"{graph.scales[named[root]]} and {scale}"
            )
        named.setdefault(root, tensor)
    return found


def _limit_residuals(
    graph: Graph, classes: _Classes, chosen: dict[str, int], fixed: frozenset[str]
) -> None:
    """Lowers residuals' Q-points to RESIDUAL_HEADROOM_BITS above the sums they enter, those of
    ``fixed`` classes excepted."""
    pairs = [
        (classes.find(residual), classes.find(total))
        for layer in graph.layers
        for residual, total in operator_of(layer).residuals(layer)
    ]
    pairs = [(one, other) for one, other in pairs if one in chosen and other in chosen]
    changed = True
    while changed:
        changed = False
        for residual, total in pairs:
            limit = chosen[total] + RESIDUAL_HEADROOM_BITS
            if chosen[residual] > limit and residual not in fixed:
                chosen[residual] = limit
                changed = True
