"""The codegen hook ``relax.ext.npu``: region functions -> Programs -> runtime modules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_npu.door.region import MarkedRegion, marked_region
from tvm_npu.relax import expressions as of
from tvm_npu.relax.dataflow import relax_dataflow
from tvm_npu.relax.embed import packed_caller
from tvm_npu.runtime.packed import RUN


def region_of(function: relax.Function, symbol: str | None = None) -> MarkedRegion:
    """A region function as all doors know it."""
    attributes = dict((function.attrs or {}).items())
    name = symbol or str(attributes["global_symbol"])
    return marked_region(name, attributes, partial(relax_dataflow, function))


@tvm.register_global_func("relax.ext.npu", override=True)
def compile_regions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[Any, str]
) -> list[Any]:
    """What `relax.transform.RunCodegen` calls with every function whose ``Codegen`` is npu."""
    return [_compiled(function) for function in functions]


def _compiled(function: relax.Function) -> Any:
    symbol = str(function.attrs["global_symbol"])
    region = region_of(function, symbol)
    program = region.program()
    digest = hashlib.sha256(program).hexdigest()
    inputs = [_shape(var.ty) for var in function.params]
    outputs = [_shape(type_) for type_ in of.tensor_types(function.ret_ty)]
    strings = [symbol, digest]
    return packed_caller(symbol, RUN, strings, program, inputs, outputs, region.options.cpu_target)


def _shape(type_: Any) -> of.TensorShape:
    shape = of.static_shape(type_)
    if shape is None:
        raise ValueError(f"{type_} has no static shape")
    return shape
