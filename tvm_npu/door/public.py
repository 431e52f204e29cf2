"""The functions that every door offers to its users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.door.offload import fixed_graphs, offload_regions, programs, report_of
from tvm_npu.door.protocol import Door, Module
from tvm_npu.door.region import MarkedRegion
from tvm_npu.report import PartitionReport
from tvm_npu.targets import options_from_target


@dataclass(frozen=True)
class PublicFunctions:
    """What users call, for one door; ``marked_region(function, symbol)`` is its own."""

    door: Door[Any]
    marked_region: Callable[[Any, str | None], MarkedRegion]

    def partition_for_npu(
        self,
        mod: Module,
        params: Mapping[str, Any] | None = None,
        target: Any = "npu/nmp-4x8",
        calibration: Any = None,
        *,
        precision: str | None = None,
        planner: str | None = None,
        percentile: float | None = None,
        seed: int | None = None,
        tile_limits: dict[str, Any] | None = None,
        tuning_log: str | Path | None = None,
        images: str | None = None,
        offload: str | None = None,
        quantization: str | None = None,
        int16_layers: Sequence[str] | None = None,
        max_loss: float | None = None,
        mod_name: str = "default",
    ) -> Module:
        """``mod`` with its NPU regions as functions that TVM's build compiles for the NPU:
        `relay.build`, or `run_codegen` of the Relax door.

        ``params`` are by name, or as `relax.frontend.detach_params` gives them.
        ``target``: a tag ``npu/<machine>``, a machine's name, file or object, or what
        `tvm_npu.target` made. ``calibration``: an array (one input), a dict of arrays by input
        name, an iterable of such dicts, the path of an .npz file, or None for random input and a
        SyntheticCalibrationWarning. ``precision`` is "int16" or "int8" (default: the machine's),
        ``planner`` a planner's name, ``percentile`` (0, 100] cuts calibration ranges, ``seed``
        feeds random input, ``tile_limits`` goes to the planner, and so does ``tuning_log`` (a file
        of `tvm-npu tune`, read when the module is built). ``images`` "apart": a run computes an
        image in each cluster of a device (default: "together", they share each image).
        ``quantization`` "equalised" or "bias-corrected" lets calibration change the layers of int8
        regions for accuracy (default: "plain"). ``int16_layers`` names layers, or operators of the
        model, that compute in int16 in int8 regions; ``precision`` "auto" chooses them so that the
        noise of each region's outputs is at most ``max_loss`` of their signal's power (default:
        0.01, which is 20 dB).
        ``offload`` "all" takes regions without weights whatever they cost (default: "paying").
        ``mod_name`` names the regions' symbols.

        Operators that a rule refuses stay on the CPU; `explain` says which and why, and a module
        without any region comes back with a NothingOffloadedWarning.
        Raises TargetError, PartitionError, CalibrationError, or codegen's QuantizationError.
        """
        options = options_from_target(
            target,
            precision=precision,
            planner=planner,
            percentile=percentile,
            seed=seed,
            tile_limits=tile_limits,
            tuning_log=tuning_log,
            images=images,
            offload=offload,
            quantization=quantization,
            int16_layers=int16_layers,
            max_loss=max_loss,
        )
        return offload_regions(self.door, mod, params, options, calibration, mod_name)

    def partition_report(self, mod: Module) -> PartitionReport:
        """The report that `partition_for_npu` left in ``mod``; ValueError for another module."""
        return report_of(self.door, mod)

    def explain(self, mod: Module) -> PartitionReport:
        """Regions, and for every operator on the CPU the rule that kept it there; prints as
        tables."""
        return report_of(self.door, mod)

    def import_region(self, function: Any, name: str = "npu") -> Graph:
        """The graph that a partitioned region function means; Relay's needs checked types.

        Raises ImportRegionError for operators that the rules would have refused.
        """
        return self.marked_region(function, name).graph()

    def region_functions(self, mod: Module) -> dict[str, Any]:
        """The NPU regions of a partitioned module by symbol."""
        return {symbol: mod[symbol] for symbol in self.door.regions(mod)}

    def region_fixed_graphs(self, mod: Module) -> dict[str, FixedGraph]:
        """Every region as the fixed-point graph that its program computes."""
        return fixed_graphs(self.door, mod)

    def region_programs(self, mod: Module) -> dict[str, bytes]:
        """Every region compiled to a Program file, without building the rest of the module."""
        return programs(self.door, mod)
