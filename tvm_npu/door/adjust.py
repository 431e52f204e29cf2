"""What calibration changes in the layers of int8 regions so that they keep their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges, channel_magnitudes
from tvm_npu.codegen.passes.correct_bias import bias_corrections
from tvm_npu.codegen.passes.equalize import equalize
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.program.parts import as_batch
from tvm_npu.codegen.reference import stream_float
from tvm_npu.door.backend import machine_makes
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.options import NpuOptions

KEPT_SAMPLES = 16
"""Of a region's inputs, for bias correction: a few images already hold many values a channel."""


@dataclass(frozen=True)
class Calibrated:
    """What calibration knows of a region: the ranges of its fused graph with ``adjustments``."""

    ranges: Ranges
    adjustments: Adjustments = NO_ADJUSTMENTS


class _Channels:
    """Largest values of a region's channels, and its first inputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.magnitudes: dict[str, Any] = {}
        self.inputs: list[dict[str, Any]] = []

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        feed = {
            name: as_batch(np.asarray(array), graph.shapes[name])
            for name, array in zip(graph.inputs, arrays, strict=True)
        }
        if len(self.inputs) < KEPT_SAMPLES:
            self.inputs.append({name: np.array(values) for name, values in feed.items()})
        outputs: dict[str, Any] = {}
        for tensor, values in stream_float(graph, feed):
            found = channel_magnitudes(values)
            known = self.magnitudes.get(tensor)
            self.magnitudes[tensor] = found if known is None else np.maximum(found, known)
            if tensor in graph.outputs:
                outputs[tensor] = values
        return [outputs[tensor] for tensor in graph.outputs]


@phase("calibrate")
def adjusted(
    graphs: Mapping[str, Graph],
    ranges: Mapping[str, Ranges],
    run: Callable[[Mapping[str, RegionRunner]], None],
    options: NpuOptions,
) -> dict[str, Calibrated]:
    """``ranges`` by region symbol with what ``options.quantization`` asks for; ``run`` as of
    `region_ranges`. int16 regions stay as they are."""
    if options.quantization == "plain" or options.precision != "int8" or not graphs:
        return {symbol: Calibrated(found) for symbol, found in ranges.items()}
    made = machine_makes(options.machine)
    channels = {symbol: _Channels(fuse(graph, made)) for symbol, graph in graphs.items()}
    run(channels)
    return {symbol: _adjusted(channels[symbol], ranges[symbol], options) for symbol in graphs}


def _adjusted(found: _Channels, ranges: Ranges, options: NpuOptions) -> Calibrated:
    adjustments, ranges = equalize(found.graph, ranges, found.magnitudes)
    if options.quantization == "bias-corrected":
        batch = {
            name: np.concatenate([one[name] for one in found.inputs]) for name in found.graph.inputs
        }
        biases = bias_corrections(
            adjustments.apply(found.graph), ranges, options.precision,
            options.machine.requantization(options.precision), batch,
        )  # fmt: skip
        adjustments = replace(adjustments, biases=biases)
    return Calibrated(ranges, adjustments)
