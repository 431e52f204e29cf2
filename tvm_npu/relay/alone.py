"""Operators of a Relay module, each to be compiled alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.cpu_code import Suspects
from tvm_npu.relay import operands as of
from tvm_npu.relay.build_context import build_context
from tvm_npu.relay.dataflow import typed_call

OPT_LEVEL = 2


def suspects(mod: tvm.IRModule, params: Mapping[str, Any] | None = None) -> Suspects:
    """Those of main, whose parameters may be given apart."""
    main = mod["main"]
    if params:
        main = relay.build_module.bind_params_by_name(main, dict(params))
    return suspects_of(relay.transform.InferType()(tvm.IRModule.from_expr(main))["main"])


def suspects_of(function: relay.Function) -> Suspects:
    """Those of a function with types."""
    for expr in of.post_order(function.body):
        if of.op_name(expr):
            named = replace(typed_call(expr), source=of.source_of(expr))
            yield named, partial(_build, expr)


def _build(call: relay.Call) -> None:
    """Constants stay: TVM computes with them while it compiles."""
    variables: list[relay.Var] = []
    body = relay.Call(call.op, list(_outside(call.args, variables)), call.attrs, call.type_args)
    with build_context(OPT_LEVEL):
        relay.build(tvm.IRModule.from_expr(relay.Function(variables, body)), target="llvm")


def _outside(args: Any, variables: list[relay.Var]) -> Iterator[Any]:
    """Arguments as new variables, which are added to ``variables``."""
    for arg in args:
        if isinstance(arg, relay.Constant):
            yield arg
        elif isinstance(arg, relay.Tuple):
            yield relay.Tuple(list(_outside(arg.fields, variables)))
        else:
            variables.append(relay.var(f"p{len(variables)}", arg.checked_type))
            yield variables[-1]
