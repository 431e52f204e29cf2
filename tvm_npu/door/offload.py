"""`partition_for_npu` of every door: normalize, partition, take regions out, calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tvm_npu.calibration import InputSpec, Sample, samples_from, synthetic, watched
from tvm_npu.codegen.compile import calibrated_graph
from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.rescale import NO_ADJUSTMENTS
from tvm_npu.codegen.passes.scales import growth_of_step
from tvm_npu.codegen.phases import phase
from tvm_npu.door.adjust import Calibrated, adjusted
from tvm_npu.door.calibrate import UnfitTensorError, given_ranges, region_ranges
from tvm_npu.door.dataflow import OpCall
from tvm_npu.door.fitness import input_names, too_wide, unfit_calls
from tvm_npu.door.graph_by_graph import GraphByGraph
from tvm_npu.door.partition import Partition, partition
from tvm_npu.door.protocol import Door, Module
from tvm_npu.door.region import ADJUSTMENTS, OPTIONS, RANGES, REPORT, MarkedRegion
from tvm_npu.door.rules import Context
from tvm_npu.errors import (
    NothingOffloadedWarning,
    PartitionError,
    ScalesApproximatedWarning,
    SyntheticCalibrationWarning,
    TargetError,
)
from tvm_npu.options import NpuOptions
from tvm_npu.report import PartitionReport, Refusal
from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.sim.interrupted import taken_back

CALLERS = 3
"""Frames from a warning here to who called the door's `partition_for_npu`."""


@taken_back()
def offload_regions(
    door: Door[Any],
    mod: Module,
    params: Mapping[str, Any] | None,
    options: NpuOptions,
    calibration: Any,
    mod_name: str = "default",
) -> Module:
    """``mod`` with its NPU regions as functions that carry options and ranges.

    Raises PartitionError, CalibrationError, or codegen's QuantizationError; warns with
    NothingOffloadedWarning and SyntheticCalibrationWarning.
    """
    if not isinstance(mod, import_tvm().IRModule):
        raise PartitionError(
            f"a module to partition is a {type(mod).__name__}; expected a tvm.IRModule"
        )
    give_back()  # what reading the model took
    with phase("normalize"):
        normal = door.normalize(mod, params)
    with phase("partition"):
        flow = door.dataflow(normal)
    context = Context(options.machine, options.precision, options.offload)
    split, result, ranges = _calibrated(door, normal, flow, context, options, calibration, mod_name)
    give_back()  # what float graphs took
    report = PartitionReport(
        machine=options.machine.name,
        precision=options.precision,
        planner=options.planner,
        regions=tuple(region.report() for region in split.regions),
        refusals=split.refusals,
        total_macs=split.total_macs,
    )
    for symbol, found in ranges.items():
        own = replace(options, int16_layers=found.int16_layers)
        marks = {OPTIONS: own.to_json(), RANGES: found.ranges.to_json()}
        if found.adjustments != NO_ADJUSTMENTS:
            marks[ADJUSTMENTS] = found.adjustments.to_json()
        result = door.with_marks(result, marks, symbol)
    if not split.regions:
        first = f"; first: {split.refusals[0]}" if split.refusals else ""
        warnings.warn(
            f"no operator runs on the NPU ({len(split.refusals)} stay on the CPU){first}",
            NothingOffloadedWarning,
            stacklevel=CALLERS,
        )
    return door.with_marks(result, {REPORT: report.to_json()})


