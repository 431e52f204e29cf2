"""TVM's global functions are listed once while TVM is imported, not once a module.

81 modules of TVM ask for the names of all global functions, some 3,000, to find their own: a
quarter of the time that importing TVM takes. Inside `listed_once` the first answer is kept, and
what Python registers is added to it. Afterwards TVM's module is as TVM made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tvm_npu.runtime.after_import import AfterImport

REGISTRY = "tvm._ffi.registry"
_LIST, _LIBRARY = "list_global_func_names", "_LIB"


@contextmanager
def listed_once() -> Iterator[None]:
    """For a block that imports ``tvm``. A TVM without this registry is imported as ever."""
    kept: list[_Names] = []

    def keep(registry: ModuleType) -> None:
        if hasattr(registry, _LIST) and hasattr(registry, _LIBRARY):
            kept.append(_Names(registry))

    waiting = AfterImport(REGISTRY, keep)
    waiting.wait()
    try:
        yield
    finally:
        waiting.stop()
        for names in kept:
            names.restore()


class _Names:
    """The names of all global functions, in place of the registry's own answer."""

    def __init__(self, registry: ModuleType) -> None:
        self._registry = registry
        self._list: Callable[[], list[str]] = getattr(registry, _LIST)
        self._library = getattr(registry, _LIBRARY)
        self._names: dict[str, None] | None = None
        setattr(registry, _LIST, self.names)
        setattr(registry, _LIBRARY, self)

    def names(self) -> list[str]:
        if self._names is None:
            self._names = dict.fromkeys(self._list())
        return list(self._names)

    def restore(self) -> None:
        setattr(self._registry, _LIST, self._list)
        setattr(self._registry, _LIBRARY, self._library)

    def __getattr__(self, name: str) -> Any:
        """TVM's library, as which this stands for a while."""
        return getattr(self._library, name)

    def TVMFuncRegisterGlobal(self, name: Any, *arguments: Any) -> Any:
        failed = self._library.TVMFuncRegisterGlobal(name, *arguments)
        if not failed and self._names is not None:
            self._names[name.value.decode()] = None
        return failed
