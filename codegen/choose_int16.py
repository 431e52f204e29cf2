"""Which layers of an int8 region compute in int16: those that keep a stated loss at the least time.

The loss is the noise of the outputs, float to fixed point over some samples, as a share of their
signal's power, that of the worst output. A layer's part in it is what the outputs lose when only
that layer reads int8 operands and has int8 weights, all else in float. Layers become int16 in the
order of their parts for each cycle that it costs (predicted), as few as keep the loss; where all of
them in int16 are predicted to take less time, all do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_npu.codegen.compile import CompileOptions, fixed_graph, plan_graph, prepared_graph
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.graph import FixedGraph, FloatArray, Graph, Layer
from tvm_npu.codegen.graph.fixed import Width, precision_of_width
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.precisions import NARROW, WIDE
from tvm_npu.codegen.passes.quantize import Formats, Prepared, formats
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.reference import run_fixed, run_float, stream_float
from tvm_npu.sim.description import Q_POINTS_ONLY, MachineDescription

Sample = Mapping[str, FloatArray]
RANKED_IMAGES = 2
"""Of the samples, for layers' parts: each of them takes a run of all that is behind the layer."""
LEAST_CYCLES = 1.0
"""What a layer in int16 costs at least, so that parts for each cycle are numbers."""


@dataclass(frozen=True)
class Choice:
    """The names of the layers; the loss with them and without any, and the predicted cycles of
    both."""

    layers: tuple[str, ...]
    loss: float
    int8_loss: float
    cycles: float
    int8_cycles: float


def choose_int16_layers(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions,
    sample: Sample,
    max_loss: float,
) -> Choice:
    """The layers of a region's float ``graph``, beside those that ``options`` name; ``sample`` has
    float32 [B, *shape] by input name. All layers where nothing less keeps the loss.

    Raises as `compile_graph`.
    """
    region = _Region(graph, ranges, machine, replace(options, precision="int8"), sample)
    none = region.options.int16_layers
    if region.loss(none) <= max_loss:
        return region.choice(none)
    ranked = region.ranked()
    prefixes = [(*none, *ranked[:count]) for count in range(len(ranked) + 1)]
    count = bisect_left(prefixes, -max_loss, key=lambda chosen: -region.loss(chosen))
    chosen, everything = prefixes[min(count, len(ranked))], prefixes[-1]
    if region.cycles(everything) <= region.cycles(chosen):
        chosen = everything
    return region.choice(chosen)


class _Region:
    """A region whose layers are int8 but for some; what that loses and costs, found once each."""

    def __init__(
        self,
        graph: Graph,
        ranges: Ranges,
        machine: MachineDescription,
        options: CompileOptions,
        sample: Sample,
    ) -> None:
        self.graph, self.ranges, self.machine, self.options = graph, ranges, machine, options
        self.sample = sample
        self.prepared = prepared_graph(graph, ranges, machine, options, Q_POINTS_ONLY)
        few = {name: values[:RANKED_IMAGES] for name, values in sample.items()}
        self.few = run_float(self.prepared.graph, few)
        self.outputs = {
            tensor: values
            for tensor, values in stream_float(self.prepared.graph, sample)
            if tensor in graph.outputs
        }
        chosen = planner_called(options.planner, options.limits, options.tuning_log)
        self.planner = LayerPlanner("int8", machine, chosen, options.limits)
        self._losses: dict[tuple[str, ...], float] = {}

    def fixed(self, layers: tuple[str, ...]) -> FixedGraph:
        options = replace(self.options, int16_layers=layers)
        return fixed_graph(self.graph, self.ranges, self.machine, options)

    def loss(self, layers: tuple[str, ...]) -> float:
        if layers not in self._losses:
            fixed = self.fixed(layers)
            scales = fixed.scales
            entry = {
                name: scales[name].quantize(self.sample[name], fixed.width_of(name))
                for name in fixed.inputs
            }
            made = run_fixed(fixed, entry)
            found = {name: scales[name].dequantize(made[name]) for name in fixed.outputs}
            self._losses[layers] = _noise(self.outputs, found)
        return self._losses[layers]

    def cycles(self, layers: tuple[str, ...]) -> float:
        """Predicted; infinite where some layer has no plan."""
        try:
            planned = plan_graph(self.fixed(layers), self.planner)
        except PlanningError:
            return float("inf")
        return sum(one.predicted_cycles or 0.0 for one in planned.layers)

    def choice(self, layers: tuple[str, ...]) -> Choice:
        none = self.options.int16_layers
        return Choice(
            layers, self.loss(layers), self.loss(none), self.cycles(layers), self.cycles(none)
        )

    def ranked(self) -> list[str]:
        """The layers that may become int16, those first that lose most for each cycle."""
        graph = self.prepared.graph
        narrow, wide = (self._formats(width) for width in (NARROW, WIDE))
        worth = []
        for index, layer in enumerate(graph.layers):
            if not operator_of(layer).may_widen:
                continue
            costs = [self._cost(layer, one) for one in (narrow, wide)]
            if costs[1] == float("inf"):
                continue
            part = _noise(self.few, self._with_int8(index, narrow, wide))
            worth.append((part / max(LEAST_CYCLES, costs[1] - costs[0]), -index, layer.name))
        return [name for _, _, name in sorted(worth, reverse=True)]

    def _formats(self, width: Width) -> Formats:
        prepared = self.prepared
        widths = dict.fromkeys(prepared.widths, width)
        found = Prepared(prepared.graph, prepared.ranges, widths, width)
        return formats(found, self.machine.requantization(precision_of_width(width)))

    def _cost(self, layer: Layer, numbers: Formats) -> float:
        precision = precision_of_width(numbers.element_bytes)
        try:
            fixed = numbers.fixed(layer)
        except QuantizationError:
            return float("inf")
        return self.planner.cycles(fixed, self.prepared.graph.shapes, precision)

    def _with_int8(self, index: int, narrow: Formats, wide: Formats) -> dict[str, Any]:
        """The outputs where one layer is int8, up to its result, and all else float."""
        graph = self.prepared.graph
        layer = graph.layers[index]
        scales = {**wide.scales, **{tensor: narrow.scales[tensor] for tensor in layer.inputs}}
        widths = {**wide.widths, **dict.fromkeys(layer.inputs, NARROW)}
        fixed = replace(narrow, scales=scales, widths=widths).fixed(layer)
        arrays = [scales[tensor].quantize(self.few[tensor], NARROW) for tensor in layer.inputs]
        shapes = [graph.shapes[tensor] for tensor in layer.outputs]
        results = operator_of(fixed).run_fixed(fixed, arrays, shapes, NARROW)
        changed: dict[str, Any] = {
            tensor: scales[tensor].dequantize(values)
            for tensor, values in zip(layer.outputs, results, strict=True)
        }
        for behind in graph.layers[index + 1 :]:
            if changed.keys().isdisjoint(behind.inputs):
                continue
            read: Sequence[Any] = [changed.get(t, self.few[t]) for t in behind.inputs]
            shapes = [graph.shapes[tensor] for tensor in behind.outputs]
            made = operator_of(behind).run_float(behind, read, shapes)
            changed.update(zip(behind.outputs, made, strict=True))
        return {name: changed.get(name, self.few[name]) for name in graph.outputs}


def _noise(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The largest share of noise in an output."""
    shares = []
    for name, values in found.items():
        signal = np.square(wanted[name], dtype=np.float64).sum()
        noise = np.square(values.astype(np.float64) - wanted[name]).sum()
        shares.append(noise / signal if signal else float(noise > 0))
    return float(max(shares))
