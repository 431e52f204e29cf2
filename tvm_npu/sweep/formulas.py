"""Expressions over machine keys and outcomes, as users write them."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from tvm_npu.sim.texts import cut
from tvm_npu.sweep.spec import SweepError, missing

FUNCTIONS = {
    "min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor,
    "sqrt": math.sqrt, "log2": math.log2,
}  # fmt: skip
_FORMS = (
    ast.Expr, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call,
    ast.Constant,
)  # fmt: skip
_ARITHMETIC = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift,
    ast.BitXor, ast.BitOr, ast.BitAnd,
)  # fmt: skip


MOST_CHARACTERS = 10_000
MOST_BITS = 1000
"""Of whole numbers on the way: more than any memory of the world has bytes, less than a float."""


def evaluate(expression: str, names: Mapping[str, Any], what: str) -> Any:
    """The value of an expression of numbers, names, arithmetic, comparisons, lists to look in and
    FUNCTIONS; ``names`` may hold mappings, whose entries are written with a dot. SweepError, which
    begins with ``what``, for anything that has no value."""
    try:
        import simpleeval  # noqa: F401
    except ImportError as error:
        raise missing("simpleeval", "formulas and constraints") from error
    _check_length(expression, what)
    try:
        return _evaluator(names).eval(f"({expression})")  # of several lines it would take the first
    except Exception as error:
        raise SweepError(f"{what}: {cut(expression)!r} has no value: {error}") from error


def check(expression: str, names: Container[str], what: str) -> None:
    """SweepError, which begins with ``what``, for an expression to which `evaluate` cannot give a
    value: it is none, or names what is not in ``names``, with dots. No value has to be known."""
    _check_length(expression, what)
    try:
        tree = ast.parse(f"({expression})", mode="eval")
        wrong = next((one for node in _forms(tree.body) if (one := _wrong(node, names))), None)
    except Exception as error:  # the parser has errors of several kinds
        raise SweepError(f"{what}: {cut(expression)!r} has no value: {error}") from error
    if wrong is not None:
        raise SweepError(f"{what}: {cut(expression)!r} has no value: {wrong}")


def _check_length(expression: str, what: str) -> None:
    if len(expression) > MOST_CHARACTERS:
        raise SweepError(
            f"{what}: {expression[:40]!r}... has {len(expression)} characters; "
            f"{MOST_CHARACTERS} are possible"
        )


def _forms(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions in ``node``, itself among them; names with dots and of functions once."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, ast.Call):
            left += [*one.args, *(keyword.value for keyword in one.keywords)]
        elif not isinstance(one, ast.Attribute):
            left += [inner for inner in ast.iter_child_nodes(one) if isinstance(inner, ast.expr)]


def _wrong(node: ast.expr, names: Container[str]) -> str | None:
    """Why ``node`` has no value, whatever is in it."""
    if isinstance(node, ast.Call):
        called = _dotted(node.func)
        return None if called in FUNCTIONS else f"there is no function {cut(called)!r}"
    if isinstance(node, ast.Name | ast.Attribute):
        name = _dotted(node)
        return None if name in names else f"{cut(name)!r} is not defined"
    if isinstance(node, (*_FORMS, ast.List, ast.Tuple)):
        return None
    return f"{type(node).__name__} is not possible"


def _dotted(node: ast.expr) -> str:
    """A name as it is written; of other expressions what stands behind them."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "(...)")
    return ".".join(reversed(parts))


def _evaluator(names: Mapping[str, Any]) -> Any:
    """simpleeval's, with fewer forms: its strings, slices and methods can take any time and memory,
    and nobody needs them here."""
    from simpleeval import DEFAULT_OPERATORS, NameNotDefined, SimpleEval

    operators = dict(DEFAULT_OPERATORS)
    for operator in _ARITHMETIC:
        operators[operator] = _of_numbers(operator, operators[operator])
    evaluator = SimpleEval(operators=operators, functions=FUNCTIONS, names=dict(names))

    def entry(node: ast.Attribute) -> Any:
        holder = evaluator._eval(node.value)
        if not isinstance(holder, Mapping) or node.attr not in holder:
            raise NameNotDefined(node.attr, ast.unparse(node))
        return holder[node.attr]

    def several(node: ast.List | ast.Tuple) -> tuple[Any, ...]:
        return tuple(evaluator._eval(one) for one in node.elts)

    kept = {form: evaluator.nodes[form] for form in _FORMS}
    evaluator.nodes = {**kept, ast.Attribute: entry, ast.List: several, ast.Tuple: several}
    return evaluator


def _of_numbers(operator: type[ast.operator], function: Callable[[Any, Any], Any]) -> Any:
    def checked(left: Any, right: Any) -> Any:
        if not all(isinstance(one, int | float) for one in (left, right)):
            raise TypeError(f"{operator.__name__} is for numbers")
        if isinstance(left, int) and isinstance(right, int):
            bits = abs(left).bit_length()
            if operator is ast.Pow and bits > 1:
                bits *= abs(right)
            elif operator is ast.LShift:
                bits += abs(right)
            if bits > MOST_BITS:
                raise OverflowError(f"{operator.__name__} to {bits} bits; {MOST_BITS} are possible")
        made = function(left, right)
        if isinstance(made, int) and made.bit_length() > MOST_BITS:
            raise OverflowError(f"{operator.__name__} to more than {MOST_BITS} bits")
        return made

    return checked


def number(expression: str, names: Mapping[str, Any], what: str) -> float:
    """As `evaluate`, a finite number."""
    value = evaluate(expression, names, what)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        bits = value.bit_length()
        raise SweepError(f"{what}: its value has {bits} bits; {MOST_BITS} are possible")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SweepError(f"{what}: {expression!r} is {value!r}; it must be a number")
    return float(value)
