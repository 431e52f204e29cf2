"""What calibration changes in the layers of int8 regions so that they keep their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from tvm_npu.codegen.choose_int16 import choose_int16_layers
from tvm_npu.codegen.compile import CompileOptions
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges, channel_magnitudes
from tvm_npu.codegen.passes.correct_bias import bias_corrections
from tvm_npu.codegen.passes.equalize import equalize
from tvm_npu.codegen.passes.precisions import names
from tvm_npu.codegen.passes.quantize import Int16Layers
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import stream_float
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.errors import TargetError
from tvm_npu.options import NpuOptions

KEPT_SAMPLES = 16
"""Of a region's inputs, for bias correction: a few images already hold many values a channel."""
LOSS_SAMPLES = 4
"""Of a region's inputs, for the choice of layers in int16."""


@dataclass(frozen=True)
class Calibrated:
    """What calibration knows of a region: the ranges of its calibrated graph with ``adjustments``,
    and the layers that compute in int16."""

    ranges: Ranges
    adjustments: Adjustments = NO_ADJUSTMENTS
    int16_layers: tuple[str, ...] = ()


class _Channels:
    """Largest values of the channels of a region of ``graphs``, and its first inputs."""

    def __init__(self, symbol: str, graphs: Mapping[str, Graph]) -> None:
        self.symbol, self.graphs = symbol, graphs
        self.magnitudes: dict[str, Any] = {}
        self.inputs: list[dict[str, Any]] = []

    @property
    def graph(self) -> Graph:
        return self.graphs[self.symbol]

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        feed = as_batches(arrays, graph.inputs, graph.shapes)
        if len(self.inputs) < KEPT_SAMPLES:
            self.inputs.append({name: np.array(values) for name, values in feed.items()})
        outputs: dict[str, Any] = {}
        for tensor, values in stream_float(graph, feed, cut=True):
            found = channel_magnitudes(values)
            known = self.magnitudes.get(tensor)
            self.magnitudes[tensor] = found if known is None else np.maximum(found, known)
            if tensor in graph.outputs:
                outputs[tensor] = values
        return [outputs[tensor] for tensor in graph.outputs]

    def batch(self, count: int) -> dict[str, Any]:
        """The first samples together, by input name."""
        kept = self.inputs[:count]
        return {name: np.concatenate([one[name] for one in kept]) for name in kept[0]}


@phase("calibrate")
def adjusted(
    graphs: Mapping[str, Graph],
    calibrated: Mapping[str, Graph],
    ranges: Mapping[str, Ranges],
    run: Callable[[Mapping[str, RegionRunner]], None],
    options: NpuOptions,
) -> dict[str, Calibrated]:
    """``ranges`` of the ``calibrated`` forms of ``graphs``, by region symbol, with what
    ``options.quantization`` and ``options.max_loss`` ask for; ``run`` as of `region_ranges`. int16
    regions stay as they are. TargetError for a name among ``options.int16_layers`` that no layer
    has."""
    if options.int16_layers:
        _check_names(options.int16_layers, calibrated.values())
    changes = options.quantization != "plain" or options.max_loss is not None
    if not changes or options.precision != "int8" or not graphs:
        layers = options.int16_layers
        return {symbol: Calibrated(found, int16_layers=layers) for symbol, found in ranges.items()}
    channels = {symbol: _Channels(symbol, calibrated) for symbol in calibrated}
    run(channels)
    return {
        symbol: _adjusted(graph, channels[symbol], ranges[symbol], options)
        for symbol, graph in graphs.items()
    }


def _check_names(wanted: Collection[str], graphs: Iterable[Graph]) -> None:
    known = sorted({name for graph in graphs for layer in graph.layers for name in names(layer)})
    for name in wanted:
        if name not in known:
            close = get_close_matches(name, known, 3) or known[:3]
            raise TargetError(
                f"int16_layers: no layer of a region, and none of its operators, is called "
                f"{name!r}; near are {', '.join(map(repr, close))}"
            )


def _adjusted(
    graph: Graph, found: _Channels, ranges: Ranges, options: NpuOptions
) -> Calibrated:
    adjustments, layers = NO_ADJUSTMENTS, options.int16_layers
    if options.quantization != "plain":
        adjustments, ranges = equalize(found.graph, ranges, found.magnitudes)
    if options.max_loss is not None:
        chosen = CompileOptions(
            "int8", options.planner, options.limits, options.tuning_log_path, options.images,
            adjustments, layers,
        )  # fmt: skip
        layers = choose_int16_layers(
            graph, ranges, options.machine, chosen, found.batch(LOSS_SAMPLES), options.max_loss
        ).layers
    if options.quantization == "bias-corrected":
        requantization = options.machine.requantization
        biases = bias_corrections(
            adjustments.apply(found.graph), ranges, options.precision, requantization("int8"),
            found.batch(KEPT_SAMPLES), Int16Layers(layers, requantization("int16")),
        )  # fmt: skip
        adjustments = replace(adjustments, biases=biases)
    return Calibrated(ranges, adjustments, layers)
