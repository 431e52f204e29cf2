"""What a compiled function's digest knows."""

from __future__ import annotations

import importlib
import pkgutil
import types
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numba.core.event
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import tvm_npu.codegen
import tvm_npu.sim
from tvm_npu.sim.compiled import device, entry, sources
from tvm_npu.sim.compiled.cache import DigestCache
from tvm_npu.sim.compiled.late import LateLibrary
from tvm_npu.sim.compiled.sources import digest, reach_of, signature_digest


def dispatchers() -> dict[str, Any]:
    """Every compiled function of sim and codegen by its full name."""
    found = {}
    for package in (tvm_npu.codegen, tvm_npu.sim):
        for item in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            for value in vars(importlib.import_module(item.name)).values():
                if isinstance(value, Dispatcher):
                    function = value.py_func
                    found[f"{function.__module__}.{function.__qualname__}"] = value
    return found


DISPATCHERS = dispatchers()
ENTRIES = {
    name: value for name, value in DISPATCHERS.items() if isinstance(value._cache, DigestCache)
}


def test_there_is_one_cache_for_all() -> None:
    """No function uses numba's own cache, which sees one file."""
    assert len(ENTRIES) >= 5
    for name, value in DISPATCHERS.items():
        kind = type(value._cache).__name__
        assert kind in ("NullCache", "DigestCache"), f"{name} is cached by {kind}"


@pytest.mark.parametrize("name", ENTRIES)
def test_every_compiled_function_below_an_entry_is_in_its_digest(name: str) -> None:
    """Found by the names in the code alone, without `sources`."""
    modules, waiting, seen = set(), [ENTRIES[name].py_func], set()
    while waiting:
        function = waiting.pop()
        modules.add(function.__module__)
        for used in function.__code__.co_names:
            value = function.__globals__.get(used)
            if isinstance(value, Dispatcher) and value not in seen:
                seen.add(value)
                waiting.append(value.py_func)
    assert modules <= reach_of(ENTRIES[name]).modules


def test_what_numba_compiles_is_in_the_digest() -> None:
    """numba itself says which functions it compiles."""

    class Listener(numba.core.event.Listener):
        def on_start(self, event: Any) -> None:
            compiled.append(event.data["dispatcher"].py_func)

        def on_end(self, event: Any) -> None:
            pass

    @entry
    def run(rows: Any, extent: int) -> float:
        return helper(rows) + extent

    run._cache.disable()  # type: ignore[attr-defined]
    compiled: list[types.FunctionType] = []
    with numba.core.event.install_listener("numba:compile", Listener()):
        assert run(np.array([2.0, 5.0]), 3) == 10.0
    own = {f.__module__ for f in compiled if not f.__module__.startswith("numba")}
    assert [f.__name__ for f in compiled if f.__module__ == __name__] == ["run", "helper"]
    assert own <= reach_of(run).modules


@device
def helper(rows: Any) -> float:
    return float(rows.sum())


class Level(IntEnum):
    LOW = 1


class Pair(NamedTuple):
    a: int
    b: int


def plain() -> int:
    return 1


VALUES = [
    1, 2, True, 1.0, "1", b"1", None, (1,), (1, 1), [1], np.array([1]), np.array([1.0]),
    np.array([[1]]), Level.LOW, Pair(1, 1), frozenset({1}), np.int64(1), np.float32(1), max, min,
    np.add, Level, Pair, helper, plain, np,
]  # fmt: skip


def digest_with(value: Any) -> str:
    def run() -> Any:
        return value

    return digest(entry(run))


def test_constants_of_every_kind_count() -> None:
    digests = [digest_with(value) for value in VALUES]
    assert len(set(digests)) == len(VALUES)
    assert digests == [digest_with(value) for value in VALUES]


class Unknown:
    a = 1


unknown, a = Unknown(), Unknown()


def test_what_it_cannot_know_is_told() -> None:
    @entry
    def run() -> Any:
        return unknown

    with pytest.raises(TypeError, match="is not known to its cache"):
        digest(run)


def test_attributes_are_no_globals() -> None:
    @entry
    def run(pair: Pair) -> Any:
        return pair.a

    digest(run)


def test_fields_of_arguments_count() -> None:
    """Two classes of one name whose fields have the same types are one type to numba's cache."""

    def of(names: list[str]) -> str:
        kind = NamedTuple("Kind", [(name, int) for name in names])  # type: ignore[misc]
        return signature_digest([numba.typeof((kind(1, 2), 3))])

    assert of(["a", "b"]) == of(["a", "b"]) != of(["b", "a"])


def test_inner_functions_are_not_made_machine_code() -> None:
    @entry
    def run(rows: Any) -> float:
        return helper(rows) + 1

    run._cache.disable()  # type: ignore[attr-defined]
    assert run(np.array([2, 5], np.int16)) == 8.0
    library = next(reversed(helper.overloads.values())).library  # type: ignore[attr-defined]
    assert isinstance(library, LateLibrary) and not library._is_made
    assert run.overloads[next(iter(run.overloads))].library._is_made  # type: ignore[attr-defined]


def test_late_functions_can_be_called_from_other_compiled_code() -> None:
    @entry
    def first(rows: Any) -> float:
        return helper(rows)

    @numba.njit
    def second(rows: Any) -> float:
        return 2 * helper(rows)

    first._cache.disable()  # type: ignore[attr-defined]
    rows = np.array([2, 5], np.uint32)
    assert first(rows) == 7.0 and second(rows) == 14.0


def test_exceptions_of_late_functions_arrive() -> None:
    """They need the environment of the function that raises them."""

    @numba.njit
    def strict(value: int) -> int:
        if value < 0:
            raise ValueError("below zero", value)
        return value

    @entry
    def run(value: int) -> int:
        return strict(value) + 1

    run._cache.disable()  # type: ignore[attr-defined]
    assert run(3) == 4
    with pytest.raises(ValueError, match="below zero"):
        run(-1)


def test_what_makes_code_is_in_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(sources.__file__).parent
    reached = set().union(*(reach_of(found).modules for found in ENTRIES.values()))
    package = sources.__name__.rpartition(".")[0]
    in_code = {"arithmetic", "arrays", "matmul", "reductions", "slices", "spans"}
    assert {f"{package}.{name}" for name in in_code} <= reached
    plain = {"__init__", "listening", "sources", "steps"}  # neither compiled nor compiling
    rest = {path.stem for path in folder.glob("*.py")} - in_code - plain
    assert {f"{name}.py" for name in rest} == set(sources._MAKERS)
    before = digest(next(iter(ENTRIES.values())))
    monkeypatch.setattr(sources, "_makers", lambda: "made otherwise")
    assert digest(next(iter(ENTRIES.values()))) != before
