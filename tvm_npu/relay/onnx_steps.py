"""From an ONNX model to region programs, step by step, for programs that hold no TVM IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.errors import PartitionError
from tvm_npu.options import NpuOptions
from tvm_npu.relay import explain, partition_for_npu
from tvm_npu.relay.calibrate import RegionRunner, input_specs, run_regions
from tvm_npu.relay.codegen import region_fixed_graph, region_program
from tvm_npu.relay.frontend import from_onnx
from tvm_npu.report import PartitionReport


@dataclass(frozen=True)
class PartitionedModel:
    """A model whose regions have ranges; ``report`` says what runs where."""

    mod: tvm.IRModule
    report: PartitionReport

    @property
    def symbols(self) -> tuple[str, ...]:
        """Of the regions, in execution order."""
        return tuple(region.symbol for region in self.report.regions)

    def program(self, symbol: str) -> bytes:
        """One region compiled to a Program file; raises what `compile_graph` raises."""
        return region_program(self.mod[symbol])

    def fixed_graph(self, symbol: str) -> FixedGraph:
        """The fixed-point graph of one region; raises what `program` raises."""
        return region_fixed_graph(self.mod[symbol])

    def run_regions(self, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]) -> None:
        """Runs every region by its runner, once a sample; operators before it run on the CPU."""
        run_regions(self.mod, runners, samples)


@dataclass(frozen=True)
class ImportedModel:
    """A model in Relay, its parameters bound later."""

    mod: tvm.IRModule
    params: Mapping[str, Any]
    inputs: tuple[InputSpec, ...]

    def partition(
        self, options: NpuOptions, calibration: Iterable[Sample] | None
    ) -> PartitionedModel:
        """As `partition_for_npu`, with the same warnings and errors."""
        mod = partition_for_npu(
            self.mod,
            self.params,
            options.machine,
            calibration,
            precision=options.precision,
            planner=options.planner,
            percentile=options.percentile,
            seed=options.seed,
            tile_limits=options.tile_limits,
            tuning_log=options.tuning_log,
        )
        return PartitionedModel(mod, explain(mod))


def import_onnx(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> ImportedModel:
    """An onnx.ModelProto in Relay; ``shapes`` by input name, batch in front.

    Raises PartitionError for what TVM's frontend cannot read.
    """
    try:
        mod, params = from_onnx(model, dict(shapes))
        mod = relay.transform.InferType()(mod)
    except PartitionError:
        raise
    except Exception as error:  # the frontend raises whatever its handlers run into
        reason = _reason(error)
        raise PartitionError(f"TVM cannot import the model: {reason}") from error
    return ImportedModel(mod, params, input_specs(mod["main"]))


def _reason(error: Exception) -> str:
    """The one line of an error of TVM's that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no further word'}"
