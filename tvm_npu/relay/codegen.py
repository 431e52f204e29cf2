"""The codegen hook ``relay.ext.npu``: region function -> Program -> runtime module."""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relay

from tvm_npu.door.program_section import stored
from tvm_npu.door.region import OPTIONS, MarkedRegion, marked_region
from tvm_npu.options import NpuOptions
from tvm_npu.relay import operands as of
from tvm_npu.relay.dataflow import relay_dataflow
from tvm_npu.relay.embed import packed_caller
from tvm_npu.relay.prepared import program_of
from tvm_npu.runtime.packed import RUN
from tvm_npu.sim.interrupted import handed_on

CALIBRATION_ATTR = "npu.calibration"
"""Key of the `tvm_npu.relay.run_regions` run that the region belongs to, instead of ranges."""
CALIBRATE = "tvm_npu.calibrate"


def region_of(function: relay.Function, symbol: str | None = None) -> MarkedRegion:
    """A region function, with checked types, as all doors know it."""
    attributes = {} if function.attrs is None else dict(function.attrs.items())
    name = symbol or str(attributes["global_symbol"])
    return marked_region(name, attributes, partial(relay_dataflow, function))


@tvm.register_func("relay.ext.npu", override=True)
@handed_on()
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
        return packed_caller(symbol, CALIBRATE, strings, None, inputs, outputs, "llvm")
    program = program_of(function)
    if program is None:
        program = stored(region_of(function))
    cpu_target = NpuOptions.from_json(str(function.attrs[OPTIONS])).cpu_target
    strings = [symbol, program.digest]
    return packed_caller(symbol, RUN, strings, program, inputs, outputs, cpu_target)


@tvm.register_func("relay.ext.npu.constant_updater", override=True)
def region_parameters(function: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
    """Parameters that TVM would have to keep for a region: none, a Program holds its weights.

    Without this hook TVM adds every float weight to the library a second time, and the AOT
    executor, which has no input of that name, cannot be created.
    """
    return {}
