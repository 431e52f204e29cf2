"""TVM's global functions are listed once while TVM is imported, not once a module.

81 modules of TVM ask for the names of all global functions, some 3,000, to find their own: a
quarter of the time that importing TVM takes. Inside `listed_once` the first answer is kept, and
what Python registers is added to it. Afterwards TVM's module is as TVM made it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

REGISTRY = "tvm._ffi.registry"
_LIST, _LIBRARY = "list_global_func_names", "_LIB"


@contextmanager
def listed_once() -> Iterator[None]:
    """For a block that imports ``tvm``. A TVM without this registry is imported as ever."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if finder.names is not None:
            finder.names.restore()


class _Finder(MetaPathFinder):
    """Finds the registry as others do, and lets `_Names` answer for it."""

    names: _Names | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != REGISTRY:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if hasattr(module, _LIST) and hasattr(module, _LIBRARY):
            self._finder.names = _Names(module)


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
