"""How the simulators' inner functions are compiled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
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


def source_digest(paths: Iterable[Path]) -> str:
    """Digest of the sources that compiled code is made from, and of what compiles it."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(paths):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def entry(sources: Iterable[Path]) -> Callable[[Function], Function]:
    """njit, cached on disk beside the function's module. The function's name gets a digest of
    ``sources``, so that the cache, which looks at one file only, never serves code made from
    others."""

    def compile_entry(function: Function) -> Function:
        function.__qualname__ = f"{function.__qualname__}_{source_digest(sources)}"
        options = {"cache": True, "nogil": True, "error_model": "numpy"}
        return numba.njit(**options)(function)  # type: ignore[call-overload,no-any-return]

    return compile_entry
