"""What it costs and gains when layers of an int8 region compute in int16.

The loss is the noise of the outputs, float to fixed point over some samples, as a share of their
signal's power, that of the worst output. A layer's part in it is what the outputs lose when only
that layer reads int8 operands and has int8 weights, all else in float; parts add up, nearly. What
layers cost is how much longer the region is predicted to take, planned anew with them in int16:
layers that run together have one precision, or fall apart, so that each choice among them has its
own cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import numpy as np

from tvm_npu.codegen.compile import (
    CompileOptions,
    int16_layers,
    parted_graph,
    plan_graph,
)
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, FloatArray, Graph, Layer
from tvm_npu.codegen.graph.fixed import Width, precision_of_width
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.averages import with_ranges_of_parts
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.precisions import NARROW, WIDE, names
from tvm_npu.codegen.passes.quantize import (
    Formats,
    Prepared,
    fixed_graph_of,
    formats,
    prepare,
)
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.description import Q_POINTS_ONLY, MachineDescription

Sample = Mapping[str, FloatArray]
Layers = tuple[str, ...]
"""Their names."""
MOST_PARTED = 3
"""Layers of a run whose every subset is a choice."""


@dataclass(frozen=True)
class Together:
    """Layers of a run that may become int16 at once: their part in the loss, and what that costs in
    cycles. Layers that run together where none is chosen are a run."""

    layers: Layers
    run: int
    part: float
    cost: float


class Int16Region:
    """A region whose layers are int8 but for some; what that loses and costs, found once each."""

    def __init__(
        self,
        graph: Graph,
        ranges: Ranges,
        machine: MachineDescription,
        options: CompileOptions,
        sample: Sample,
    ) -> None:
        self.machine, self.options, self.sample = machine, options, sample
        self.parted = parted_graph(graph, machine, options)
        self.parted_ranges = with_ranges_of_parts(self.parted, ranges)
        int16 = int16_layers(machine, options)
        self.needs = least_needs(machine, "int8")
        self.prepared = prepare(
            self.parted, self.parted_ranges, "int8", int16, Q_POINTS_ONLY, self.needs
        )
        self.tensors = run_float(self.prepared.graph, sample)
        chosen = planner_called(options.planner, options.limits, options.tuning_log)
        self.planner = LayerPlanner("int8", machine, chosen, options.limits)
        self._losses: dict[Layers, float] = {}
        self._cycles: dict[Layers, float] = {}
        self._layers: dict[Any, FixedLayer] = {}

    def fixed(self, layers: Layers) -> FixedGraph:
        """The region as integers with these layers in int16; a layer that was met before with its
        tensors' formats is not made again. Raises as `quantize`."""
        int16 = int16_layers(self.machine, replace(self.options, int16_layers=layers))
        step = self.machine.requantization("int8")
        prepared = prepare(self.parted, self.parted_ranges, "int8", int16, step, self.needs)
        numbers = formats(prepared, step, int16.requantization)
        made = tuple(self._made(layer, numbers, bool(layers)) for layer in prepared.graph.layers)
        return fixed_graph_of(prepared, numbers.scales, made)

    def _made(self, layer: Layer, numbers: Formats, is_mixed: bool) -> FixedLayer:
        tensors = (*layer.inputs, *layer.outputs)
        widths = tuple(numbers.widths[tensor] for tensor in tensors)
        scales = tuple(numbers.scales[tensor] for tensor in tensors)
        key = (is_mixed, layer.name, tensors, widths, scales)  # mixed: without given scales
        if key not in self._layers:
            self._layers[key] = numbers.fixed(layer)
        return self._layers[key]

    def loss(self, layers: Layers) -> float:
        if layers not in self._losses:
            fixed = self.fixed(layers)
            scales = fixed.scales
            entry = {
                name: scales[name].quantize(self.sample[name], fixed.width_of(name))
                for name in fixed.inputs
            }
            made = run_fixed(fixed, entry)
            found = {name: scales[name].dequantize(made[name]) for name in fixed.outputs}
            self._losses[layers] = _noise(self.tensors, found)
        return self._losses[layers]

    def cycles(self, layers: Layers) -> float:
        """Predicted; infinite where some layer has no plan or no integers."""
        if layers not in self._cycles:
            try:
                planned = plan_graph(self.fixed(layers), self.planner)
                total = sum(one.predicted_cycles or 0.0 for one in planned.layers)
            except (PlanningError, QuantizationError):
                total = float("inf")
            self._cycles[layers] = total
        return self._cycles[layers]

    def choices(self) -> list[Together]:
        """Of each run all that has a plan; of runs of many layers single ones and all."""
        none = self.options.int16_layers
        narrow, wide = (self._formats(width) for width in (NARROW, WIDE))
        parts: dict[str, float] = defaultdict(float)
        for index, layer in enumerate(self.prepared.graph.layers):
            if operator_of(layer).may_widen and names(layer).isdisjoint(none):
                changed = self._with_int8(index, narrow, wide)
                parts[layer.name] += _noise(self.tensors, changed)
        found = []
        for number, run in enumerate(self._runs(list(parts))):
            counts = range(1, len(run) + 1) if len(run) <= MOST_PARTED else (1, len(run))
            for layers in chain.from_iterable(combinations(run, count) for count in counts):
                cost = self.cycles(joined(none, layers)) - self.cycles(none)
                if cost < float("inf"):
                    part = sum(parts[name] for name in layers)
                    found.append(Together(layers, number, part, cost))
        return found

    def _runs(self, layers: Sequence[str]) -> list[Layers]:
        """``layers`` by what runs together where none is chosen."""
        planned = plan_graph(self.fixed(self.options.int16_layers), self.planner)
        sources = {layer.name: names(layer) for layer in self.prepared.graph.layers}
        left, runs = dict.fromkeys(layers), []
        for one in planned.layers:
            inside = {one.layer.name, *one.layer.source}
            run = tuple(name for name in left if sources[name] & inside)
            runs.append(run)
            for name in run:
                del left[name]
        return [run for run in (*runs, *((name,) for name in left)) if run]

    def _formats(self, width: Width) -> Formats:
        prepared = self.prepared
        widths = dict.fromkeys(prepared.widths, width)
        found = Prepared(prepared.graph, prepared.ranges, widths, width)
        return formats(found, self.machine.requantization(precision_of_width(width)))

    def _with_int8(self, index: int, narrow: Formats, wide: Formats) -> dict[str, Any]:
        """The outputs where one layer is int8, up to its result, and all else float."""
        graph = self.prepared.graph
        layer = graph.layers[index]
        scales = {**wide.scales, **{tensor: narrow.scales[tensor] for tensor in layer.inputs}}
        widths = {**wide.widths, **dict.fromkeys(layer.inputs, NARROW)}
        fixed = replace(narrow, scales=scales, widths=widths).fixed(layer)
        arrays = [scales[tensor].quantize(self.tensors[tensor], NARROW) for tensor in layer.inputs]
        shapes = [graph.shapes[tensor] for tensor in layer.outputs]
        results = operator_of(fixed).run_fixed(fixed, arrays, shapes, NARROW)
        changed: dict[str, Any] = {
            tensor: scales[tensor].dequantize(values)
            for tensor, values in zip(layer.outputs, results, strict=True)
        }
        for behind in graph.layers[index + 1 :]:
            if changed.keys().isdisjoint(behind.inputs):
                continue
            read: Sequence[Any] = [changed.get(t, self.tensors[t]) for t in behind.inputs]
            shapes = [graph.shapes[tensor] for tensor in behind.outputs]
            made = operator_of(behind).run_float(behind, read, shapes)
            changed.update(zip(behind.outputs, made, strict=True))
        return {name: changed.get(name, self.tensors[name]) for name in graph.outputs}


def joined(layers: Layers, others: Layers) -> Layers:
    return (*layers, *(name for name in others if name not in layers))


def _noise(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """The largest share of noise in an output."""
    shares = []
    for name, values in found.items():
        signal = np.square(wanted[name], dtype=np.float64).sum()
        noise = np.square(values.astype(np.float64) - wanted[name]).sum()
        shares.append(noise / signal if signal else float(noise > 0))
    return float(max(shares))
