"""Numbers that callers give, checked before anything computes with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

from tvm_npu.sim.texts import shown

MOST = (1 << 63) - 1
"""What compiled code can count up to."""


def is_whole(given: object, low: int = 0, high: int = MOST) -> bool:
    """Whether ``given`` is a whole number of ``low`` to ``high``; True and False are none."""
    if not isinstance(given, Integral) or isinstance(given, bool):
        return False
    return low <= int(given) <= high


def is_finite(given: object) -> bool:
    """Whether ``given`` is a number that a float can be; True and False are none."""
    if not isinstance(given, Real) or isinstance(given, bool):
        return False
    try:
        return math.isfinite(given)
    except OverflowError:
        return False


def check_whole(
    given: object, name: str, error: Callable[[str], Exception], low: int = 0, high: int = MOST
) -> None:
    """Raises ``error`` for what is no whole number of ``low`` to ``high``."""
    if not is_whole(given, low, high):
        limits = f"at least {low}" if high == MOST else f"from {low:,} to {high:,}"
        raise error(f"{name} = {shown(given)}; {limits}, a whole number")
