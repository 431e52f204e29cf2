"""Expressions over machine keys and outcomes, as users write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm_npu.sweep.spec import SweepError, missing

FUNCTIONS = {
    "min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor,
    "sqrt": math.sqrt, "log2": math.log2,
}  # fmt: skip


def evaluate(expression: str, names: Mapping[str, Any], what: str) -> Any:
    """The value of an expression; ``names`` may hold mappings, whose entries are written with a
    dot. SweepError, which begins with ``what``, for anything that has no value."""
    try:
        from simpleeval import EvalWithCompoundTypes
    except ImportError as error:
        raise missing("simpleeval", "formulas and constraints") from error
    try:
        evaluator = EvalWithCompoundTypes(names=dict(names), functions=FUNCTIONS)
        return evaluator.eval(f"({expression})")  # of several lines it would take the first
    except Exception as error:
        raise SweepError(f"{what}: {expression!r} has no value: {error}") from error


def number(expression: str, names: Mapping[str, Any], what: str) -> float:
    """As `evaluate`, a finite number."""
    value = evaluate(expression, names, what)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SweepError(f"{what}: {expression!r} is {value!r}; it must be a number")
    return float(value)
