"""The two decorators: `device` and `entry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock

from tvm_npu.sim.compiled.attempts import cheap_attempts
from tvm_npu.sim.compiled.cache import kept_on_disk
from tvm_npu.sim.compiled.late import late_machine_code
from tvm_npu.sim.making_code import making_code

Function = TypeVar("Function", bound=Callable[..., Any])


def device(function: Function, *, references: bool = True) -> Function:
    """njit for functions that only compiled code calls: no wrappers, and one version for all
    constant arguments instead of one for each. It is compiled with the `entry` that calls it.

    Without ``references`` arrays are not counted: for code that allocates nothing, up to the entry.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": references}
    return _one_version_a_type(_compiled(function, options))


def entry(function: Function, *, references: bool = True) -> Function:
    """njit for functions that Python calls: without the GIL, and cached on disk beside the
    function's module (or where ``NUMBA_CACHE_DIR`` says).

    The cache holds code of exactly this function and all that it reaches: see `sources.digest`.
    Code of anything else is compiled anew, and its files go.
    """
    dispatcher = _compiled(function, {"nogil": True, "no_cfunc_wrapper": True, "_nrt": references})
    dispatcher._cache = kept_on_disk(dispatcher)
    compile_now = dispatcher.compile

    def compile_late(signature: Any) -> Any:
        with global_compiler_lock, making_code(), cheap_attempts():
            with late_machine_code(dispatcher.targetctx.codegen()):
                return compile_now(signature)

    dispatcher.compile = compile_late
    return dispatcher


def _compiled(function: Any, options: dict[str, Any]) -> Any:
    return numba.njit(error_model="numpy", **options)(function)  # type: ignore[call-overload]


def _one_version_a_type(dispatcher: Any) -> Any:
    """Makes compiled callers call ``dispatcher`` with the types of constants, not their values."""
    choose = dispatcher.get_call_template

    def choose_without_constants(args: Any, kws: Any) -> Any:
        wide = {name: _widened(kind) for name, kind in kws.items()}
        return choose(tuple(_widened(kind) for kind in args), wide)

    dispatcher.get_call_template = choose_without_constants
    return dispatcher


def _widened(kind: Any) -> Any:
    kind = types.unliteral(kind)
    return kind.dtype if isinstance(kind, types.IntEnumMember) else kind
