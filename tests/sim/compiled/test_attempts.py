"""Operators that are resolved once mean what numba means by them."""

from __future__ import annotations

import operator
from itertools import product
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import errors, types
from numba.core.registry import cpu_target
from numba.core.types.functions import BaseFunction

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.attempts import cheap_attempts

NUMBERS = (types.int64, types.uint32, types.int8, types.float32, types.float64, types.boolean)
OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lshift, operator.and_, operator.lt, operator.eq, operator.iadd, operator.neg,
)  # fmt: skip


def _resolved(function: Any, args: tuple[Any, ...]) -> Any:
    context = cpu_target.typing_context
    try:
        return context.resolve_function_type(context.resolve_value_type(function), args, {})
    except errors.TypingError:
        return "refused"


@pytest.mark.parametrize("function", OPERATORS, ids=lambda function: function.__name__)
def test_every_pair_of_numbers_has_numbas_signature(function: Any) -> None:
    count = 1 if function is operator.neg else 2
    pairs = list(product(NUMBERS, repeat=count))
    numba.njit(lambda: 0)()  # numba registers its operators when it compiles first
    plain = [_resolved(function, args) for args in pairs]
    with cheap_attempts():
        first = [_resolved(function, args) for args in pairs]
        again = [_resolved(function, args) for args in pairs]
    assert first == plain and again == plain
    assert any(signature != "refused" for signature in plain)


def test_numba_is_as_before_behind_it_also_after_an_error() -> None:
    before = BaseFunction.get_call_type, errors._termcolor_inst
    with pytest.raises(ZeroDivisionError), cheap_attempts():
        assert (BaseFunction.get_call_type, errors._termcolor_inst) != before
        raise ZeroDivisionError
    assert (BaseFunction.get_call_type, errors._termcolor_inst) == before


@device
def _mixed(a: Any, b: Any) -> Any:
    return (a + b) * a - b // 2 + (a > b)


@entry
def mixed(a: Any, b: Any) -> Any:
    return _mixed(a, b) + a


def test_one_entry_for_several_types() -> None:
    """What is known of one type is not taken for another."""
    for a, b in ((7, 3), (7, 2.5), (2.5, 2), (np.int8(100), np.int8(100)), (np.float32(0.1), 3)):
        expected = numba.njit(lambda a, b: (a + b) * a - b // 2 + (a > b) + a)(a, b)
        found = mixed(a, b)
        assert found == expected and type(found) is type(expected)


@entry
def wrong(a: Any) -> Any:
    return a + ("text", 1)


def test_what_no_operator_takes_is_still_refused() -> None:
    for _ in range(2):
        with pytest.raises(errors.TypingError, match="No implementation of function"):
            wrong(1)


def test_messages_of_attempts_have_no_colours() -> None:
    with cheap_attempts():
        assert str(errors.TypingError("no match")) == "no match"
