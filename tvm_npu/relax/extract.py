"""Taking regions out of main: each becomes a function for the codegen ``npu``.

The new main keeps the variables of the old one: what stays on the CPU is bound as before, and the
variables of a region's results are bound to what its function returns.
"""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm import relax

from tvm_npu.codegen.row_blocks import contiguous
from tvm_npu.door.dataflow import Constant, OpCall, Result, Value, flat
from tvm_npu.door.partition import Partition, Region
from tvm_npu.door.region import ORIGINS, SOURCES, origins
from tvm_npu.relax import expressions as of
from tvm_npu.relax.cpu_arithmetic import as_in_relay
from tvm_npu.relax.dataflow import RelaxDataflow, is_plain
from tvm_npu.relax.rewriting import apart, bound_to

COMPILER = "npu"
"""Function attribute: JSON list of source operator names, one for each call of the body."""

Expr = Any


def extract(mod: tvm.IRModule, flow: RelaxDataflow, partition: Partition) -> tvm.IRModule:
    """``mod``, without dataflow blocks, with the regions of its main as functions.

    before: ``lv = conv2d(x, w); gv = relu(lv)``    after: ``gv = tvmgen_default_npu_main_0(x)``
    """
    builder = relax.BlockBuilder(mod)
    callers = {
        region.symbol: builder.add_func(region_function(flow, region), region.symbol)
        for region in partition.regions
    }
    main = _Main(mod["main"], flow, partition)
    for piece in partition.pieces:
        if isinstance(piece, Region):
            main.call(callers[piece.symbol], piece)
        else:
            main.keep(piece)
    builder.update_func(mod.get_global_var("main"), main.function())
    result = relax.transform.Normalize()(builder.get())
    result = relax.transform.ConvertToDataflow(min_size=1)(result)
    return relax.transform.DeadCodeElimination(["main"])(result)


class _Main:
    """The new main while it grows."""

    def __init__(self, main: relax.Function, flow: RelaxDataflow, partition: Partition) -> None:
        self.main, self.flow = main, flow
        self.bindings: list[Any] = []
        self.kept: dict[Any, Any] = {}  # what variables of calls on the CPU were bound to
        self.bound = set(main.params)
        pieces = {
            flow.bound[call].var for piece in partition.pieces
            for call in (piece.calls if isinstance(piece, Region) else (piece,))
        }  # fmt: skip
        pieces.update(flow.turned)
        self.waiting = [one for one in of.bindings(main) if one.var not in pieces]
        """Other names of what there is, and what no output reads: it may say what an extent is
        called that others use. Each comes as soon as what it reads is bound."""
        self.variables: dict[Value, list[Any]] = {}
        for var, value in flow.values.items():
            if isinstance(value, Result):
                self.variables.setdefault(value, []).append(var)
        self._bind_turned(partition)
        self._bind_waiting()

    def _bind_turned(self, partition: Partition) -> None:
        """Matrices that something on the CPU reads the other way round, so that nothing has to turn
        them when the model runs."""
        calls = [piece for piece in partition.pieces if not isinstance(piece, Region)]
        kept = [self.flow.bound[call] for call in calls] + self.waiting
        read = {
            var for expr in (*(one.value for one in kept), self.main.body.body)
            for var in relax.analysis.free_vars(expr)
        }  # fmt: skip
        for var, turned in self.flow.turned.items():
            if var in read:
                weight = relax.const(contiguous(of.turned_array(turned)))
                self._bind(relax.VarBinding(var, weight))

    def keep(self, call: OpCall) -> None:
        """A call that stays on the CPU."""
        binding = self.flow.bound[call]
        parts: list[Any] = []
        whole = apart(as_in_relay(binding.value, self.kept), parts, {})
        self.kept[binding.var] = binding.value
        for one in parts:
            self._bind(one)
        self._bind(bound_to(binding, whole))

    def call(self, function: Any, region: Region) -> None:
        """A call of a region's function."""
        arguments = [self._variable(value) for value in region.inputs]
        result = of.Call(function, arguments)
        if len(region.outputs) == 1:
            self._bind_all(region.outputs[0], result)
            return
        whole = relax.Var(f"{region.symbol}_results", function.ty.ret)
        self._bind(relax.VarBinding(whole, result))
        for position, value in enumerate(region.outputs):
            self._bind_all(value, of.TupleGetItem(whole, position))

    def function(self) -> relax.Function:
        """Everything that was bound, as a function like the old one."""
        main = self.main
        body = relax.SeqExpr([relax.BindingBlock(self.bindings)], main.body.body)
        return relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span)

    def _bind_all(self, value: Value, expr: Expr) -> None:
        """Binds every variable that means ``value``: the first to ``expr``, others to the first."""
        variables = self.variables.get(value) or [relax.Var("npu_result", _tensor_type(value))]
        self.variables[value] = variables
        for var in variables:
            if var not in self.bound:
                self._bind(relax.VarBinding(var, expr))
            expr = var

    def _variable(self, value: Value) -> Any:
        """A variable that means ``value``; parts of a tuple that have none get one."""
        for var in self.main.params:
            if self.flow.values[var] is value:
                return var
        known = [var for var in self.variables.get(value, ()) if var in self.bound]
        if known:
            return known[0]
        if not isinstance(value, Result) or not value.path:
            raise ValueError(f"{value} has no variable")
        *path, position = value.path
        whole = Result(value.call.types, is_tuple=True, call=value.call, path=tuple(path))
        var = relax.Var("npu_part", _tensor_type(value))
        self._bind(relax.VarBinding(var, of.TupleGetItem(self._variable(whole), position)))
        self.variables.setdefault(value, []).append(var)
        return var

    def _bind(self, binding: Any) -> None:
        self.bindings.append(binding)
        self.bound.add(binding.var)
        self._bind_waiting()

    def _bind_waiting(self) -> None:
        """What is ready; of what is more than a name nothing before what stood in front of it."""
        left, in_order = [], True
        for one in self.waiting:
            if one.var in self.bound:
                continue
            is_name = isinstance(one, relax.VarBinding) and is_plain(one.value)
            if self._is_ready(one) and (is_name or in_order):
                self.bindings.append(one)
                self.bound.add(one.var)
            else:
                left.append(one)
                in_order = in_order and is_name
        self.waiting = left

    def _is_ready(self, binding: Any) -> bool:
        return all(var in self.bound for var in relax.analysis.free_vars(binding.value))


