"""The Relax door: marks a model's NPU regions; `relax.transform.RunCodegen` compiles them.

For TVM 0.26 and later, whose programs run on Relax's virtual machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.relax.environment import prepare

prepare()  # imports TVM, before the modules below do

from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.door.models import build_onnx
from tvm_npu.door.offload import fixed_graphs, programs, report_of
from tvm_npu.door.offload import offload as offload_regions
from tvm_npu.door.rule_table import rule_table
from tvm_npu.relax.codegen import marked_region
from tvm_npu.relax.door import DOOR
from tvm_npu.relax.frontend import from_onnx
from tvm_npu.report import PartitionReport
from tvm_npu.targets import options_from_target, register_tags

if TYPE_CHECKING:
    import tvm

__all__ = [
    "build_onnx",
    "explain",
    "from_onnx",
    "import_region",
    "partition_for_npu",
    "partition_report",
    "region_fixed_graphs",
    "region_functions",
    "region_programs",
    "rule_table",
]


def __dir__() -> list[str]:
    return __all__


register_tags()


def partition_for_npu(
    mod: tvm.IRModule,
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
    mod_name: str = "default",
) -> tvm.IRModule:
    """``mod`` with its NPU regions as functions that `relax.transform.RunCodegen` compiles.

    ``params`` are by name, or as `relax.frontend.detach_params` gives them.

    ``target``: a tag ``npu/<machine>``, a machine's name, file or object, or what
    `tvm_npu.target` made. ``calibration``: an array (one input), a dict of arrays by input name,
    an iterable of such dicts, the path of an .npz file, or None for random input and a
    SyntheticCalibrationWarning. ``precision`` is "int16" or "int8" (default: the machine's),
    ``planner`` a planner's name, ``percentile`` (0, 100] cuts calibration ranges, ``seed`` feeds
    random input, ``tile_limits`` goes to the planner, and so does ``tuning_log`` (a file of
    `tvm-npu tune`, read when the module is built). ``images`` "apart": a run
    computes an image in each cluster of a device (default: "together", they share each image).
    ``quantization`` "equalised" or "bias-corrected" lets calibration change the layers of int8
    regions for accuracy (default: "plain").
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
    )
    return offload_regions(DOOR, mod, params, options, calibration, mod_name)


def partition_report(mod: tvm.IRModule) -> PartitionReport:
    """The report that `partition_for_npu` left in ``mod``; ValueError for another module."""
    return report_of(DOOR, mod)


def explain(mod: tvm.IRModule) -> PartitionReport:
    """Regions, and for every operator on the CPU the rule that kept it there; prints as tables."""
    return partition_report(mod)


def import_region(function: tvm.relax.Function, name: str = "npu") -> Graph:
    """The graph that a partitioned region function means.

    Raises ImportRegionError for operators that the rules would have refused.
    """
    return marked_region(function, name).graph()


def region_functions(mod: tvm.IRModule) -> dict[str, Any]:
    """The NPU regions of a partitioned module by symbol."""
    return {symbol: mod[symbol] for symbol in DOOR.regions(mod)}


def region_fixed_graphs(mod: tvm.IRModule) -> dict[str, FixedGraph]:
    """Every region as the fixed-point graph that its program computes."""
    return fixed_graphs(DOOR, mod)


def region_programs(mod: tvm.IRModule) -> dict[str, bytes]:
    """Every region compiled to a Program file, without building the rest of the module."""
    return programs(DOOR, mod)
