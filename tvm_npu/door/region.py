"""A region of a partitioned module, the texts that travel with it, and its way to a Program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tvm_npu.codegen.compile import (
    CompileOptions,
    Generated,
    fixed_graph,
    generate_quantized,
    prepared_graph,
)
from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS, Adjustments
from tvm_npu.codegen.phases import phase
from tvm_npu.codegen.program.format import Program
from tvm_npu.door.dataflow import Dataflow, Value, origin
from tvm_npu.door.importer import import_dataflow
from tvm_npu.errors import ImportRegionError
from tvm_npu.options import NpuOptions
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.texts import cut

OPTIONS = "npu.options"
RANGES = "npu.ranges"
"""Marks of a region: `NpuOptions` and `Ranges` as JSON."""
ADJUSTMENTS = "npu.adjustments"
"""Mark of a region whose layers calibration changes: `Adjustments` as JSON."""
SOURCES = "npu.sources"
"""Mark of a region: the model's names of its operators as JSON."""
ORIGINS = "npu.origins"
"""Mark of a region: what the model calls the makers of its inputs, as JSON."""
REPORT = "npu.report"
"""Mark of a partitioned module: its `PartitionReport` as JSON."""


@dataclass(frozen=True)
class ComparedRegion:
    """A region's float graph as it is quantized, its tensors in the units of the fixed-point graph
    that its program computes; the ranges of those tensors."""

    graph: Graph
    fixed: FixedGraph
    ranges: Ranges


@dataclass(frozen=True)
class MarkedRegion:
    """One region; ``marks`` are all texts that its function carries."""

    symbol: str
    flow: Dataflow
    marks: Mapping[str, str]

    @phase("partition")
    def graph(self) -> Graph:
        """Its float meaning. Raises ImportRegionError for a function that is no region."""
        return import_dataflow(self.flow, self.symbol)

    @property
    def options(self) -> NpuOptions:
        return NpuOptions.from_json(self._mark(OPTIONS))

    @property
    def ranges(self) -> Ranges:
        return Ranges.from_json(self._mark(RANGES))

    def on(self, machine: MachineDescription) -> MarkedRegion:
        """The same region for another machine of the same kind."""
        options = replace(self.options, machine=machine)
        return replace(self, marks={**self.marks, OPTIONS: options.to_json()})

    def program(self) -> bytes:
        """Its Program file; raises as `compiled` does."""
        return self.compiled().to_bytes()

    def compiled(self) -> Program:
        """Raises ImportRegionError, and what `compile_graph` raises."""
        generated = self.generated()
        give_back()  # what weights in other orders took
        program = generated.program()
        del generated
        give_back()  # what integers and commands took
        origins = json.loads(self.marks.get(ORIGINS, "[]"))
        if len(origins) != len(program.inputs):
            return program
        pairs = zip(program.inputs, map(str, origins), strict=True)
        return replace(program, inputs=tuple(replace(slot, source=cut(one)) for slot, one in pairs))

    def generated(self) -> Generated:
        """What its program is made of; raises as `program` does."""
        options, _, chosen = self._compilation()
        fixed = self.fixed_graph()
        give_back()  # what the float graph took
        return generate_quantized(fixed, options.machine, chosen)

    def fixed_graph(self) -> FixedGraph:
        """The fixed-point graph that `program` compiles; raises as that does."""
        options, ranges, chosen = self._compilation()
        return fixed_graph(self.graph(), ranges, options.machine, chosen)

    def compared(self) -> ComparedRegion:
        """Its float and its fixed-point graph; raises as `program` does."""
        options, ranges, chosen = self._compilation()
        graph = self.graph()
        unshifted = replace(chosen, adjustments=replace(chosen.adjustments, biases={}))
        return ComparedRegion(
            prepared_graph(graph, ranges, options.machine, unshifted).graph,
            fixed_graph(graph, ranges, options.machine, chosen),
            ranges,
        )

    def _compilation(self) -> tuple[NpuOptions, Ranges, CompileOptions]:
        options = self.options
        ranges = self.ranges
        adjustments = NO_ADJUSTMENTS
        if ADJUSTMENTS in self.marks:
            adjustments = Adjustments.from_json(self.marks[ADJUSTMENTS])
        chosen = CompileOptions(
            options.precision,
            options.planner,
            options.limits,
            options.tuning_log_path,
            options.images,
            adjustments,
            options.int16_layers,
        )
        return options, ranges, chosen

    def _mark(self, key: str) -> str:
        if key not in self.marks:
            raise ImportRegionError(
                f"region {self.symbol!r} has no attribute {key!r}: it was not made by "
                "partition_for_npu"
            )
        return self.marks[key]


def origins(inputs: Iterable[Value]) -> str:
    """The mark `ORIGINS` of a region with these inputs."""
    return json.dumps([origin(value) for value in inputs])


def marked_region(
    symbol: str, attributes: Mapping[str, object], flow: Callable[[list[str] | None], Dataflow]
) -> MarkedRegion:
    """The region of a function with ``attributes``; ``flow`` makes its dataflow with the names of
    its operators."""
    marks = {
        str(key): str(text)
        for key, text in attributes.items()
        if isinstance(text, str) and str(key).startswith("npu.")
    }
    named = marks.get(SOURCES)
    sources = None if named is None else [str(name) for name in json.loads(named)]
    return MarkedRegion(symbol, flow(sources), marks)
