"""Operators of a Relax module, each to be compiled alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
from tvm import relax

from tvm_npu.door.cpu_code import Suspects
from tvm_npu.relax import expressions as of
from tvm_npu.relax.dataflow import relax_dataflow
from tvm_npu.relax.rewriting import replaced

_CALLS = ("relax.call_tir", "relax.call_dps_packed")
"""Of other functions, which are in the module."""


def suspects(mod: tvm.IRModule) -> Suspects:
    """Those of main."""
    for call, binding in relax_dataflow(mod["main"]).bound.items():
        if call.is_call and of.op_name(binding.value) not in _CALLS:
            yield call, partial(_compile, binding.value)


def _compile(call: Any) -> None:
    """Constants stay: TVM computes with them while it compiles."""
    new = {var: relax.Var(of.name_of(var), var.ty) for var in relax.analysis.free_vars(call)}
    builder = relax.BlockBuilder()
    with builder.function("main", list(new.values())):
        builder.emit_func_output(builder.emit(replaced(call, new)))
    tvm.compile(builder.get(), target="llvm")
