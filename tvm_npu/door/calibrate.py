"""Ranges for every region from samples of the whole model's inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.passes.calibrate import Ranges, TensorRange, observe
from tvm_npu.codegen.passes.scale_ranges import with_scale_ranges
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import stream_float
from tvm_npu.errors import CalibrationError


class RegionRunner(Protocol):
    """Computes a region while a door runs a model."""

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        """float32 inputs in the region's order, as the model has them -> its outputs
        [B, *shape]."""
        ...


def call_back(runner: RegionRunner, input_count: int, tensors: Sequence[Any]) -> None:
    """What a compiled model calls in the place of a region: TVM's input tensors, then its output
    tensors, which take what ``runner`` computes."""
    inputs, outputs = tensors[:input_count], tensors[input_count:]
    results = runner.run([tensor.numpy() for tensor in inputs])
    for target, values in zip(outputs, results, strict=True):
        target.copyfrom(np.ascontiguousarray(values, np.float32).reshape(target.shape))


@dataclass(frozen=True)
class Unfit:
    """A tensor of a region's graph that no Q-point holds; ``found`` says what it is like."""

    symbol: str
    tensor: str
    found: str


class UnfitTensorError(QuantizationError):
    """Calibration met a value inside of a region that is no number."""

    def __init__(self, message: str, unfit: Unfit) -> None:
        super().__init__(message)
        self.unfit = unfit


class _Observer:
    """Ranges of one region of ``graphs``, widened with every sample. ``names`` are what users know
    its inputs by, if not by those of the graph."""

    def __init__(
        self, symbol: str, graphs: Mapping[str, Graph], percentile: float | None,
        names: Sequence[str] | None,
    ) -> None:  # fmt: skip
        self.symbol = symbol
        self.graphs = graphs
        self.names = names
        self.percentile = percentile
        self.ranges: dict[str, TensorRange] = {}

    def run(self, arrays: list[Any]) -> list[Any]:
        """Outputs of the float graph for one sample of its inputs."""
        graph = self.graphs[self.symbol]
        feed = as_batches(arrays, graph.inputs, graph.shapes)
        outputs: dict[str, Any] = {}
        names = dict(zip(graph.inputs, self.names or graph.inputs, strict=True))
        for tensor, values in feed.items():
            self._check(tensor, values, names)
        with np.errstate(over="ignore", invalid="ignore"):
            for tensor, values in stream_float(graph, feed, cut=True):
                self._check(tensor, values, names)
                entry = observe(values, tensor, self.percentile)
                known = self.ranges.get(tensor)
                self.ranges[tensor] = entry if known is None else known.merge(entry)
                if tensor in graph.outputs:
                    outputs[tensor] = values
        return [outputs[tensor] for tensor in graph.outputs]

    def _check(self, tensor: str, values: Any, names: Mapping[str, str]) -> None:
        if np.isfinite(values.min()) and np.isfinite(values.max()):
            return
        bad = values[~np.isfinite(values)]
        found = f"{bad.size} of {values.size} values are {bad.flat[0]}"
        if tensor in names:
            raise QuantizationError(
                f"{names[tensor]}, which region {self.symbol!r} reads: {found} in "
                "calibration; give samples for which the float model computes numbers"
            )
        message = f"tensor {tensor!r} of region {self.symbol!r}: {found}"
        raise UnfitTensorError(message, Unfit(self.symbol, tensor, found))


def given_ranges(graphs: Mapping[str, Graph]) -> dict[str, Ranges] | None:
    """Ranges by region symbol where the model itself gives the scales of all tensors; None where
    calibration has to find some. ``graphs`` as of `region_ranges`."""
    found = {}
    for symbol, fused in graphs.items():
        states = any(layer.states for layer in fused.layers)
        if states or not all(tensor in fused.scales for tensor in fused.tensors):
            return None
        found[symbol] = with_scale_ranges(fused, Ranges())
    return found


@phase("calibrate")
def region_ranges(
    graphs: Mapping[str, Graph],
    run: Callable[[Mapping[str, RegionRunner]], None],
    percentile: float | None,
    names: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Ranges]:
    """Ranges by region symbol, of the tensors of ``graphs``. ``run`` runs the model on all samples,
    its regions by the runners it gets; ``names`` are what users know each region's inputs by, if
    they know them by others than those of the graph.

    Raises CalibrationError, codegen's QuantizationError for a region's input that is no number,
    and UnfitTensorError for such a tensor inside of a region.
    """
    known = names or {}
    observers = {
        symbol: _Observer(symbol, graphs, percentile, known.get(symbol)) for symbol in graphs
    }
    run(observers)
    if any(not observer.ranges for observer in observers.values()):
        raise CalibrationError("calibration has no samples; at least 1 is needed")
    return {symbol: Ranges(observer.ranges) for symbol, observer in observers.items()}
