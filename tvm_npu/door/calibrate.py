"""Ranges for every region from samples of the whole model's inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange, observe
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.program.parts import as_batch
from tvm_npu.codegen.reference import stream_float
from tvm_npu.errors import CalibrationError


class RegionRunner(Protocol):
    """Computes a region while a door runs a model."""

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        """float32 inputs in the region's order, as the model has them -> its outputs
        [B, *shape]."""
        ...


class _Observer:
    """Ranges of one region, widened with every sample."""

    def __init__(self, graph: Graph, percentile: float | None) -> None:
        self.graph = graph
        self.percentile = percentile
        self.ranges: dict[str, TensorRange] = {}

    def run(self, arrays: list[Any]) -> list[Any]:
        """Outputs of the float graph for one sample of its inputs."""
        shapes = self.graph.shapes
        feed = {
            name: as_batch(np.asarray(array), shapes[name])
            for name, array in zip(self.graph.inputs, arrays, strict=True)
        }
        outputs: dict[str, Any] = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for tensor, values in stream_float(self.graph, feed):
                entry = observe(values, tensor, self.percentile)
                known = self.ranges.get(tensor)
                self.ranges[tensor] = entry if known is None else known.merge(entry)
                if tensor in self.graph.outputs:
                    outputs[tensor] = values
        return [outputs[tensor] for tensor in self.graph.outputs]


def region_ranges(
    graphs: Mapping[str, Graph],
    run: Callable[[Mapping[str, RegionRunner]], None],
    percentile: float | None,
) -> dict[str, Ranges]:
    """Ranges by region symbol. ``run`` runs the model on all samples, its regions by the runners
    it gets. Raises CalibrationError or codegen's QuantizationError."""
    observers = {symbol: _Observer(fuse(graph), percentile) for symbol, graph in graphs.items()}
    run(observers)
    if any(not observer.ranges for observer in observers.values()):
        raise CalibrationError("calibration has no samples; at least 1 is needed")
    return {symbol: Ranges(observer.ranges) for symbol, observer in observers.items()}
