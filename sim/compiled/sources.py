"""What a compiled function is made of: it, all functions that it reaches, and their constants.

numba looks names up when it compiles, and compiles what it finds into the caller. So does `Reach`:
from a function's code to the globals and the closure that its names mean, through modules, on to
the functions, classes, tables and numbers there. Nothing has to be listed by hand.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

_LIBRARIES = frozenset({*sys.stdlib_module_names, "numpy", "numba", "llvmlite"})
"""Their versions stand for them."""

_MAKERS = ("attempts.py", "borrowed.py", "cache.py", "decorators.py", "late.py", "views.py")

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic, np.dtype)


class Reach:
    """Collects what functions are made of.

    ``modules``: those of the functions and classes that were reached. Raises TypeError at an
    object whose meaning to numba is not known here.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._digest = hashlib.sha256()

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def _add(self, *parts: object) -> None:
        for part in parts:
            text = part if isinstance(part, bytes) else repr(part).encode()
            self._digest.update(len(text).to_bytes(8, "little"))
            self._digest.update(text)

    def _is_new(self, item: Any) -> bool:
        """Whether ``item`` is met for the first time; adds what stands for it otherwise."""
        number = self._seen.setdefault(id(item), len(self._seen))
        self._add("object", number)
        if number < len(self._alive):
            return False
        self._alive.append(item)
        return True

    def function(self, function: FunctionType, options: object = None) -> None:
        if not self._is_new(function):
            return
        self._note_module(function.__module__)
        self._add("function", options, function.__defaults__ is not None)
        self._code(function.__code__, function.__doc__)
        self.value(function.__defaults__)
        names = sorted(_names(function.__code__))
        for name in names:
            if name in function.__globals__:
                self._add(name)
                self._global(name, function, names)
            elif hasattr(builtins, name):
                self._add(name)
        for cell in function.__closure__ or ():
            self.value(cell.cell_contents, names)

    def _global(self, name: str, function: FunctionType, names: Iterable[str]) -> None:
        try:
            self.value(function.__globals__[name], names)
        except TypeError:
            if _is_global(name, function.__code__):
                raise

    def _code(self, code: CodeType, documentation: str | None) -> None:
        """All of it but line numbers and documentation."""
        self._add(
            code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_argcount, code.co_kwonlyargcount, code.co_flags,
        )  # fmt: skip
        for number, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                self._code(constant, None)
            elif number or constant != documentation:
                self.value(constant)

    def value(self, value: Any, names: Iterable[str] = ()) -> None:
        """``names`` are the attributes that the code may ask of it."""
        if isinstance(value, enum.Enum):
            self._add(value.name)
            self._class(type(value))
        elif isinstance(value, _PLAIN):
            self._add(type(value).__name__, value)
        elif isinstance(value, Dispatcher):
            self.function(value.py_func, sorted(value.targetoptions.items()))
        elif isinstance(value, FunctionType):
            self.function(value)
        elif isinstance(value, ModuleType):
            self._module(value, names)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, np.ndarray):
            self._add(value.dtype, value.shape, np.ascontiguousarray(value).tobytes())
        elif isinstance(value, (tuple, list)):
            self._add(type(value).__name__, len(value))
            if type(value) not in (tuple, list):
                self._class(type(value))
            for item in value:
                self.value(item)
        elif isinstance(value, (set, frozenset)):
            self._add(type(value).__name__, sorted(value, key=repr))
        elif isinstance(value, _Intrinsic):
            self.function(value._defn)
        elif isinstance(value, types.Type):
            self._add("numba type", repr(value))
        elif isinstance(value, (BuiltinFunctionType, np.ufunc)) or _is_of(type(value), _LIBRARIES):
            self._add(getattr(value, "__module__", None), getattr(value, "__name__", type(value)))
        else:
            raise TypeError(
                f"what numba makes of {value!r} is not known to its cache; compiled code can use "
                f"numbers, arrays, tuples, classes and functions"
            )

    def _module(self, module: ModuleType, names: Iterable[str]) -> None:
        self._add(module.__name__)
        if module.__name__.split(".")[0] not in _LIBRARIES:
            for name in names:
                if hasattr(module, name):
                    self._add(name)
                    self.value(getattr(module, name), names)

    def _class(self, kind: type) -> None:
        """An enumeration by its members, a named tuple by its fields, others by their text."""
        self._add(kind.__module__, kind.__qualname__)
        if _is_of(kind, _LIBRARIES) or not self._is_new(kind):
            return
        self._note_module(kind.__module__)
        if issubclass(kind, enum.Enum):
            self._add([(name, member.value) for name, member in kind.__members__.items()])
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            self._add(kind._fields)
            self.value(tuple(kind._field_defaults.items()))  # type: ignore[attr-defined]
        else:
            path = sys.modules[kind.__module__].__file__
            self._add(Path(path).read_bytes() if path else kind.__module__)

    def type(self, kind: types.Type) -> None:
        """The classes behind the type of an argument."""
        if isinstance(kind, (types.NamedTuple, types.NamedUniTuple)):
            self._class(kind.instance_class)
        if isinstance(kind, types.BaseTuple):
            for item in kind:  # type: ignore[attr-defined]
                self.type(item)

    def _note_module(self, name: str) -> None:
        if name.split(".")[0] not in _LIBRARIES:
            self.modules.add(name)


def reach_of(dispatcher: Any) -> Reach:
    """What the code of a function under `device` or `entry` is made of."""
    reach = Reach()
    reach.value(dispatcher)
    return reach


def digest(dispatcher: Any) -> str:
    """Changes with all that the function's machine code is made from, and with what makes it."""
    versions = f"numba {numba.__version__}, numpy {np.__version__}"
    return f"{versions}, {_makers()}, {reach_of(dispatcher).hexdigest()}"


@functools.cache
def _makers() -> str:
    """Changes with the modules beside this one that tell numba how to compile and what to save."""
    found = hashlib.sha256()
    for name in _MAKERS:
        found.update(Path(__file__).with_name(name).read_bytes())
    return found.hexdigest()


def signature_digest(signature: Iterable[types.Type]) -> str:
    """Changes with the classes of arguments, which numba knows by their names alone."""
    reach = Reach()
    for kind in signature:
        reach.type(kind)
    return reach.hexdigest()


def _is_of(kind: type, packages: frozenset[str]) -> bool:
    return kind.__module__.split(".")[0] in packages


def _is_global(name: str, code: CodeType) -> bool:
    """Whether ``name`` is looked up as a global, not as an attribute alone."""
    if name not in code.co_names:
        return any(_is_global(name, c) for c in code.co_consts if isinstance(c, CodeType))
    return any(
        step.argval == name and step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
        for step in dis.get_instructions(code)
    )


def _names(code: CodeType) -> set[str]:
    """Names that the code, and what is defined in it, looks up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found
