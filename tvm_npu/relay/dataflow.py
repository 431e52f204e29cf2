"""A Relay function as the neutral dataflow that rules and importer read.

Operators are called as Relay calls them, without ``nn.``; attributes keep Relay's names. Functions,
conditionals and bindings are single nodes that read nothing: their insides are nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.dataflow import (
    Constant,
    Dataflow,
    Input,
    OpCall,
    TensorType,
    Value,
    Values,
    flat,
    part,
)
from tvm_npu.door.operators import MISSING
from tvm_npu.relay import operands as of

Expr = Any


@dataclass(frozen=True, eq=False)
class RelayDataflow(Dataflow):
    """Knows the expression of every call, and what every expression is worth."""

    expressions: Mapping[OpCall, Expr] = None  # type: ignore[assignment]
    values: Mapping[Expr, Value | Values] = None  # type: ignore[assignment]


def relay_dataflow(function: relay.Function, sources: Sequence[str] | None = None) -> RelayDataflow:
    """``function`` with checked types. ``sources`` name the operators in the user's model, in the
    order of `operands.post_order`; without them the spans of calls do."""
    values: dict[Expr, Value | Values] = {}
    expressions: dict[OpCall, Expr] = {}
    names = None if sources is None else iter(sources)
    inputs = [_input(var) for var in function.params]
    values.update(zip(function.params, inputs, strict=True))
    for expr in of.post_order(function.body):
        if expr in values:
            continue
        if isinstance(expr, relay.Var):
            values[expr] = _input(expr)
        elif isinstance(expr, relay.Constant):
            values[expr] = Constant(_types(expr), load=partial(of.array_of, expr))
        elif isinstance(expr, relay.Tuple):
            values[expr] = tuple(values[item] for item in expr.fields)
        elif isinstance(expr, relay.TupleGetItem):
            values[expr] = part(
                values[expr.tuple_value], int(expr.index), _types(expr), not of.is_tensor(expr)
            )
        else:
            is_call = isinstance(expr, relay.Call)
            source = of.source_of(expr) if names is None or not is_call else next(names)
            call = op_call(expr, flat([values[arg] for arg in of.children(expr)]), source)
            expressions[call] = expr
            values[expr] = call.result()
    return RelayDataflow(
        inputs=tuple(inputs),
        outputs=flat([values[function.body]]),
        returns_tuple=isinstance(function.body.checked_type, relay.TupleType),
        expressions=expressions,
        values=values,
    )


def op_call(expr: Expr, operands: tuple[Value, ...], source: str = "") -> OpCall:
    """One node of a Relay function."""
    spelling = of.op_name(expr)
    is_call = isinstance(expr, relay.Call)
    return OpCall(
        name=spelling.removeprefix("nn."),
        operands=operands,
        types=_types(expr),
        spelling=spelling if is_call else type(expr).__name__,
        source=source,
        returns_tuple=not of.is_tensor(expr),
        is_call=is_call,
        raw_attribute=_attribute_reader(expr.attrs if is_call else None),
    )


def typed_call(call: relay.Call) -> OpCall:
    """A call alone: its operands have types, but nobody made them."""
    return op_call(call, flat([_alone(arg) for arg in call.args]))


def _alone(expr: Expr) -> Value | Values:
    if isinstance(expr, relay.Tuple):
        return tuple(_alone(item) for item in expr.fields)
    return Input(_types(expr), is_tuple=not of.is_tensor(expr))


def _input(var: relay.Var) -> Input:
    return Input(_types(var), is_tuple=not of.is_tensor(var), name=str(var.name_hint))


def _types(expr: Expr) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(tuple(map(_extent, type_.shape)), str(type_.dtype))
        for type_ in of.tensor_types(expr.checked_type)
    )


def _extent(extent: Any) -> int | str:
    if isinstance(extent, tvm.tir.IntImm):
        return int(extent)
    return "?" if isinstance(extent, tvm.tir.Any) else str(extent)


def _attribute_reader(attrs: Any) -> Callable[[str], Any]:
    def read(name: str) -> Any:
        value = getattr(attrs, name, MISSING)
        return value if value is MISSING else _plain(value)

    return read


def _plain(value: Any) -> Any:
    """A TVM number, string or array as Python's own."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, tvm.tir.IntImm):
        return int(value)
    if isinstance(value, tvm.tir.FloatImm):
        return float(value)
    return tuple(_plain(item) for item in value)
