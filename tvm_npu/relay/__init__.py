"""The Relay door: marks a model's NPU regions and compiles them when TVM builds the module."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm

from tvm_npu.calibration import samples_from, synthetic
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.errors import NothingOffloadedWarning, SyntheticCalibrationWarning
from tvm_npu.options import NpuOptions
from tvm_npu.relay.calibrate import input_specs, is_region, region_ranges
from tvm_npu.relay.codegen import OPTIONS_ATTR, RANGES_ATTR, region_fixed_graph, region_program
from tvm_npu.relay.importer import import_region
from tvm_npu.relay.normalize import normalize
from tvm_npu.relay.partition import split_main
from tvm_npu.relay.rules import Context, rule_table
from tvm_npu.report import PartitionReport
from tvm_npu.targets import options_from_target, register_tags
from tvm_npu.tvm_environment import prepare

__all__ = [
    "explain",
    "import_region",
    "partition_for_npu",
    "partition_report",
    "region_fixed_graphs",
    "region_functions",
    "region_programs",
    "rule_table",
]

REPORT_ATTR = "npu.report"


def __dir__() -> list[str]:
    return __all__


prepare()
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
    mod_name: str = "default",
) -> tvm.IRModule:
    """``mod`` with its NPU regions as functions that ``relay.build`` compiles for the NPU.

    ``target``: a tag ``npu/<machine>``, a machine's name, file or object, or what
    `tvm_npu.target` made. ``calibration``: an array (one input), a dict of arrays by input name,
    an iterable of such dicts, the path of an .npz file, or None for random input and a
    SyntheticCalibrationWarning. ``precision`` is "int16" or "int8" (default: the machine's),
    ``planner`` a planner's name, ``percentile`` (0, 100] cuts calibration ranges, ``seed`` feeds
    random input, ``tile_limits`` goes to the planner, and so does ``tuning_log`` (a file of
    `tvm-npu tune`, read when the module is built). ``mod_name`` names the regions' symbols.

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
    )
    context = Context(options.machine, options.precision)
    split = split_main(normalize(mod, params), context, mod_name)
    report = PartitionReport(
        machine=options.machine.name,
        precision=options.precision,
        planner=options.planner,
        regions=split.regions,
        refusals=split.refusals,
        total_macs=split.total_macs,
    )
    result = split.mod
    if split.regions:
        result = _with_ranges(result, options, calibration)
    else:
        first = f"; first: {split.refusals[0]}" if split.refusals else ""
        warnings.warn(
            f"no operator runs on the NPU ({len(split.refusals)} stay on the CPU){first}",
            NothingOffloadedWarning,
            stacklevel=2,
        )
    return result.with_attr(REPORT_ATTR, report.to_json())


def _with_ranges(mod: tvm.IRModule, options: NpuOptions, calibration: Any) -> tvm.IRModule:
    specs = input_specs(mod["main"])
    if calibration is None:
        warnings.warn(
            "no calibration data: ranges come from random input "
            f"(standard normal, seed {options.seed}); give calibration= for real accuracy",
            SyntheticCalibrationWarning,
            stacklevel=3,
        )
        samples = synthetic(specs, options.seed)
    else:
        samples = samples_from(calibration, specs)
    for symbol, ranges in region_ranges(mod, samples, options.percentile).items():
        function = mod[symbol].with_attr(OPTIONS_ATTR, options.to_json())
        mod[symbol] = function.with_attr(RANGES_ATTR, ranges.to_json())
    return mod


def partition_report(mod: tvm.IRModule) -> PartitionReport:
    """The report that `partition_for_npu` left in ``mod``; ValueError for another module."""
    if mod.attrs is None or REPORT_ATTR not in mod.attrs:
        raise ValueError(f"the module has no attribute {REPORT_ATTR!r}: it was not partitioned")
    return PartitionReport.from_json(str(mod.attrs[REPORT_ATTR]))


def explain(mod: tvm.IRModule) -> PartitionReport:
    """Regions, and for every operator on the CPU the rule that kept it there; prints as tables."""
    return partition_report(mod)


def region_functions(mod: tvm.IRModule) -> dict[str, Any]:
    """The NPU regions of a partitioned module by symbol."""
    names = sorted(var.name_hint for var in mod.get_global_vars())
    return {name: mod[name] for name in names if is_region(mod[name])}


def region_fixed_graphs(mod: tvm.IRModule) -> dict[str, FixedGraph]:
    """Every region as the fixed-point graph that its program computes."""
    return {name: region_fixed_graph(region) for name, region in region_functions(mod).items()}


def region_programs(mod: tvm.IRModule) -> dict[str, bytes]:
    """Every region compiled to a Program file, without building the rest of the module."""
    return {name: region_program(function) for name, function in region_functions(mod).items()}
