"""How the simulator's inner functions are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def device(function: Function) -> Function:
    """njit for functions that only compiled code calls: no wrappers, which halves the first
    compilation of the simulator."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return numba.njit(**options)(function)  # type: ignore[call-overload, no-any-return]
