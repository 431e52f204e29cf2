"""The codegen hook ``relax.ext.npu``: region functions -> Programs -> runtime modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_npu.door.program_section import stored
from tvm_npu.door.region import MarkedRegion, marked_region
from tvm_npu.relax import expressions as of
from tvm_npu.relax.carried_errors import carried, own_errors
from tvm_npu.relax.dataflow import relax_dataflow
from tvm_npu.relax.embed import packed_caller
from tvm_npu.relax.run_regions import is_region
from tvm_npu.runtime.packed import RUN


def region_of(function: relax.Function, symbol: str | None = None) -> MarkedRegion:
    """A region function as all doors know it."""
    attributes = dict((function.attrs or {}).items())
    name = symbol or str(attributes["global_symbol"])
    return marked_region(name, attributes, partial(relax_dataflow, function))


@tvm.register_global_func("relax.ext.npu", override=True)
@carried
def compile_regions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[Any, str]
) -> list[Any]:
    """What `relax.transform.RunCodegen` calls with every function whose ``Codegen`` is npu."""
    return [compile_region(function) for function in functions]


def run_codegen(mod: tvm.IRModule) -> tvm.IRModule:
    """`relax.transform.RunCodegen`, which compiles the regions of a partitioned module, without
    the float weights that it keeps for them: their programs hold what they need, and TVM would
    write both into the library."""
    prefixes = tuple(
        f"{of.name_of(var)}_npu_const_" for var, one in mod.functions_items() if is_region(one)
    )
    with own_errors():
        mod = relax.transform.RunCodegen()(mod)
    constants = {} if mod.attrs is None else mod.attrs.get(CONSTANTS, {})
    kept = {str(name): data for name, data in constants.items()
            if not str(name).startswith(prefixes)}  # fmt: skip
    mod = mod.without_attr(CONSTANTS)
    return mod.with_attr(CONSTANTS, kept) if kept else mod


CONSTANTS = "const_name_to_constant"
"""TVM's attribute of a module: what external code asks for by name, when it is loaded."""


def compile_region(function: relax.Function) -> Any:
    """The runtime module of one region."""
    symbol = str(function.attrs["global_symbol"])
    region = region_of(function, symbol)
    program = stored(region)
    inputs = [_shape(var.ty) for var in function.params]
    outputs = [_shape(type_) for type_ in of.tensor_types(function.ret_ty)]
    strings = [symbol, program.digest]
    return packed_caller(symbol, RUN, strings, program, inputs, outputs, region.options.cpu_target)


def _shape(type_: Any) -> of.TensorShape:
    shape = of.static_shape(type_)
    if shape is None:
        raise ValueError(f"{type_} has no static shape")
    return shape
