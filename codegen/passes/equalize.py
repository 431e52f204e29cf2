"""Equalisation: factors for channels so that every tensor uses all of its integers.

After "Data-Free Quantization Through Weight Equalization and Bias Correction" (Nagel et al., ICCV
2019), section 4.1, with ranges of activations from calibration in place of the weights that make
them: with a Q-point a filter a layer's own weights follow any factors. A Q-point's range ends at
a power of two; factors bring that of each tensor there, which a scale with a multiplier would do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import Conv2d
from tvm_npu.codegen.passes.calibrate import Octave, Ranges, TensorRange
from tvm_npu.codegen.passes.rescale import Adjustments, Factors, Group, groups

MOST_FACTOR = 2.0
"""Between the factors of two channels of a tensor: calibration knows the largest value of a channel
that is seldom active too badly to trust it with more."""
FULL = 127.4 / 128.0
"""Of a power of two: the largest value that int8 rounds to its largest integer."""
LARGEST_INTEGER = 127.0
LEAST_END = 0.5
"""Of the largest value: no more is clipped, as with the next finer Q-point."""
_ENDS = np.linspace(LEAST_END, 1.0, 26)


def equalize(
    graph: Graph, ranges: Ranges, magnitudes: Mapping[str, Factors]
) -> tuple[Adjustments, Ranges]:
    """Factors for the tensors of a fused graph, and the ranges that it has with them.

    ``magnitudes`` are the largest absolute values of tensors' channels, [C]. A group of tensors
    that depthwise convolutions alone read, without an upper bound, gets like ranges of all
    channels, up to `MOST_FACTOR`; all other free groups get one factor. Without a bound the range
    ends for int8 where clipping and rounding together cost the least squared error.
    """
    factors: dict[str, tuple[float, ...]] = {}
    limits: dict[str, float] = {}
    found = dict(ranges.tensors)
    for group in groups(graph):
        if not group.is_free or any(tensor not in found for tensor in group.tensors):
            continue
        values = _channel_factors(graph, group, magnitudes)
        entry = _together([ranges[tensor] for tensor in group.tensors])
        top = max(abs(entry.low), abs(entry.high))
        if top == 0.0:
            continue
        beyond = 1.0
        if not values.min() == values.max():
            top = max(float((values * magnitudes[tensor]).max()) for tensor in group.tensors)
        elif group.limit < math.inf:
            top = group.limit
        else:
            largest, top = top, best_end(entry)
            beyond = largest / top
        whole = FULL * 2.0 ** math.ceil(math.log2(top / FULL))
        scaled = tuple((values * (whole / top)).tolist())
        for tensor in group.tensors:
            factors[tensor] = scaled
            if group.limit < math.inf:
                limits[tensor] = whole
            high = whole * max(1.0, beyond)
            found[tensor] = TensorRange(
                -high if entry.low < 0.0 else 0.0, high, int8_end=whole if beyond > 1.0 else None
            )
    return Adjustments(factors, limits), Ranges(found)


def _channel_factors(graph: Graph, group: Group, magnitudes: Mapping[str, Factors]) -> Factors:
    even = np.ones(group.channels)
    readers = [layer for layer in graph.layers if set(layer.inputs) & set(group.tensors)]
    by_channel = all(isinstance(one, Conv2d) and one.weight.shape[1] == 1 for one in readers)
    if group.limit < math.inf or not by_channel or any(t not in magnitudes for t in group.tensors):
        return even
    largest = np.max([magnitudes[tensor] for tensor in group.tensors], axis=0)
    top = float(largest.max())
    return even if top == 0.0 else 1.0 / np.maximum(largest / top, 1.0 / MOST_FACTOR)


def _together(entries: list[TensorRange]) -> TensorRange:
    merged = entries[0]
    for entry in entries[1:]:
        merged = merged.merge(entry)
    return merged


def best_end(entry: TensorRange) -> float:
    """The end of the range with which int8 numbers have the least squared error: rounding errs by
    step**2 / 12 at every value, clipping by the distance to the end. Values are spread evenly
    inside of an octave."""
    top = max(abs(entry.low), abs(entry.high))
    if not entry.octaves:
        return top
    count = sum(octave.count for octave in entry.octaves)

    def error(end: float) -> float:
        clipped = sum(_clipped(octave, end, top) for octave in entry.octaves)
        return clipped + count * (end / LARGEST_INTEGER) ** 2 / 12.0

    return min((top * float(share) for share in _ENDS), key=error)


def _clipped(octave: Octave, end: float, top: float) -> float:
    """Squared distances of an octave's values above ``end`` to it; no value is above ``top``."""
    low, high = 2.0**octave.exponent, min(2.0 ** (octave.exponent + 1), top)
    if high <= end:
        return 0.0
    if low >= end:
        error = octave.square_sum - 2.0 * end * octave.magnitude_sum + octave.count * end * end
        return max(error, 0.0)
    return octave.count * (high - end) / (high - low) * (high - end) ** 2 / 3.0
