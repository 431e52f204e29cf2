"""The scales of quantized models on machines with multipliers: copies where two scales meet.

    before: concat(a at S, b at T) -> y at S
    after:  b -> copy (rescales) -> b' at S; concat(a, b') -> y

What moves numbers of several scales to a tensor without one has the first that holds them all, or
one that spans them; so have averages, and a padding with a number that its input's scale does not
hold.
Layers that take no scales (`Operator.takes_scales`) compute with Q-points between two copies. An
average whose result has another scale than its input, or halves to even, becomes a depthwise
convolution by 1 / n, which rounds once. Zeros around an average that counts them become elements
where a zero point means them: pools add nothing for their padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tvm_npu.codegen.fixed_point import element_limits, largest_q_point
from tvm_npu.codegen.graph import Graph, Halves, Layer, Scale, Shape
from tvm_npu.codegen.graph.layer import renamed
from tvm_npu.codegen.ops import Elementwise, Pool
from tvm_npu.codegen.ops.registry import operator_of, tied_tensors
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange
from tvm_npu.codegen.passes.held import without_scales
from tvm_npu.codegen.passes.scale_ranges import is_held, range_of, with_scale_ranges
from tvm_npu.codegen.passes.weighed import behind_zeros, can_be_weighed, weighed
from tvm_npu.sim.description import Requantization


def covering(entries: Sequence[TensorRange], given: Sequence[Scale]) -> Scale:
    """The first of the ``given`` scales that loses no more of the values than a rounding, else one
    of 8 bits that spans them all."""
    low, high = min(one.low for one in entries), max(one.high for one in entries)
    for scale in given:
        if is_held(low, scale) and is_held(high, scale):
            return scale
    return spanning(TensorRange(low, high), given[0].halves)


def spanning(entry: TensorRange, halves: Halves) -> Scale:
    """One of 8 bits that holds zero and all of a range that is more than zero."""
    low, high = min(entry.low, 0.0), max(entry.high, 0.0)
    smallest, largest = element_limits(1)
    step = (high - low) / (largest - smallest)
    return Scale.from_real([step], [round(smallest - low / step)], halves)


def growth_of_step(scale: Scale, element_bytes: int) -> float:
    """The step of the finest Q-point for the range of a scale of int8, in steps of the scale."""
    entry = range_of(scale)
    q_point = largest_q_point(max(abs(entry.low), abs(entry.high)), element_bytes)
    return math.ldexp(1.0, -q_point) / float(scale.steps.min())


def ties_of(layer: Layer, scales: dict[str, Scale]) -> tuple[tuple[str, ...], ...]:
    """`tied_tensors`, but for sums in which scales are given: machines weigh their terms."""
    is_sum = isinstance(layer, Elementwise) and layer.op == "add"
    if is_sum and any(tensor in scales for tensor in (*layer.inputs, *layer.outputs)):
        return ()
    return tuple(tied_tensors(layer))


def scales_for_machine(
    graph: Graph, ranges: Ranges, requantization: Requantization
) -> tuple[Graph, Ranges]:
    """The graph with the scales that it gives, where the machine's step has what they need (and
    with `with_rescaling_copies`), else with none and their ranges."""
    if any(scale.lacks(requantization) for scale in graph.scales.values()):
        return without_scales(graph, ranges)
    return with_rescaling_copies(graph, ranges)


def with_rescaling_copies(graph: Graph, ranges: Ranges) -> tuple[Graph, Ranges]:
    """The graph in which every layer can take its tensors' scales, and the ranges of what it has
    more (those of given scales included). Tensors that are tied to ones with scales get them."""
    found = _Copies(graph, with_scale_ranges(graph, ranges))
    for layer in graph.layers:
        found.add(layer)
    made = graph.with_layers(found.layers, found.shapes)
    return replace(made, scales=found.scales), Ranges(found.ranges)


@dataclass
class _Copies:
    """The graph while it is rewritten, in the order of its layers."""

    graph: Graph
    known: Ranges
    layers: list[Layer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shapes: dict[str, Shape] = dict(self.graph.shapes)
        self.scales: dict[str, Scale] = dict(self.graph.scales)
        self.ranges: dict[str, TensorRange] = dict(self.known.tensors)

    def add(self, layer: Layer) -> None:
        """``layer``, and the copies that it needs."""
        tensors = (*layer.inputs, *layer.outputs)
        if not any(tensor in self.scales for tensor in tensors):
            self.layers.append(layer)
        elif not operator_of(layer).takes_scales(layer):
            self._at_q_points(layer)
        elif isinstance(layer, Pool) and self._counts_zero_points(layer):
            tensor = layer.inputs[0]
            padded = self._new(layer, tensor, "from", None)
            pad, mean, self.shapes[padded] = behind_zeros(layer, self.shapes[tensor], padded)
            self.add(pad)
            self.add(mean)
        elif isinstance(layer, Pool) and self._is_weighed(layer):
            self._span(layer)
            self.layers.append(weighed(layer, self.shapes[layer.inputs[0]][0]))
        else:
            for tied in ties_of(layer, self.scales):
                layer = self._at_one_scale(layer, tied)
            self.layers.append(layer)
            self._finish(layer)

    def _counts_zero_points(self, layer: Pool) -> bool:
        """An average over padding, where zero is another integer than 0."""
        if not layer.count_include_pad or not any(layer.counted_padding):
            return False
        tensors = (tensor for tensor in (*layer.inputs, *layer.outputs) if tensor in self.scales)
        return any(any(self.scales[tensor].zero_points) for tensor in tensors)

    def _span(self, layer: Pool) -> None:
        """A result without a scale has that of its range."""
        if layer.output not in self.scales:
            entry = self.known[layer.output]
            halves = self.scales[layer.inputs[0]].halves
            if entry.low < 0.0 or entry.high > 0.0:
                self.scales[layer.output] = spanning(entry, halves)

    def _is_weighed(self, layer: Pool) -> bool:
        """An average between two scales, or with halves to even, of few enough numbers without a
        border."""
        source, target = self.scales.get(layer.inputs[0]), self.scales.get(layer.output)
        if not can_be_weighed(layer):
            return False
        return target is None or source != target or target.halves == "even"

    def _at_one_scale(self, layer: Layer, tied: tuple[str, ...]) -> Layer:
        """Inputs that differ are copied to one scale; an output that differs is copied behind."""
        inputs = [tensor for tensor in tied if tensor in layer.inputs]
        outputs = [tensor for tensor in tied if tensor in layer.outputs]
        given = [self.scales[one] for one in (*outputs, *inputs) if one in self.scales]
        if not given:
            return layer
        wanted = given[0]
        if len(inputs) == 1 and inputs[0] in self.scales:
            wanted = self.scales[inputs[0]]
        entries = [self.ranges[tensor] for tensor in inputs]
        operator = operator_of(layer)
        lost = [TensorRange(one, one) for one in operator.fills(layer) if not is_held(one, wanted)]
        entries += lost
        if lost or operator.is_mean(layer) or not any(tensor in self.scales for tensor in outputs):
            wanted = covering(entries, [wanted, *given])
        for tensor in dict.fromkeys(inputs):
            if self.scales.get(tensor) != wanted:
                layer = self._copied_input(layer, tensor, wanted)
        for tensor in outputs:
            if self.scales.setdefault(tensor, wanted) != wanted:
                layer = self._copied_output(layer, tensor, wanted)
        return layer

    def _at_q_points(self, layer: Layer) -> None:
        for tensor in dict.fromkeys(layer.inputs):
            if tensor in self.scales:
                layer = self._copied_input(layer, tensor, None)
        for tensor in layer.outputs:
            if tensor in self.scales:
                layer = self._copied_output(layer, tensor, None)
        self.layers.append(layer)
        self._finish(layer)

    def _copied_input(self, layer: Layer, tensor: str, scale: Scale | None) -> Layer:
        copy = self._new(layer, tensor, "from", scale)
        name = f"{layer.name}@{tensor}"
        self.layers.append(Elementwise(name, (tensor,), (copy,), "copy", source=layer.source))
        inputs = tuple(copy if one == tensor else one for one in layer.inputs)
        return replace(layer, inputs=inputs)

    def _copied_output(self, layer: Layer, tensor: str, scale: Scale | None) -> Layer:
        """The copy behind is appended by `_finish`."""
        return renamed(layer, tensor, self._new(layer, tensor, "to", scale))

    def _finish(self, layer: Layer) -> None:
        for made in layer.outputs:
            target = made.removesuffix("@to")
            if target != made:
                name = f"{layer.name}@{target}"
                self.layers.append(
                    Elementwise(name, (made,), (target,), "copy", source=layer.source)
                )

    def _new(self, layer: Layer, tensor: str, way: str, scale: Scale | None) -> str:
        name = f"{tensor}@{layer.name}@from" if way == "from" else f"{tensor}@to"
        self.shapes[name] = self.shapes[tensor]
        self.ranges[name] = self.ranges[tensor]
        if scale is not None:
            self.scales[name] = scale
        return name

