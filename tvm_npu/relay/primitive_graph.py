"""A Relay module as primitives: optimised and fused once as ``relay.build`` does it, so that they
are the fused functions that it would compile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import tvm
from tvm import relay

from tvm_npu.door.cpu_code import reason_of
from tvm_npu.door.dataflow import TensorType
from tvm_npu.door.region import SOURCES
from tvm_npu.door.work import call_work, total
from tvm_npu.errors import CutError
from tvm_npu.pipelines.primitives import Primitive, PrimitiveGraph, Value
from tvm_npu.relay import operands as of
from tvm_npu.relay.build_context import build_context
from tvm_npu.relay.dataflow import typed_call
from tvm_npu.relay.run_regions import is_region

Expr = Any
Key = TypeVar("Key")


@dataclass(frozen=True)
class RelayPrimitives(PrimitiveGraph):
    """Knows the inputs' variables."""

    variables: tuple[relay.Var, ...]

    def relay_type(self, value: Value) -> relay.TensorType:
        """Of a tensor, as Relay says it."""
        if value.node < 0:
            return self.variables[value.position].checked_type
        return of.tensor_types(self.primitives[value.node].call.checked_type)[value.position]


def primitive_graph(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, target: tvm.target.Target
) -> RelayPrimitives:
    """``mod`` (before or after `partition_for_npu`) as primitives for ``target``.

    Raises CutError for a model with control flow, open shapes or no operator, and for what TVM
    cannot compile.
    """
    if "main" not in [var.name_hint for var in mod.get_global_vars()]:
        raise CutError("the module has no function 'main'")
    mod = relay.transform.InferType()(mod)
    _check_plain(mod)
    try:
        with build_context(3):
            optimised, _ = relay.optimize(mod, target=target, params=dict(params or {}))
    except tvm.error.TVMError as error:
        raise CutError(f"TVM cannot compile the model: {reason_of(error)}") from error
    main = optimised["main"]
    nodes = [expr for expr in of.post_order(main.body) if isinstance(expr, relay.Call)]
    if not nodes:
        raise CutError("the model has no operator: nothing can be cut into stages")
    index = {call: number for number, call in enumerate(nodes)}
    inputs = {var: number for number, var in enumerate(main.params)}
    sources = _sources(mod["main"], main, index)

    def values(expr: Expr) -> list[Value]:
        if isinstance(expr, relay.Tuple):
            return [value for field in expr.fields for value in values(field)]
        if isinstance(expr, relay.TupleGetItem):
            return [values(expr.tuple_value)[int(expr.index)]]
        if isinstance(expr, relay.Var):
            return [Value(-1, inputs[expr])]
        if isinstance(expr, relay.Call):
            count = len(of.tensor_types(expr.checked_type))
            return [Value(index[expr], position) for position in range(count)]
        return []

    outputs = values(main.body)
    if len(outputs) != len(of.tensor_types(main.body.checked_type)):
        raise CutError("an output of the model is a constant: it belongs to no stage")
    primitives = []
    for number, call in enumerate(nodes):
        reads = dict.fromkeys(value for arg in call.args for value in values(arg))
        primitives.append(_primitive(optimised, call, tuple(reads), sources.get(number, ())))
    return RelayPrimitives(
        optimised,
        tuple((str(var.name_hint), _type(var.checked_type)) for var in main.params),
        tuple(primitives),
        tuple(outputs),
        tuple(main.params),
    )


def _type(type_: relay.TensorType) -> TensorType:
    return TensorType(of.static_shape(type_) or (), str(type_.dtype))


def _check_plain(mod: tvm.IRModule) -> None:
    for expr in of.post_order(mod["main"].body):
        if not isinstance(
            expr, relay.Call | relay.Tuple | relay.TupleGetItem | relay.Var | relay.Constant
        ):
            raise CutError(
                f"the model has a {type(expr).__name__}: only plain dataflow can be cut into stages"
            )
        for type_ in of.tensor_types(expr.checked_type):
            if of.static_shape(type_) is None:
                name = of.source_of(expr) or of.op_name(expr) or getattr(expr, "name_hint", "")
                raise CutError(f"tensor of {name!r} has type {type_}: stages need static shapes")


def _primitive(
    mod: tvm.IRModule, call: relay.Call, reads: tuple[Value, ...], source: tuple[str, ...]
) -> Primitive:
    function = mod[call.op] if isinstance(call.op, relay.GlobalVar) else call.op
    if not isinstance(function, relay.Function):
        raise CutError(f"TVM left {of.op_name(call) or call.op} outside of any fused function")
    inside = [e for e in of.post_order(function.body) if isinstance(e, relay.Call)]
    constants = [e for e in of.post_order(function.body) if isinstance(e, relay.Constant)]
    for arg in call.args:
        fields = arg.fields if isinstance(arg, relay.Tuple) else [arg]
        constants += [field for field in fields if isinstance(field, relay.Constant)]
    region = is_region(function)
    if region:
        source = tuple(json.loads(str(function.attrs[SOURCES])))
    return Primitive(
        call=call,
        reads=reads,
        results=tuple(_type(type_) for type_ in of.tensor_types(call.checked_type)),
        work=total(call_work(typed_call(e)) for e in inside),
        parameter_bytes=sum(constant.data.numpy().nbytes for constant in constants),
        operators=tuple(of.op_name(e) for e in inside),
        source=source,
        is_region=region,
    )


def _sources(
    before: relay.Function, after: relay.Function, index: Mapping[relay.Call, int]
) -> dict[int, tuple[str, ...]]:
    """Names of the operators with work in each primitive. TVM's passes drop them, but keep the
    order in which operators are found from the output on: if works agree one by one, so do
    names."""
    known = []
    for expr in of.post_order(before.body):
        if isinstance(expr, relay.Call) and (work := call_work(typed_call(expr))).weight:
            known.append((work, of.source_of(expr)))
    found = []
    for frame, expr in _inlined_post_order(after.body):
        if isinstance(expr, relay.Call) and (work := call_work(typed_call(expr))).weight:
            found.append((work, index[expr if frame is None else frame]))
    if [work for work, _ in known] != [work for work, _ in found]:
        return {}
    names: dict[int, tuple[str, ...]] = {}
    for (_, name), (_, number) in zip(known, found, strict=True):
        names[number] = (*names.get(number, ()), *([name] if name else []))
    return names


def _inlined_post_order(root: Expr) -> Iterator[tuple[Expr, Expr]]:
    """(call of the fused function or None, expression) as if fused functions were not there."""

    def below(item: tuple[Expr, Expr]) -> list[tuple[Expr, Expr]]:
        frame, expr = item
        if frame is None and isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            if not is_region(expr.op):
                return [(expr, expr.op.body)]
        if frame is not None and isinstance(expr, relay.Var):
            position = list(frame.op.params).index(expr)
            return [(None, frame.args[position])]
        return [(frame, child) for child in of.children(expr)]

    return _post_order((None, root), below)


def _post_order(root: Key, below: Callable[[Key], list[Key]]) -> Iterator[Key]:
    seen = {root}
    stack = [(root, iter(below(root)))]
    while stack:
        item, rest = stack[-1]
        for child in rest:
            if child not in seen:
                seen.add(child)
                stack.append((child, iter(below(child))))
                break
        else:
            stack.pop()
            yield item
