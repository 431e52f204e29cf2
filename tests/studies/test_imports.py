"""Studies are apart: each knows the harness, what is shared, and the product; nobody knows them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_imports import MODULE_OF, TVM_IR, imported_names
from tvm_npu.sim.texts import tomllib

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "scripts" / "studies"
KNOWN = {"harness": {"harness"}, "shared": {"harness", "shared"}}
"""Of `studies`, what these two import; a study imports both and itself."""


def sources() -> list[str]:
    return sorted(str(path.relative_to(STUDIES)) for path in STUDIES.rglob("*.py"))


def violations(path: str, text: str, declared: set[str]) -> list[str]:
    folder = path.split("/")[0]
    allowed = KNOWN.get(folder, {"harness", "shared", folder})
    found = []
    for line, name in imported_names(ast.parse(text), f"studies.{folder}"):
        top, *rest = name.split(".")
        if top == "studies" and rest and rest[0] not in allowed:
            found.append(f"{path}:{line}: {folder} must not import {name}")
        elif top in ("sim", "codegen", "runtime"):
            found.append(f"{path}:{line}: {name}: spell it tvm_npu.{name}")
        elif top == "tvm" and rest and rest[0] in TVM_IR:
            found.append(f"{path}:{line}: TVM's IR ({name}) belongs to tvm_npu")
        elif top not in declared:
            found.append(f"{path}:{line}: {name} is not declared")
    return found


@pytest.fixture(scope="module")
def declared() -> set[str]:
    import sys

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"]]
    for extra in ("relay", "plot", "learn", "conformance"):
        requirements += extras[extra]
    names = {re.split(r"[^\w.-]", text)[0].lower().replace("-", "_") for text in requirements}
    modules = {MODULE_OF.get(name, name) for name in names}
    # pydantic brings its core along.
    return {*sys.stdlib_module_names, *modules, "tvm_npu", "studies", "pydantic_core"}


PEERS = {
    "mappers/runners/accelforge_runner.py": {"accelforge"},
    "mappers/runners/zigzag_runner.py": {"yaml", "zigzag"},
}
"""Scripts that run in environments of their own, and what those have."""


@pytest.mark.parametrize("path", sources())
def test_studies_are_apart(path: str, declared: set[str]) -> None:
    declared = declared | PEERS.get(path, set())
    assert not violations(path, (STUDIES / path).read_text("utf-8"), declared)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("harness/x.py", "from studies.tso.study import STUDY"),
        ("harness/x.py", "from studies.shared import networks"),
        ("shared/x.py", "import studies.planning.bounds"),
        ("tso/x.py", "from studies.planning.bounds import roofs"),
        ("tso/x.py", "from tvm import relay"),
        ("tso/x.py", "from codegen.plan import planner"),
        ("tso/x.py", "import pandas"),
    ],
)
def test_the_check_finds(path: str, text: str, declared: set[str]) -> None:
    assert len(violations(path, text, declared)) == 1


def test_every_folder_is_a_study() -> None:
    folders = {path.parent.name for path in STUDIES.glob("*/__init__.py")} - set(KNOWN)
    assert folders == {path.parent.name for path in STUDIES.glob("*/study.py")} - set(KNOWN)
    assert len(folders) == 20
