"""Tables: every argument of every Q-point against the function, within the bound."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits, largest_q_point
from tvm_npu.codegen.ops.functions import FUNCTIONS
from tvm_npu.codegen.ops.table import error_bound, make_table


def true(function: str, x: np.ndarray) -> np.ndarray:
    if function == "tanh":
        return np.tanh(x)
    sign = -1.0 if function == "complement" else 1.0
    return 1.0 / (1.0 + np.exp(np.minimum(-sign * x, 700.0)))


@pytest.mark.parametrize("element_bytes", [1, 2])
@pytest.mark.parametrize("function", ["sigmoid", "tanh", "complement"])
def test_every_argument(function: str, element_bytes: Literal[1, 2]) -> None:
    lowest, highest = element_limits(element_bytes)
    arguments = np.arange(lowest, highest + 1).astype(ELEMENT_TYPE[element_bytes])
    worst = 0.0
    for q_in in range(-6, 20):
        for q_out in (8 * element_bytes - 1, 8 * element_bytes - 2, 3):
            table = make_table(function, q_in, q_out, element_bytes)
            assert len(table.values) == (1025 if element_bytes == 2 else 257)
            assert table.values.dtype == ELEMENT_TYPE[element_bytes] and -15 <= table.shift <= 0
            made = table.look_up(arguments, element_bytes)
            assert made.dtype == arguments.dtype
            real = made.astype(np.float64) * 2.0**-q_out
            error = np.abs(real - true(function, arguments.astype(np.float64) * 2.0**-q_in)).max()
            bound = error_bound(function, q_in, q_out, element_bytes)
            assert error <= bound, (q_in, q_out, error, bound)
            worst = max(worst, error / bound)
    assert worst > 0.5, "a bound that is far too wide says nothing"


def test_the_bound_of_int16_is_a_few_steps() -> None:
    """Arguments from -8 to 8 (-16 to 16), results at Q-point 14."""
    assert error_bound("tanh", 12, 14, 2) < 1.5 * 2**-14
    assert error_bound("sigmoid", 11, 14, 2) < 1.3 * 2**-14
    assert error_bound("tanh", 5, 14, 2) < 1.5 * 2**-14, "a wide range is zoomed into"


ENDLESS = [
    "silu", "hard_sigmoid", "hard_swish", "gelu", "gelu_tanh", "erf", "elu", "selu", "softplus",
    "mish", "abs", "exp",
]  # fmt: skip


@pytest.mark.parametrize("element_bytes", [1, 2])
@pytest.mark.parametrize("function", ENDLESS)
def test_the_bound_holds_for_every_function(function: str, element_bytes: Literal[1, 2]) -> None:
    """Every argument, in ranges from 2**-14 to 2**16, at results that fit the type."""
    lowest, highest = element_limits(element_bytes)
    arguments = np.arange(lowest, highest + 1).astype(ELEMENT_TYPE[element_bytes])
    worst = 0.0
    for q_in in range(8 * element_bytes - 17, 8 * element_bytes + 14, 3):
        x = arguments.astype(np.float64) * 2.0**-q_in
        if function == "exp" and x.max() > 40:
            continue
        want = FUNCTIONS[function](x)
        q_out = largest_q_point(float(np.abs(want).max()), element_bytes)
        table = make_table(function, q_in, q_out, element_bytes)
        error = np.abs(table.look_up(arguments, element_bytes) * 2.0**-q_out - want).max()
        bound = error_bound(function, q_in, q_out, element_bytes)
        assert error <= bound, (q_in, q_out, error, bound)
        worst = max(worst, error / bound)
    assert worst > 0.3, "a bound that is far too wide says nothing"


def test_one_argument_by_hand() -> None:
    """tanh, Q-point 10 for arguments and 15 for results: 100 becomes 400 at Q-point 12."""
    table = make_table("tanh", 10, 15, 2)
    assert (table.shift, table.bits) == (-2, 6)
    j, f = (400 + 32768) >> 6, (400 + 32768) & 63
    low, high = int(table.values[j]), int(table.values[j + 1])
    assert low == round(np.tanh((j * 64 - 32768) / 4096) * 32768)
    expected = low + ((high - low) * f + 32 >> 6)
    assert table.look_up(np.array([100], np.int16), 2).tolist() == [expected]
