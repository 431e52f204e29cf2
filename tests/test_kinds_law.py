"""A kind of machine is a room: who may name its modules and classes. Kinds are found by folder."""

from __future__ import annotations

import ast
from functools import lru_cache

import pytest

from tests.test_imports import ROOT, imported_names, sources
from tvm_npu.codegen import backends
from tvm_npu.sim import kinds

KINDS = sorted({path.parent.name for path in ROOT.glob("sim/*/kind.py")})
ROOMS = tuple(f"{folder}/{kind}/" for folder in ("sim", "codegen") for kind in KINDS)
LISTS = ("sim/kinds.py", "codegen/backends.py")
"""The registries, which name every kind once, as text."""
PLANS = frozenset({"LoopPlan", "LoopMachine"})
"""Neutral, but what a planner answers is for its machine's backend to look at."""


def room(path: str) -> str | None:
    """The kind in whose room a file is."""
    return path.split("/")[1] if path.startswith(ROOMS) else None


def foreign_imports(path: str, text: str) -> list[str]:
    """Modules of kinds that ``text``, as the file ``path``, imports without being of that kind."""
    package = ".".join(["tvm_npu", *path.split("/")[:-1]])
    found = []
    for line, name in imported_names(ast.parse(text), package):
        parts = name.split(".")
        names_a_kind = parts[:1] == ["tvm_npu"] and parts[1:2] in (["sim"], ["codegen"])
        if names_a_kind and len(parts) > 2 and parts[2] in KINDS and parts[2] != room(path):
            found.append(f"{path}:{line}: {name} belongs to the room of {parts[2]!r}")
    return found


def classes(inside_rooms: bool) -> frozenset[str]:
    """Names of classes that are defined in rooms, or outside of them."""
    found = set()
    for path in sources():
        if (room(path) is not None) == inside_rooms:
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return frozenset(found)


@lru_cache(maxsize=1)
def classes_of_kinds() -> frozenset[str]:
    """Descriptions, plans, questions, emitters; names that neutral classes have, too, say
    nothing."""
    return (classes(True) - classes(False)) | PLANS


def kind_tests(path: str, text: str) -> list[str]:
    """Where ``text`` asks which kind something is: `isinstance` of a class of a kind, and
    comparisons of an ``isa``."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            named = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
            named |= {one.attr for one in ast.walk(node.args[1]) if isinstance(one, ast.Attribute)}
            if theirs := named & classes_of_kinds():
                found.append(f"{path}:{node.lineno}: isinstance of {', '.join(theirs)}")
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(isinstance(one, ast.Attribute) and one.attr == "isa" for one in sides):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return found


def outside() -> list[str]:
    return [path for path in sources() if room(path) is None and path not in LISTS]


def test_the_kinds_of_the_folders_are_those_of_the_registries() -> None:
    assert set(KINDS) == set(kinds.BUILT_IN)
    rooms = {path.parent.name for path in ROOT.glob("codegen/*/backend.py")}
    assert rooms == set(backends.BUILT_IN) <= set(KINDS)


@pytest.mark.parametrize("path", sources())
def test_rooms_import_no_other_room_and_nobody_imports_rooms(path: str) -> None:
    found = foreign_imports(path, (ROOT / path).read_text("utf-8"))
    assert not found


@pytest.mark.parametrize("path", outside())
def test_nobody_asks_which_kind(path: str) -> None:
    assert not kind_tests(path, (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("codegen/compile.py", "from tvm_npu.codegen.nmp.plan.check import check_plan"),
        ("codegen/tiles/plan/x.py", "from tvm_npu.codegen.nmp.plan.check import check_plan"),
        ("codegen/tiles/x.py", "from tvm_npu.sim.nmp.machine import NmpMachine"),
        ("codegen/tiles/x.py", "def f():\n    from ..nmp.plan import check"),
        ("sim/x.py", "import tvm_npu.sim.tiles.machine"),
        ("tvm_npu/cli/x.py", "import importlib\nimportlib.import_module('tvm_npu.sim.nmp.elf')"),
        ("runtime/x.py", "from tvm_npu.sim import nmp"),
    ],
)
def test_foreign_imports_are_found(path: str, text: str) -> None:
    assert len(foreign_imports(path, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(machine, NmpMachine)",
        "isinstance(plan, ConvPlan | Infeasible)",
        "isinstance(plan, (int, plans.LoopPlan))",
        "machine.isa == 'tiles'",
        "x = 1 if 'nmp' != program.machine.isa else 2",
        "machine.isa in ('nmp', 'tiles')",
    ],
)
def test_questions_about_the_kind_are_found(text: str) -> None:
    assert len(kind_tests("codegen/x.py", text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("codegen/nmp/plan/x.py", "from tvm_npu.sim.nmp.machine import NmpMachine"),
        ("codegen/tiles/x.py", "from tvm_npu.codegen.plan.loops.plan import LoopPlan"),
        ("codegen/x.py", "from tvm_npu.sim.machine_file import load_machine"),
    ],
)
def test_what_is_allowed_passes(path: str, text: str) -> None:
    assert not foreign_imports(path, text)


def test_a_room_is_a_folder() -> None:
    assert {room("sim/nmp/x.py"), room("codegen/tiles/plan/x.py")} == {"nmp", "tiles"}
    assert room("codegen/plan/x.py") is room("sim/kinds.py") is None
