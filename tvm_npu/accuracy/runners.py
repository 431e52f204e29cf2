"""How regions run: in float, as a quantized model says itself, as the NPU computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.fast import FastFixed, FastFloat
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.layer_errors import LayerErrors
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import run_rounded
from tvm_npu.errors import AccuracyError
from tvm_npu.runtime.session import Session

STEP_TOLERANCE = 1.001
"""Real numbers that are one step apart may be a little more in float32."""


class FloatRunner:
    def __init__(self, graph: Graph) -> None:
        self.graph, self._fast = graph, FastFloat(graph)

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        tensors = self._fast.run(_feed(arrays, graph.inputs, graph.shapes))
        return [tensors[name] for name in graph.outputs]


class RoundedRunner:
    """As the model says itself; ``made`` holds the last outputs."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: dict[str, NDArray[np.float32]] = {}

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        graph = self.graph
        tensors = run_rounded(graph, _feed(arrays, graph.inputs, graph.shapes))
        self.made = {name: tensors[name] for name in graph.outputs}
        return list(self.made.values())

    def near(self, found: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
        """How many elements of outputs with scales there are, and how many of them are at most one
        step away in ``found``."""
        count = near = 0
        for name, wanted in self.made.items():
            scale = self.graph.scales.get(name)
            if scale is not None:
                count += wanted.size
                off = np.abs(found[name].reshape(wanted.shape) - wanted.astype(np.float64))
                near += int((off <= STEP_TOLERANCE * scale.steps.max()).sum())
        return count, near


class FixedRunner:
    """By the compiled reference; with ``errors`` also layer by layer, with ``session`` also by the
    simulator."""

    def __init__(self, symbol: str, fixed: FixedGraph) -> None:
        self.symbol, self.fixed, self._fast = symbol, fixed, FastFixed(fixed)
        self.errors: LayerErrors | None = None
        self.session: Session | None = None
        self.made: dict[str, NDArray[np.float32]] = {}
        self.cycles = 0.0

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        fixed = self.fixed
        feed = _feed(arrays, fixed.inputs, fixed.shapes)
        integers = {
            name: fixed.scales[name].quantize(values, fixed.width_of(name))
            for name, values in feed.items()
        }
        tensors = self._fast.run(integers)
        if self.errors is not None:
            self.errors.add(feed)
        if self.session is not None:
            self._simulate([integers[name] for name in fixed.inputs], tensors)
        self.made = {n: fixed.scales[n].dequantize(tensors[n]) for n in fixed.outputs}
        return list(self.made.values())

    def _simulate(self, inputs: list[Any], tensors: Mapping[str, Any]) -> None:
        assert self.session is not None
        outputs = self.session.run_fixed(inputs)
        for name, found in zip(self.fixed.outputs, outputs, strict=True):
            wrong = int((found != tensors[name].reshape(found.shape)).sum())
            if wrong:
                raise AccuracyError(
                    f"region {self.symbol!r}: {wrong} of {found.size} elements of output {name!r} "
                    "differ between simulator and reference; this is a fault of tvm-npu"
                )
        assert self.session.statistics is not None
        self.cycles = self.session.statistics.cycles


def _feed(
    arrays: list[Any], names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    return as_batches([np.asarray(one, np.float32) for one in arrays], names, shapes)
