"""A partitioned model that runs samples one by one, every way that accuracy compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tvm_npu.accuracy.counts import Counts
from tvm_npu.accuracy.results import Labelled
from tvm_npu.accuracy.runners import FixedRunner, FloatRunner, RoundedRunner
from tvm_npu.calibration import Sample
from tvm_npu.codegen.passes.layer_errors import LayerErrors
from tvm_npu.codegen.program.format import Program
from tvm_npu.door.models import PartitionedModel
from tvm_npu.errors import AccuracyError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.limits import Limits


class ModelRuns:
    """``has_outputs``: samples say the outputs of float, which does not run then. TVM compiles what
    is outside of the regions at the first sample."""

    def __init__(self, model: PartitionedModel, has_outputs: bool) -> None:
        regions = {symbol: model.compared(symbol) for symbol in model.symbols}
        graphs = {symbol: model.region(symbol).graph() for symbol in regions}
        self.errors = {
            symbol: LayerErrors(one.graph, one.fixed, graphs[symbol].scales)
            for symbol, one in regions.items()
        }
        self.fixed = {symbol: FixedRunner(symbol, one.fixed) for symbol, one in regions.items()}
        self.is_quantized = any(graph.scales for graph in graphs.values())
        self._model, self._has_outputs = model, has_outputs
        self._rounded = {symbol: RoundedRunner(graph) for symbol, graph in graphs.items()}
        runners: list[Mapping[str, Any]] = []
        if not has_outputs:
            runners.append({symbol: FloatRunner(graph) for symbol, graph in graphs.items()})
        if self.is_quantized:
            runners.append(self._rounded)
        self._next: Sample | None = None
        self._results = model.run([*runners, self.fixed], self._samples())

    def _samples(self) -> Iterator[Sample]:
        while self._next is not None:
            yield self._next

    def simulate(self, limits: Limits) -> None:
        """From now on by the simulator, too, which must agree. Raises LimitError."""
        for symbol, runner in self.fixed.items():
            program = Program.from_bytes(self._model.program(symbol))
            runner.session = Session(program, limits=limits)

    def close(self) -> None:
        """When all samples are through."""
        self._next = None
        next(self._results, None)

    def stop_simulating(self) -> None:
        for runner in self.fixed.values():
            runner.session = None

    def counted(self, one: Labelled, number: int, layer_errors: bool = False) -> Counts:
        """Of sample ``number``; with its ``layer_errors`` added to `errors`. Raises AccuracyError,
        also where the simulator differs."""
        for symbol, runner in self.fixed.items():
            runner.errors = self.errors[symbol] if layer_errors else None
        self._next = one.sample
        results = next(self._results)
        if self._has_outputs:
            if one.wanted is None:
                raise AccuracyError(f"sample {number} says no outputs; the first one does")
            results = [list(one.wanted), *results]
        counts = Counts.of(results, one.labels, number)
        for symbol, rounded in self._rounded.items() if self.is_quantized else ():
            elements, near = rounded.near(self.fixed[symbol].made)
            counts.elements, counts.near = counts.elements + elements, counts.near + near
        return counts
