"""Fused functions compiled once for each target, as object files that stages are linked from.

A stage's module is compiled by ``relay.build`` with its fused functions marked for the codegen
``tvm_npu_stage``, which hands back the object that TVM made of the function before. So a layer
that moves from one stage to another, or stands in a hundred configurations, is compiled once.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.cpu_code import cpu_code
from tvm_npu.relay import operands as of
from tvm_npu.relay.alone import suspects_of
from tvm_npu.relay.build_context import build_context
from tvm_npu.relay.codegen import compile_region
from tvm_npu.relay.run_regions import is_region

COMPILER = "tvm_npu_stage"
OBJECT_ATTR = "tvm_npu_stage.object"
"""Path of the object file that holds a marked function."""
RESHAPE_ONLY = "relay.reshape_only"
"""TVM's mark on fused functions that only rename a shape: no code is run for them."""

GRAPH_PASSES = (
    "qnn.Legalize", "Legalize", "SimplifyInference", "EliminateCommonSubexpr", "SimplifyExpr",
    "CombineParallelConv2d", "CombineParallelDense", "CombineParallelBatchMatmul", "FoldConstant",
    "ForwardFoldScaleAxis", "BackwardFoldScaleAxis", "FoldScaleAxis", "CanonicalizeCast",
    "CanonicalizeOps", "FlattenAtrousConv", "FastMath", "AlterOpLayout", "SimplifyExprPostAlterOp",
    "SplitArgs",
)  # fmt: skip
"""Passes of ``relay.build`` that the whole model has been through; they would change bits here."""


def lowering_only() -> Any:
    """A pass context in which ``relay.build`` compiles fused functions as they are."""
    return build_context(3, GRAPH_PASSES)


class PrimitiveCache:
    """Object files of fused functions and NPU regions in ``folder``, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiled = 0
        """Functions that had to be compiled so far."""
        self._known: dict[tuple[int, str], list[tuple[relay.Function, str, Path]]] = {}

    def get(self, function: relay.Function, target: tvm.target.Target) -> tuple[str, Path]:
        """(symbol, object file) of a function. Regions do not depend on ``target``."""
        region = is_region(function)
        key = (int(tvm.ir.structural_hash(function)), "" if region else str(target))
        entries = self._known.setdefault(key, [])
        for known, symbol, path in entries:
            if tvm.ir.structural_equal(known, function):
                return symbol, path
        name = f"s{sum(map(len, self._known.values()))}"
        compiled, symbol = _region(function) if region else _primitive(function, target, name)
        path = self.folder / f"{name}.o"
        compiled.save(str(path))
        self.compiled += 1
        entries.append((function, symbol, path))
        return symbol, path

    def mark(self, function: relay.Function, target: tvm.target.Target) -> relay.Function:
        """``function`` as one whose code is taken from here; reshapes stay TVM's."""
        if function.attrs is not None and RESHAPE_ONLY in function.attrs:
            return function
        symbol, path = self.get(function, target)
        marked = relay.Function(function.params, function.body, function.ret_type)
        marked = marked.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        marked = marked.with_attr("Compiler", COMPILER)
        marked = marked.with_attr("global_symbol", symbol)
        return marked.with_attr(OBJECT_ATTR, str(path))


def _primitive(
    function: relay.Function, target: tvm.target.Target, name: str
) -> tuple[tvm.runtime.Module, str]:
    """Stock TVM's code for one fused function, and its symbol."""
    inputs = [relay.Var(f"p{n}", var.checked_type) for n, var in enumerate(function.params)]
    main = relay.Function(inputs, relay.Call(function, inputs))
    with cpu_code(partial(suspects_of, function)), lowering_only():
        library = relay.build(tvm.IRModule.from_expr(main), target=target, mod_name=name)
    nodes = json.loads(library.get_graph_json())["nodes"]
    symbols = [node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"]
    if len(symbols) != 1:
        raise RuntimeError(f"TVM made {len(symbols)} functions of one: {', '.join(symbols)}")
    return library.get_lib(), symbols[0]


def _region(function: relay.Function) -> tuple[tvm.runtime.Module, str]:
    return compile_region(function), str(function.attrs["global_symbol"])


@tvm.register_func(f"relay.ext.{COMPILER}", override=True)
def _object_of(function: relay.Function) -> tvm.runtime.Module:
    symbol = str(function.attrs["global_symbol"])
    return tvm.runtime.load_static_library(str(function.attrs[OBJECT_ATTR]), [symbol])


@tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", override=True)
def _no_parameters(function: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
    """A stage's weights are its own parameters; fused functions hold none."""
    return {}


def with_marked_calls(
    main: relay.Function, primitives: PrimitiveCache, target: tvm.target.Target
) -> relay.Function:
    """A stage's main with every fused function taken from ``primitives``."""
    memo: dict[Any, Any] = {}
    for expr in of.post_order(main.body):
        new = expr
        if isinstance(expr, relay.Call):
            new = relay.Call(primitives.mark(expr.op, target), [memo[arg] for arg in expr.args])
        elif isinstance(expr, relay.Tuple):
            new = relay.Tuple([memo[field] for field in expr.fields])
        elif isinstance(expr, relay.TupleGetItem):
            new = relay.TupleGetItem(memo[expr.tuple_value], expr.index)
        memo[expr] = new
    return relay.Function(main.params, memo[main.body])
