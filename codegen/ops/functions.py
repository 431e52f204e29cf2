"""Functions of one number: the one list from which tables are made, for machines of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.tensors import Array

Values = Callable[[Array], Array]


@dataclass(frozen=True)
class Function:
    """``values`` of a float64 array, finite for finite arguments that a table has.

    ``curvature`` is the largest abs(second derivative) and ``bend`` the largest step of the first
    derivative at a corner elsewhere than at 0, where every table has an entry; both None where
    nobody has worked them out. Beyond 2**``saturated_bits`` the function is as flat as int16
    results can show (nearly: `table.error_bound` says by how much); None for one that goes on.
    """

    name: str
    values: Values = field(compare=False)
    curvature: float | None = None
    bend: float | None = 0.0
    saturated_bits: int | None = None

    def __call__(self, x: Array) -> Array:
        """Without warnings, infinities and NaN of arguments where the function has no value."""
        with np.errstate(all="ignore"):
            found = np.asarray(self.values(np.asarray(x, np.float64)), np.float64)
        return np.nan_to_num(found, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


LARGEST = 2.0**100
"""In place of an infinite value: beyond every range."""
SMALLEST_POSITIVE = 2.0**-126
"""Argument of a logarithm or root in place of those that are not positive."""


def logistic(x: Array) -> Array:
    """The sigmoid; no value overflows."""
    values: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return values


def _softplus(x: Array) -> Array:
    values: Array = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return values


def _elu(x: Array) -> Array:
    values: Array = np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0)))
    return values


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def _selu(x: Array) -> Array:
    negative = SELU_ALPHA * np.expm1(np.minimum(x, 0.0))
    values: Array = SELU_SCALE * np.where(x > 0.0, x, negative)
    return values


def erf(x: Array) -> Array:
    """The error function."""
    from scipy.special import erf as values_of

    values: Array = values_of(x)
    return values


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(x / np.sqrt(2.0)))


def _gelu_tanh(x: Array) -> Array:
    inner = np.sqrt(2.0 / np.pi) * (x + 0.044715 * x * x * x)
    values: Array = 0.5 * x * (1.0 + np.tanh(inner))
    return values


def _hard_sigmoid(x: Array) -> Array:
    values: Array = np.clip(x / 6.0 + 0.5, 0.0, 1.0)
    return values


def _positive(x: Array) -> Array:
    values: Array = np.maximum(x, SMALLEST_POSITIVE)
    return values


FUNCTIONS: dict[str, Function] = {
    one.name: one
    for one in (
        Function("sigmoid", logistic, 0.09623, saturated_bits=4),
        Function("tanh", np.tanh, 0.76981, saturated_bits=3),
        Function("complement", lambda x: logistic(-x), 0.09623, saturated_bits=4),
        Function("silu", lambda x: x * logistic(x), 0.5),
        Function("hard_sigmoid", _hard_sigmoid, 0.0, bend=1 / 6),
        Function("hard_swish", lambda x: x * _hard_sigmoid(x), 1 / 3, bend=0.5),
        Function("gelu", _gelu, 0.79789),
        Function("gelu_tanh", _gelu_tanh, 0.79789),
        Function("erf", erf, 0.96789, saturated_bits=2),
        Function("elu", _elu, 1.0),
        Function("selu", _selu, SELU_SCALE * SELU_ALPHA),
        Function("softplus", _softplus, 0.25),
        Function("mish", lambda x: x * np.tanh(_softplus(x)), 0.65),
        Function("abs", np.abs, 0.0),
        Function("exp", np.exp, None, None),
        Function("log", lambda x: np.log(_positive(x)), None, None),
        Function("round", np.rint, None, None),
        Function("sqrt", lambda x: np.sqrt(np.maximum(x, 0.0)), None, None),
    )
}  # fmt: skip
"""By name. "complement" is 1 - sigmoid."""

ONLY_PARTS = frozenset({"log", "sqrt", "round"})
"""Too steep for a table of their own; parts of other functions, or of a quantized model's
roundings."""


def function_called(name: str | Function) -> Function:
    """GraphError for a name that is not listed."""
    if isinstance(name, Function):
        return name
    if name not in FUNCTIONS:
        raise GraphError(f"unknown function {name!r}; known are {', '.join(FUNCTIONS)}")
    return FUNCTIONS[name]


_GRID = np.concatenate([np.linspace(-12.0, 12.0, 769), [-3.7e1, 4.1e1, 1.3e2]])


def recognised(values: Values) -> Function:
    """The function of the list that has these values to float32's precision, however it is spelt;
    else a function of its own."""
    own = Function("function", values, None, None)
    found = own(_GRID)
    for one in FUNCTIONS.values():
        if np.allclose(found, one(_GRID), rtol=2e-6, atol=2e-6):
            return one
    return own