def region_function(flow: RelaxDataflow, region: Region) -> relax.Function:
    """The calls of a region as a function; what comes from outside is a parameter."""
    params = {
        value: relax.Var(f"npu_{number}", _tensor_type(value))
        for number, value in enumerate(region.inputs)
    }
    builder = relax.BlockBuilder()
    made: dict[Value, Expr] = dict(params)
    with builder.function(region.symbol, list(params.values()), private=True):
        for call in region.calls:
            made[call.result()] = builder.emit(_copied(flow, call, made))
        outputs = [_part(value, made) for value in region.outputs]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else of.Tuple(outputs))
    function = builder.get()[region.symbol]
    names = [call.source for call in region.calls]
    return function.with_attrs(
        {
            "Codegen": COMPILER,
            "global_symbol": region.symbol,
            SOURCES: json.dumps(names),
            ORIGINS: origins(region.inputs),
        }
    )


def _copied(flow: RelaxDataflow, call: OpCall, made: dict[Value, Expr]) -> Expr:
    """A call with the region's own variables as arguments."""
    old = flow.bound[call].value

    def argument(expr: Expr) -> Expr:
        if isinstance(expr, of.Tuple):
            return of.Tuple([argument(item) for item in expr.fields])
        if isinstance(expr, relax.Var):
            if expr in flow.turned:
                return flow.turned[expr]
            value = flow.values[expr]
            if isinstance(value, tuple):
                return of.Tuple([_part(item, made) for item in flat(value)])
            return _part(value, made)
        return expr

    return of.Call(old.op, [argument(arg) for arg in old.args], old.attrs, old.ty_args, old.span)


def _part(value: Value, made: dict[Value, Expr]) -> Expr:
    """The region's expression for a tensor."""
    if isinstance(value, Constant):
        return relax.const(value.array)
    if value not in made:
        assert isinstance(value, Result) and value.path
        *path, position = value.path
        whole = Result(value.call.types, is_tuple=True, call=value.call, path=tuple(path))
        made[value] = of.TupleGetItem(_part(whole, made), position)
    return made[value]


def _tensor_type(value: Value) -> Any:
    return of.TensorType(value.shape, value.type.dtype)
