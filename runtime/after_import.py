"""Something to do when a module has been imported, by whomever, without importing it here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


class AfterImport(MetaPathFinder):
    """Finds module ``name`` as those behind it do, and calls ``action`` once with what they have
    loaded.

    Waits from `wait` on until the module is there, or until `stop`.
    """

    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._action = action

    def wait(self) -> None:
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else finders
        specs = (finder.find_spec(name, path, target) for finder in behind)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def loaded(self, module: ModuleType) -> None:
        self.stop()
        self._action(module)


class _Loader(Loader):
    def __init__(self, loader: Loader, waiting: AfterImport) -> None:
        self._loader = loader
        self._waiting = waiting

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._waiting.loaded(module)


def when_imported(name: str, action: Action) -> None:
    """Calls ``action`` with module ``name``: now, or when somebody has imported it."""
    there = sys.modules.get(name)  # None, too, where somebody says that it cannot be imported
    if there is not None:
        action(there)
    else:
        AfterImport(name, action).wait()
