"""Machine code is made once for each function that Python calls, not for each function in it.

numba optimises every function that it compiles together with all that it calls, and makes machine
code of the result, before it links that into the caller and does the same there: a leaf of a call
tree is optimised as often as the tree is deep. Under `late_machine_code` a function is only linked;
it is optimised, and made machine code, when somebody asks for its address or its object code, which
is the outermost function. Half of the time that a simulator takes to compile went there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite.binding import ffi, parse_bitcode
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import lookup_environment

ENVIRONMENT_PREFIX = "_ZN08NumbaEnv"


class LateLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A code library of numba that is optimised and made machine code on demand."""

    _is_made = False
    _is_making = False
    _bitcode: bytes | None = None

    def _optimize_final_module(self) -> None:
        if self._is_making:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self._is_making or self._is_made:
            super()._finalize_final_module()
        else:
            self._finalize_dynamic_globals()
            self._finalized = True

    def _set_compiled_object(self, value: Any) -> None:
        """What comes from the cache on disk is machine code."""
        super()._set_compiled_object(value)
        self._is_made = True

    def _make(self) -> None:
        self._ensure_finalized()
        if self._is_made or self._is_making:
            return
        self._is_making = True
        self._optimize_final_module()
        self._final_module.verify()
        self._dynamic_globals.clear()
        self._finalize_final_module()
        self._is_making, self._is_made = False, True
        for variable in self._final_module.global_variables:
            if variable.name.startswith(ENVIRONMENT_PREFIX):
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self._codegen.set_env(  # type: ignore[attr-defined]
                        variable.name, environment
                    )

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        if not self._is_made and not self._defines(name):
            return 0
        self._make()
        return super().get_pointer_to_function(name)  # type: ignore[no-any-return]

    def _defines(self, name: str) -> bool:
        try:
            return not self._final_module.get_function(name).is_declaration
        except NameError:
            return False

    def serialize_using_object_code(self) -> Any:
        """numba's own, and the names that the code defines: with them `_unserialize` need not read
        the bitcode, which only callers in other compiled code want."""
        self._make()
        name, kind, content = super().serialize_using_object_code()
        module = self._final_module
        defined = {
            item.name
            for item in (*module.functions, *module.global_variables)
            if not item.is_declaration
        }
        return name, kind, (*content, sorted(defined))

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        name, kind, content = state
        if kind != "object":
            return super()._unserialize(codegen, state)
        object_code, bitcode, defined = content
        library = codegen.create_library(name)
        library.enable_object_caching()
        library._set_compiled_object(object_code)
        library._bitcode = bitcode
        library._finalize_final_module()
        codegen._engine._defined_symbols.update(defined)
        return library

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        if self._shared_module is None and self._bitcode is not None:
            self._shared_module = parse_bitcode(self._bitcode)
        return super()._get_module_for_linking()

    def serialize_using_bitcode(self) -> Any:
        self._make()
        return super().serialize_using_bitcode()

    @property
    def codegen(self) -> Any:
        return _LateCodegen(self, self._codegen)


class _LateCodegen:
    """A library's code generator, but environments of functions have no address before `_make`."""

    def __init__(self, library: LateLibrary, codegen: Any) -> None:
        self._library = library
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        if self._library._is_made:
            self._codegen.set_env(name, environment)


@contextmanager
def late_machine_code(codegen: Any) -> Iterator[None]:
    """Libraries that ``codegen`` creates inside are late. For holders of numba's compiler lock.

    Nobody is told of each of the hundred thousand calls into LLVM, as numba tells every function
    that waits for another to be compiled: one second of the NMP's simulator went there."""
    before, lock = codegen._library_class, ffi.lib._lock
    listeners, lock._cblist = lock._cblist, []
    codegen._library_class = LateLibrary
    try:
        yield
    finally:
        codegen._library_class, lock._cblist = before, listeners
