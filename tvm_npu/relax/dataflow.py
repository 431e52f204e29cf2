"""A Relax function as the neutral dataflow that rules and importer read.

Bindings that compute nothing (names of names, tuples and their parts) are values of what they
name. Conditionals, casts of types and calls of functions are single nodes that read whatever
variables stand in them: their insides are nobody's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from tvm_npu.door.dataflow import (
    Constant,
    Dataflow,
    Input,
    OpCall,
    TensorType,
    Value,
    Values,
    constant,
    flat,
    part,
)
from tvm_npu.relax import expressions as of
from tvm_npu.relax.operators import attribute_reader, spelling_of, tensor_arguments


@dataclass(frozen=True, eq=False)
class RelaxDataflow(Dataflow):
    """Knows the binding of every call, and what every variable is worth. ``turned``: constants that
    are read the other way round, as the function spells them."""

    bound: Mapping[OpCall, Any] = None  # type: ignore[assignment]
    values: Mapping[Any, Value | Values] = None  # type: ignore[assignment]
    turned: Mapping[Any, Any] = None  # type: ignore[assignment]


def relax_dataflow(function: relax.Function, sources: Sequence[str] | None = None) -> RelaxDataflow:
    """A function with types. ``sources`` name the operators in the user's model, one for each call
    of an operator in the order of bindings, turned constants left out; without them the spans of
    calls do."""
    values: dict[Any, Value | Values] = {}
    bound: dict[OpCall, Any] = {}
    turned: dict[Any, Any] = {}
    names = None if sources is None else iter(sources)
    inputs = tuple(_input(var) for var in function.params)
    values.update(zip(function.params, inputs, strict=True))
    for binding in of.bindings(function):
        value = binding.value
        if isinstance(binding, relax.VarBinding) and is_plain(value):
            values[binding.var] = worth(value, values)
            continue
        if isinstance(binding, relax.VarBinding) and of.is_turned(value):
            turned[binding.var] = value
            values[binding.var] = Constant(_types(value), load=partial(of.turned_array, value))
            continue
        is_call = bool(of.op_name(value)) and isinstance(binding, relax.VarBinding)
        source = next(names) if names is not None and is_call else of.source_of(value)
        call = _op_call(binding, values, source, is_call)
        bound[call] = binding
        values[binding.var] = call.result()
    return RelaxDataflow(
        inputs=inputs,
        outputs=flat([worth(function.body.body, values)]),
        returns_tuple=not of.is_tensor(function.body.body),
        bound=bound,
        values=values,
        turned=turned,
    )


def is_plain(expr: Any) -> bool:
    """Is it a name for what is known, or for a part of it?"""
    return not isinstance(expr, of.Call | of.Conditional | relax.Function | relax.SeqExpr)


def worth(expr: Any, values: Mapping[Any, Value | Values]) -> Value | Values:
    """What an argument means: a tensor, or the tensors of a tuple that is written out."""
    if isinstance(expr, relax.Var):
        return values[expr]
    if of.is_constant(expr):
        return Constant(_types(expr), load=lambda: of.array_of(expr))
    if isinstance(expr, of.Tuple):
        return tuple(worth(item, values) for item in expr.fields)
    if isinstance(expr, of.TupleGetItem):
        return part(
            worth(expr.tuple_value, values), int(expr.index), _types(expr), not of.is_tensor(expr)
        )
    return Input(_types(expr), is_tuple=not of.is_tensor(expr))  # a shape or a number


def _op_call(
    binding: Any, values: Mapping[Any, Value | Values], source: str, is_call: bool
) -> OpCall:
    expr = binding.value
    if not is_call:
        free = [var for var in relax.analysis.free_vars(expr) if var in values]
        return OpCall(
            name="",
            operands=flat([values[var] for var in free]),
            types=_types(binding.var),
            spelling=type(expr).__name__,
            source=source,
            returns_tuple=not of.is_tensor(binding.var),
            is_call=False,
        )
    spelling = spelling_of(expr)
    operands = flat([worth(arg, values) for arg in tensor_arguments(expr)])
    if spelling.fill is not None:
        operands += (constant(np.float32(spelling.fill(expr))),)
    return OpCall(
        name=spelling.name,
        operands=operands,
        types=_types(binding.var),
        spelling=_spelling(expr),
        source=source,
        returns_tuple=not of.is_tensor(binding.var),
        raw_attribute=attribute_reader(expr),
    )


def _spelling(call: Any) -> str:
    """As the module has it; of loops, what they are called."""
    name = of.op_name(call).removeprefix("relax.")
    return f"{name} {of.name_of(call.args[0])}" if name == "call_tir" else name


def _input(var: relax.Var) -> Input:
    return Input(_types(var), is_tuple=not of.is_tensor(var), name=of.name_of(var))


def _types(expr: Any) -> tuple[TensorType, ...]:
    return tuple(
        TensorType(of.extents(type_), of.dtype_of(type_)) for type_ in of.tensor_types(expr.ty)
    )
