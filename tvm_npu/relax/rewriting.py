"""Rewriting the calls of a Relax function, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from tvm_npu.relax import expressions as of

Expr = Any
Change = Callable[[Any, Mapping[Any, Expr]], Any]
"""A call whose arguments are rewritten, and what variables are bound to -> what stands for the
call, or None to keep it."""


def rewrite_calls(
    function: relax.Function, change: Change, known: Mapping[Any, Expr] | None = None
) -> relax.Function:
    """``function``, without dataflow blocks, with every call replaced by ``change``.

    A call that becomes a variable, a constant or a tuple has no binding any more: who reads it
    reads that. New calls may be nested: each gets a binding. ``known`` are parameters that become
    constants. TVM's own passes would drop the spans of what they change.
    """
    worth: dict[Any, Expr] = dict(known or {})
    definitions: dict[Any, Expr] = {}
    bindings: list[Any] = []
    for binding in of.bindings(function):
        value = replaced(binding.value, worth)
        if isinstance(binding, relax.VarBinding) and isinstance(value, of.Call):
            new = change(value, definitions)
            if new is not None:
                value = apart(stamped(new, binding.value.span), bindings, definitions)
            if isinstance(value, of.Tuple):
                worth[binding.var] = value
                continue
        if (isinstance(value, relax.Var) or of.is_constant(value)) and not _names_extents(binding):
            worth[binding.var] = value
            continue
        var = binding.var
        if isinstance(var, relax.DataflowVar):
            var = worth[binding.var] = relax.Var(of.name_of(var), var.ty, var.span)
        bindings.append(bound_to(binding, value, var))
        if isinstance(binding, relax.VarBinding):
            definitions[var] = value
    body = relax.SeqExpr([relax.BindingBlock(bindings)], replaced(function.body.body, worth))
    params = [var for var in function.params if var not in (known or {})]
    return relax.Function(
        params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def apart(expr: Expr, bindings: list[Any], definitions: dict[Any, Expr]) -> Expr:
    """``expr`` whose inner calls have ``bindings`` of their own: where TVM makes those, calls
    around others lose their spans."""
    if not isinstance(expr, of.Call):
        return expr
    args = []
    for arg in expr.args:
        if isinstance(arg, of.Call):
            call = relax.BlockBuilder().normalize(apart(arg, bindings, definitions))
            arg = relax.Var("part", call.ty)
            bindings.append(relax.VarBinding(arg, call))
            definitions[arg] = call
        args.append(arg)
    return expr if _same(args, expr.args) else with_arguments(expr, args)


def bound_to(binding: relax.Binding, value: Expr, var: Any = None) -> relax.Binding:
    """``binding`` with another value, and with another variable if ``var`` is given. A cast stays
    one: it says what the extents of its value are called."""
    var = binding.var if var is None else var
    if isinstance(binding, relax.MatchCast):
        return relax.MatchCast(var, value, binding.ty, binding.span)
    return relax.VarBinding(var, value, binding.span)


def _names_extents(binding: relax.Binding) -> bool:
    """Whether it says what an extent is called that is only known when the model runs."""
    if not isinstance(binding, relax.MatchCast):
        return False
    is_tensor = isinstance(binding.ty, relax.TensorType)
    return not is_tensor or of.static_shape(binding.ty) is None


def replaced(expr: Expr, worth: dict[Any, Expr]) -> Expr:
    """``expr`` with variables replaced, also inside of conditionals."""
    if isinstance(expr, relax.Var):
        return worth.get(expr, expr)
    if isinstance(expr, of.Tuple):
        fields = [replaced(item, worth) for item in expr.fields]
        return expr if _same(fields, expr.fields) else of.Tuple(fields, expr.span)
    if isinstance(expr, of.TupleGetItem):
        value = replaced(expr.tuple_value, worth)
        if isinstance(value, of.Tuple):
            return value.fields[expr.index]
        return expr if value is expr.tuple_value else of.TupleGetItem(value, expr.index, expr.span)
    if isinstance(expr, of.Call):
        args = [replaced(arg, worth) for arg in expr.args]
        return expr if _same(args, expr.args) else with_arguments(expr, args)
    if isinstance(expr, of.Conditional):
        branches = (_branch(branch, worth) for branch in (expr.true_branch, expr.false_branch))
        return of.Conditional(replaced(expr.cond, worth), *branches, expr.span)
    return expr


def _branch(sequence: relax.SeqExpr, worth: dict[Any, Expr]) -> relax.SeqExpr:
    """A branch of a conditional. What it binds itself nobody outside can name."""
    blocks = []
    for block in sequence.blocks:
        bindings = [bound_to(one, replaced(one.value, worth)) for one in block.bindings]
        blocks.append(type(block)(bindings, block.span))
    return relax.SeqExpr(blocks, replaced(sequence.body, worth), sequence.span)


def with_arguments(call: Any, args: list[Expr]) -> Any:
    """The same call of other operands."""
    return of.Call(call.op, args, call.attrs, call.ty_args, call.span, ret_ty=call.ty)


def stamped(expr: Expr, span: Any) -> Expr:
    """``expr``, in which all nested calls without a span have this one."""
    if span is None:
        return expr
    if isinstance(expr, of.Call):
        args = [stamped(arg, span) for arg in expr.args]
        if expr.span is not None and _same(args, expr.args):
            return expr
        return of.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span or span)
    if isinstance(expr, of.Tuple):
        fields = [stamped(item, span) for item in expr.fields]
        return expr if _same(fields, expr.fields) else of.Tuple(fields, expr.span)
    if isinstance(expr, of.TupleGetItem):
        value = stamped(expr.tuple_value, span)
        return expr if value is expr.tuple_value else of.TupleGetItem(value, expr.index, expr.span)
    return expr


def _same(one: Any, other: Any) -> bool:
    return all(a is b or a.same_as(b) for a, b in zip(one, other, strict=True))
