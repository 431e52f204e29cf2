"""How the simulator's inner functions are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import types

Function = TypeVar("Function", bound=Callable[..., Any])


def device(function: Function) -> Function:
    """njit for functions that only compiled code calls: no wrappers, and one version for all
    constant arguments instead of one for each, which together make the first compilation of the
    simulator three times as fast."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    dispatcher: Any = numba.njit(**options)(function)  # type: ignore[call-overload]
    choose = dispatcher.get_call_template

    def choose_without_constants(args: Any, kws: Any) -> Any:
        wide = {name: types.unliteral(kind) for name, kind in kws.items()}
        return choose(tuple(types.unliteral(kind) for kind in args), wide)

    dispatcher.get_call_template = choose_without_constants
    return dispatcher  # type: ignore[no-any-return]
