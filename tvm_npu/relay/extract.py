"""Taking regions out of main: each becomes a global function for the codegen ``npu``."""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.dataflow import Constant, OpCall, Result, Value
from tvm_npu.door.partition import Partition, Region
from tvm_npu.door.region import ORIGINS, SOURCES, origins
from tvm_npu.relay import operands as of
from tvm_npu.relay.dataflow import RelayDataflow
from tvm_npu.relay.normalize import rebuilt_call
from tvm_npu.relay.roundings import is_to_even, to_even

COMPILER = "npu"
"""Function attribute: JSON list of source operator names, one for each call of the body."""

Expr = Any


def extract(mod: tvm.IRModule, flow: RelayDataflow, partition: Partition) -> tvm.IRModule:
    """``mod`` with the regions of its main as functions.

    before: ``relu(conv2d(x))``          after: ``@tvmgen_default_npu_main_0(x)``
    """
    return _Rewriter(mod, flow).run(partition)


class _Rewriter:
    """Builds the new main and one global function for each region."""

    def __init__(self, mod: tvm.IRModule, flow: RelayDataflow) -> None:
        self.mod = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions)
        self.main = mod["main"]
        self.flow = flow
        self.memo: dict[Expr, Expr] = {}
        self.results: dict[Value, Expr] = {}
        """What stands in the new main for regions' results."""

    def run(self, partition: Partition) -> tvm.IRModule:
        for piece in partition.pieces:
            if isinstance(piece, Region):
                self._region(piece)
            else:
                expr = self.flow.expressions[piece]
                self.memo[expr] = self._on_cpu(expr)
        self.mod["main"] = relay.Function(
            self.main.params,
            self._mapped(self.main.body),
            self.main.ret_type,
            self.main.type_params,
            self.main.attrs,
            self.main.span,
        )
        return relay.transform.InferType()(self.mod)

    def _on_cpu(self, expr: Expr) -> Expr:
        if not isinstance(expr, relay.Call):
            return expr
        args = [self._mapped(arg) for arg in expr.args]
        if of.op_name(expr) == "add" and args[0].same_as(args[1]):
            return _doubled(expr, args[0])
        if is_to_even(expr):
            return to_even(args[0], str(expr.checked_type.dtype))
        return rebuilt_call(expr, args)

    def _mapped(self, expr: Expr) -> Expr:
        """The new expression for one of the old main."""
        if expr in self.memo:
            return self.memo[expr]
        value = self.flow.values[expr]
        new = expr
        if isinstance(value, Result) and value in self.results:
            new = self.results[value]
        elif isinstance(expr, relay.Tuple):
            new = relay.Tuple([self._mapped(item) for item in expr.fields], expr.span)
        elif isinstance(expr, relay.TupleGetItem):
            new = relay.TupleGetItem(self._mapped(expr.tuple_value), expr.index, expr.span)
        self.memo[expr] = new
        return new

    def _region(self, region: Region) -> None:
        body = _RegionBody(self.flow, region)
        results = [body.result(value) for value in region.outputs]
        result = results[0] if len(results) == 1 else relay.Tuple(results)
        types = [_type(value) for value in region.outputs]
        result_type = types[0] if len(types) == 1 else relay.TupleType(types)
        calls = [expr for expr in of.post_order(result) if isinstance(expr, relay.Call)]
        function = relay.Function(list(body.params.values()), result, result_type)
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Compiler", COMPILER)
        function = function.with_attr("global_symbol", region.symbol)
        function = function.with_attr(SOURCES, json.dumps([of.source_of(c) for c in calls]))
        function = function.with_attr(ORIGINS, origins(region.inputs))
        global_var = relay.GlobalVar(region.symbol)
        self.mod[global_var] = function
        call = relay.Call(global_var, [self._mapped(body.outside[value]) for value in body.params])
        for position, value in enumerate(region.outputs):
            self.results[value] = call if len(types) == 1 else relay.TupleGetItem(call, position)


def _doubled(added: Expr, value: Expr) -> Expr:
    """``value + value``, as a product. TVM's SimplifyExpr makes one of it too, of an older copy of
    ``value``: the region behind would be called twice, for which TVM's Inline stops the build."""
    two = relay.const(2, added.checked_type.dtype)
    return relay.Call(tvm.ir.Op.get("multiply"), [value, two], None, None, added.span)


class _RegionBody:
    """Copies a region's calls; what comes from outside becomes a parameter."""

    def __init__(self, flow: RelayDataflow, region: Region) -> None:
        self.values = flow.values
        self.params: dict[Value, relay.Var] = {
            value: relay.Var(f"npu_{number}", _type(value))
            for number, value in enumerate(region.inputs)
        }
        self.outside: dict[Value, Expr] = {}
        """An expression of the old main for every parameter."""
        self._calls: dict[OpCall, Expr] = {}
        self._results: dict[Value, Expr] = {}
        for call in region.calls:
            expr = flow.expressions[call]
            self._calls[call] = rebuilt_call(expr, [self._operand(arg) for arg in expr.args])

    def _operand(self, expr: Expr) -> Expr:
        """The region's expression for one of the old main."""
        value = self.values[expr]
        if isinstance(value, Constant):
            return expr
        if isinstance(value, tuple):
            return relay.Tuple([self._operand(item) for item in expr.fields], expr.span)
        if value in self.params:
            self.outside.setdefault(value, expr)
            return self.params[value]
        assert isinstance(value, Result)
        return self.result(value)

    def result(self, value: Result) -> Expr:
        """The region's expression for what one of its calls computes."""
        if value not in self._results:
            made = self._calls[value.call]
            for position in value.path:
                made = relay.TupleGetItem(made, position)
            self._results[value] = made
        return self._results[value]


def _type(value: Value) -> relay.TensorType:
    return relay.TensorType(value.shape, value.type.dtype)