def _calibrated(
    door: Door[Any],
    normal: Module,
    flow: Any,
    context: Context,
    options: NpuOptions,
    calibration: Any,
    mod_name: str,
) -> tuple[Partition, Module, dict[str, Calibrated]]:
    """The partition, its module, and ranges of its regions. Calls whose values no Q-point holds, or
    that cancel what the CPU hands over, go to the CPU; then regions and ranges are found anew."""
    if isinstance(calibration, Iterator):
        calibration = list(calibration)
    kept_out: dict[OpCall, Refusal] = {}
    while True:
        with phase("partition"):
            split = partition(flow, context, mod_name, kept_out)
            result = door.extract(normal, flow, split)
        if not split.regions:
            return split, result, {}
        known = len(kept_out)
        marked = {
            region.symbol: door.region(result, region.symbol) for region in split.regions
        }
        graphs = GraphByGraph(marked, MarkedRegion.graph, kept_bytes=0)
        make = partial(_calibrated_graph, graphs, options=options)
        calibrated = GraphByGraph({symbol: symbol for symbol in marked}, make)
        if not known:
            _tell_lost_scales(graphs.values(), options)
        given = given_ranges(calibrated)
        if given is not None:
            _check_questions(options)
            return split, result, {symbol: Calibrated(one) for symbol, one in given.items()}
        samples = _samples(calibration, door.inputs(result), options.seed, warned=bool(known))
        try:
            ranges = region_ranges(
                calibrated,
                partial(door.run_regions, result, samples=samples),
                options.percentile,
                {region.symbol: input_names(region) for region in split.regions},
            )
            kept_out.update(unfit_calls(split.regions, ranges, options))
        except UnfitTensorError as error:
            by_symbol = {region.symbol: region for region in split.regions}
            region = by_symbol[error.unfit.symbol]
            kept_out.update(too_wide(region, error.unfit, options.element_bytes))
        if len(kept_out) == known:
            samples = _samples(calibration, door.inputs(result), options.seed, warned=True)
            run = partial(door.run_regions, result, samples=samples)
            return split, result, adjusted(graphs, calibrated, ranges, run, options)


def _calibrated_graph(
    graphs: GraphByGraph[MarkedRegion], symbol: str, options: NpuOptions
) -> Graph:
    """Of ``graphs``, which then let it go: the two have weights of their own."""
    made = calibrated_graph(graphs[symbol], options.machine, options.precision)
    graphs.let_go()
    return made


def _check_questions(options: NpuOptions) -> None:
    """TargetError for options that choose numbers, of a model that says all of its own."""
    asked = {
        "quantization": options.quantization if options.quantization != "plain" else None,
        "max_loss": options.max_loss,
        "int16_layers": ", ".join(options.int16_layers) or None,
    }
    for name, value in asked.items():
        if value is not None:
            raise TargetError(
                f"{name} is {value!r}, but the model is quantized and says the scales of all its "
                "tensors: there is nothing to choose; leave the option out, or give the float "
                "model that the quantized one was made of"
            )


def _tell_lost_scales(graphs: Iterable[Graph], options: NpuOptions) -> None:
    """A ScalesApproximatedWarning where Q-points take the places of a model's scales, coarser."""
    machine, size = options.machine, options.element_bytes
    scales = [scale for graph in graphs for scale in graph.scales.values()]
    requantization = machine.requantization(options.precision)
    lacks = [lack for scale in scales if (lack := scale.lacks(requantization))]
    growth = [growth_of_step(scale, size) for scale in scales]
    if not lacks or max(growth) <= 1.0:
        return
    coarser = [one for one in growth if one > 1.0]
    warnings.warn(
        f"the model is quantized; the requantize step of {machine.name} at {options.precision} has "
        f"no {lacks[0]}: of {len(scales)} tensors {len(coarser)} take Q-points with steps up to "
        f"{max(growth):.3g} times the model's, on average {sum(growth) / len(growth):.3g}. A "
        "machine with mac.requantization = \"scale\" (nmp-4x8-scale) computes with the model's own",
        ScalesApproximatedWarning,
        stacklevel=CALLERS + 2,
    )


def _samples(data: Any, inputs: tuple[InputSpec, ...], seed: int, warned: bool) -> Iterator[Sample]:
    if data is not None:
        found = samples_from(data, inputs)
        return found if warned else watched(found, inputs)
    if warned:
        return synthetic(inputs, seed)
    warnings.warn(
        "no calibration data: ranges come from random input "
        f"(standard normal, seed {seed}); give calibration= for real accuracy",
        SyntheticCalibrationWarning,
        stacklevel=CALLERS + 2,
    )
    return synthetic(inputs, seed)


def report_of(door: Door[Any], mod: Module) -> PartitionReport:
    """The report that `offload` left in ``mod``; ValueError for another module."""
    marks = door.marks(mod)
    if REPORT not in marks:
        raise ValueError(f"the module has no attribute {REPORT!r}: it was not partitioned")
    return PartitionReport.from_json(marks[REPORT])


def fixed_graphs(door: Door[Any], mod: Module) -> dict[str, FixedGraph]:
    """Every region of a partitioned module as the fixed-point graph that its program computes."""
    return {symbol: door.region(mod, symbol).fixed_graph() for symbol in door.regions(mod)}


def programs(door: Door[Any], mod: Module) -> dict[str, bytes]:
    """Every region compiled to a Program file, without building the rest of the module."""
    return {symbol: door.region(mod, symbol).program() for symbol in door.regions(mod)}
