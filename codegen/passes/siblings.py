"""Convolutions of one tensor as one convolution, which loads that tensor once.

    b0 = conv(x)                              both = conv(x)          filters of b1, then of b0
    b1 = conv(x)                              b1 = both[: n]
    b2 = conv(b1)                   ->        b2 = conv(b1)
    y = concat(b0, b2)                        beside = concat(both, b2)
                                              b0, y = both[n:], beside[n:]

All new layers but the convolution are layout only. A tensor that a concatenation puts first can be
a sibling, as its place is then the end of what the convolution makes; one that it puts elsewhere
would be copied there, and stays by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.graph.rescaling import Rescaling
from tvm_npu.codegen.graph.tensors import IntArray
from tvm_npu.codegen.ops import FixedChannelSlice, FixedConcat, FixedConv


@dataclass(frozen=True)
class Siblings:
    """``members`` read one tensor with windows of one form, and their results end alike. The last
    one makes what ``together`` puts first, if there is such a concatenation."""

    members: tuple[FixedConv, ...]
    together: FixedConcat | None

    @property
    def joined(self) -> FixedConv:
        """All filters, member by member."""
        members = self.members
        first, shift = members[0], min(one.shift for one in members)
        shifts = None
        if first.filter_shifts is not None:
            shifts = np.concatenate([_shifts(one) for one in members]) - np.int32(shift)
        return replace(
            first,
            name="+".join(one.name for one in members),
            outputs=("+".join(one.output for one in members),),
            source=tuple(dict.fromkeys(name for one in members for name in one.source)),
            weight=np.concatenate([one.weight for one in members]),
            bias=np.concatenate([one.bias for one in members]),
            shift=shift,
            filter_shifts=shifts,
            rescaling=_one_behind_the_other(members),
        )


def siblings(fixed: FixedGraph, most_shift: int = 0) -> Iterator[Siblings]:
    """All of a graph, in the order of their first members; a layer is in one of them at most.
    ``most_shift``: by so much the shifts of a layer's filters may differ."""
    gatherings = [layer for layer in fixed.layers if isinstance(layer, FixedConcat)]
    gathered = {tensor for layer in gatherings for tensor in layer.inputs}
    first_of = _first_tensors(fixed, gatherings)
    found: dict[object, list[FixedConv]] = {}
    for layer in fixed.layers:
        if not isinstance(layer, FixedConv) or not _may_be_joined(fixed, layer):
            continue
        if layer.output not in gathered or layer.output in first_of:
            found.setdefault(_form(layer), []).append(layer)
    for members in found.values():
        inner = [one for one in members if one.output not in gathered]
        front = [one for one in members if one.output in gathered][:1]
        together = first_of[front[0].output] if front else None
        chosen = tuple(inner + front)
        if len(chosen) > 1 and _spread_of_shifts(chosen) <= most_shift:
            yield Siblings(chosen, together)


def with_siblings(fixed: FixedGraph, found: Siblings) -> FixedGraph:
    """``fixed`` with the members as one."""
    joined, together = found.joined, found.together
    both, shapes, scales = joined.output, dict(fixed.shapes), dict(fixed.scales)
    last = found.members[-1].output
    shapes[both] = (len(joined.weight), *fixed.shapes[last][1:])
    scales[both] = scales[last]
    views: list[FixedLayer] = []
    begin = 0
    for one in found.members:
        views.append(FixedChannelSlice(one.name, (both,), one.outputs, begin, source=one.source))
        begin += len(one.weight)
    first = min(fixed.layers.index(one) for one in found.members)
    layers: list[FixedLayer] = []
    for number, layer in enumerate(fixed.layers):
        if number == first:
            layers += [joined, *views]
        elif layer is together:
            beside = f"{together.output}.beside"
            front = shapes[both][0] - shapes[last][0]
            channels = front + shapes[together.output][0]
            shapes[beside] = (channels, *shapes[together.output][1:])
            scales[beside] = scales[together.output]
            inputs = (both, *together.inputs[1:])
            layers += [
                replace(together, inputs=inputs, outputs=(beside,)),
                FixedChannelSlice(
                    together.name, (beside,), together.outputs, front, source=together.source
                ),
            ]
        elif layer not in found.members:
            layers.append(layer)
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)


def _first_tensors(
    fixed: FixedGraph, gatherings: Sequence[FixedConcat]
) -> dict[str, FixedConcat]:
    """By tensor, the one concatenation that it goes into, as its first part, where the result is
    no output of the graph and goes into no other."""
    times = Counter(tensor for layer in gatherings for tensor in layer.inputs)
    return {
        layer.inputs[0]: layer
        for layer in gatherings
        if times[layer.inputs[0]] == 1
        and layer.output not in fixed.outputs
        and layer.output not in times
    }


def _may_be_joined(fixed: FixedGraph, layer: FixedConv) -> bool:
    return (
        layer.groups == 1
        and not layer.is_dense
        and len(layer.inputs) == 1
        and layer.output not in fixed.outputs
        and layer.table is None
        and layer.slopes is None
    )


def _form(layer: FixedConv) -> object:
    """What siblings have in common. Where filters have shifts, that of the layer may differ."""
    scaled = layer.rescaling
    return (
        layer.inputs, layer.weight.shape[1:], layer.weight.dtype.str, layer.stride, layer.padding,
        layer.dilation, layer.low, layer.high, layer.out_bytes, layer.weight_zero_point, layer.fill,
        layer.reads_rows_apart, layer.shift if layer.filter_shifts is None else None,
        None if scaled is None else (scaled.zero_point, scaled.halves),
    )  # fmt: skip


def _shifts(layer: FixedConv) -> IntArray:
    """Of each filter."""
    assert layer.filter_shifts is not None
    found: IntArray = layer.filter_shifts + np.int32(layer.shift)
    return found


def _spread_of_shifts(members: Sequence[FixedConv]) -> int:
    if members[0].filter_shifts is None:
        return 0
    most = max(int(_shifts(one).max()) for one in members)
    return most - min(one.shift for one in members)


def _one_behind_the_other(members: Sequence[FixedConv]) -> Rescaling | None:
    """The multipliers and shifts of all filters, where there are some."""
    parts = [(one.rescaling, len(one.weight)) for one in members if one.rescaling is not None]
    if not parts:
        return None
    multipliers, shifts = (
        np.concatenate([np.broadcast_to(words(one), filters) for one, filters in parts])
        for words in (lambda one: one.multipliers, lambda one: one.shifts)
    )
    return replace(parts[0][0], multipliers=multipliers, shifts=shifts)
