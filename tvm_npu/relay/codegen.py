"""The codegen hook ``relay.ext.npu``: region function -> Program -> runtime module."""

from __future__ import annotations

import hashlib
from pathlib import Path

import tvm
from tvm import relay

from tvm_npu.codegen.compile import CompileOptions, compile_graph, fixed_graph
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.quantize import Ranges
from tvm_npu.errors import ImportRegionError
from tvm_npu.options import NpuOptions
from tvm_npu.relay import operands as of
from tvm_npu.relay.embed import packed_caller
from tvm_npu.relay.importer import import_region
from tvm_npu.runtime.packed import RUN
from tvm_npu.sim.description import MachineDescription

OPTIONS_ATTR = "npu.options"
RANGES_ATTR = "npu.ranges"
CALIBRATION_ATTR = "npu.calibration"
"""Key of the `tvm_npu.relay.calibrate` run that the region belongs to, instead of ranges."""
CALIBRATE = "tvm_npu.calibrate"


def region_program(function: relay.Function) -> bytes:
    """The Program file of a region function that `partition_for_npu` made.

    Raises ImportRegionError for another function and what `compile_graph` raises.
    """
    return compile_graph(*_compilation(function)).to_bytes()


def region_fixed_graph(function: relay.Function) -> FixedGraph:
    """The fixed-point graph that `region_program` compiles; raises as that does."""
    return fixed_graph(*_compilation(function))


def _compilation(
    function: relay.Function,
) -> tuple[Graph, Ranges, MachineDescription, CompileOptions]:
    symbol = str(function.attrs["global_symbol"])
    options = NpuOptions.from_json(_attribute(function, OPTIONS_ATTR))
    ranges = Ranges.from_json(_attribute(function, RANGES_ATTR))
    graph = import_region(function, symbol)
    log = None if options.tuning_log is None else Path(options.tuning_log)
    chosen = CompileOptions(options.precision, options.planner, options.limits, log)
    return graph, ranges, options.machine, chosen


def _attribute(function: relay.Function, key: str) -> str:
    if key not in function.attrs:
        symbol = function.attrs["global_symbol"]
        raise ImportRegionError(
            f"region {str(symbol)!r} has no attribute {key!r}: it was not made by partition_for_npu"
        )
    return str(function.attrs[key])


@tvm.register_func("relay.ext.npu", override=True)
def compile_region(function: relay.Function) -> tvm.runtime.Module:
    """What TVM calls for every function with the attribute ``Compiler = npu``."""
    symbol = str(function.attrs["global_symbol"])
    inputs = [of.shape_of(var) for var in function.params]
    outputs = [
        shape
        for shape in map(of.static_shape, of.tensor_types(function.body.checked_type))
        if shape is not None
    ]
    if CALIBRATION_ATTR in function.attrs:
        strings = [symbol, str(function.attrs[CALIBRATION_ATTR])]
        return packed_caller(symbol, CALIBRATE, strings, b"", inputs, outputs, "llvm")
    program = region_program(function)
    digest = hashlib.sha256(program).hexdigest()
    cpu_target = NpuOptions.from_json(_attribute(function, OPTIONS_ATTR)).cpu_target
    return packed_caller(symbol, RUN, [symbol, digest], program, inputs, outputs, cpu_target)


@tvm.register_func("relay.ext.npu.constant_updater", override=True)
def region_parameters(function: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
    """Parameters that TVM would have to keep for a region: none, a Program holds its weights.

    Without this hook TVM adds every float weight to the library a second time, and the AOT
    executor, which has no input of that name, cannot be created.
    """
    return {}
