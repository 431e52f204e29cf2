"""The codegen hook ``relax.ext.npu``: region functions -> Programs -> runtime modules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from tvm_npu.door.region import MarkedRegion
from tvm_npu.relax import expressions as of
from tvm_npu.relax.dataflow import relax_dataflow
from tvm_npu.relax.embed import packed_caller
from tvm_npu.relax.extract import SOURCES_ATTR
from tvm_npu.runtime.packed import RUN


def marked_region(function: relax.Function, symbol: str | None = None) -> MarkedRegion:
    """A region function as all doors know it."""
    marks = {
        str(key): str(value)
        for key, value in (function.attrs or {}).items()
        if str(key).startswith("npu.")
    }
    named = marks.get(SOURCES_ATTR)
    sources = None if named is None else [str(name) for name in json.loads(named)]
    name = symbol or str(function.attrs["global_symbol"])
    return MarkedRegion(name, relax_dataflow(function, sources), marks)


@tvm.register_global_func("relax.ext.npu", override=True)
def compile_regions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[Any, str]
) -> list[Any]:
    """What `relax.transform.RunCodegen` calls with every function whose ``Codegen`` is npu."""
    return [_compiled(function) for function in functions]


def _compiled(function: relax.Function) -> Any:
    symbol = str(function.attrs["global_symbol"])
    region = marked_region(function, symbol)
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
