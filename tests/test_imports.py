"""Imports point one way: sim <- codegen <- runtime <- tvm_npu; TVM only where a door needs it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.sim.texts import tomllib

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "sim": "tvm_npu.sim",
    "codegen": "tvm_npu.codegen",
    "runtime": "tvm_npu.runtime",
    "tvm_npu": "tvm_npu",
}
DATA_OF_SIM = (
    "isa", "description", "units", "machine_file", "machine_parts", "kinds", "errors", "streams",
    "arithmetic", "compiled", "texts", "making_code", "frames", "whole_files",
    "bounded_files", "printable", "numbers",
    "nmp.machine", "nmp.xnmp", "nmp.rv32im", "nmp.filter_words", "nmp.scale_words",
    "snowflake.isa", "snowflake.machine", "snowflake.registers",
    "tiles.isa", "tiles.machine", "tiles.rates",
    "parts.pl330.isa", "parts.pl330.code", "parts.pl330.timing",
    "paths", "lazy",
)  # fmt: skip
ALLOWED = {
    "sim": ("tvm_npu.sim",),
    "codegen": ("tvm_npu.codegen", *(f"tvm_npu.sim.{name}" for name in DATA_OF_SIM)),
    "runtime": (
        "tvm_npu.runtime",
        "tvm_npu.sim",
        "tvm_npu.codegen.program",
        "tvm_npu.codegen.errors",
        "tvm_npu.codegen.fixed_point",
    ),
    "tvm_npu": ("tvm_npu",),
}
DOORS = ("tvm_npu/relay/", "tvm_npu/relax/")
NO_TVM = "tvm_npu/door/"
"""What all doors share: no TVM at all."""
RELAY_ONLY = ("tvm_npu/tvmc.py", "tvm_npu/__init__.py")
"""Outside of doors: TVM's command line, which speaks Relay, and the list of public names."""
TVM_IR = frozenset(
    {"relay", "relax", "ir", "tir", "tirx", "te", "topi", "script", "IRModule", "transform"}
)
MODULE_OF = {
    "apache_tvm": "tvm",
    "apache_tvm_ffi": "tvm_ffi",
    "pillow": "PIL",
    "pyelftools": "elftools",
    "xgboost_cpu": "xgboost",
    "xtc_tvm_python_bindings": "tvm",
}
"""Import names of requirements that are not called as they are imported."""


def sources() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    )


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, full dotted name) of everything imported, TVM attributes spelled out included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "tvm":
                yield node.lineno, f"tvm.{node.attr}"


def inside(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def violations(path: str, text: str) -> list[str]:
    """What ``text``, as the file ``path`` of the checkout, imports against the rules."""
    folder = path.split("/")[0]
    package = ".".join([FOLDERS[folder], *path.split("/")[1:-1]])
    found = []
    for line, name in imported_names(ast.parse(text), package):
        top, _, rest = name.partition(".")
        if top in ("codegen", "runtime", "sim"):
            found.append(f"{path}:{line}: {name}: spell it tvm_npu.{name}")
        elif top == "tvm_npu" and name != "tvm_npu.__version__":
            if not inside(name, ALLOWED[folder]):
                found.append(f"{path}:{line}: {folder}/ must not import {name}")
            elif inside(name, ("tvm_npu.relay", "tvm_npu.relax")):
                if not path.startswith(DOORS) and path not in RELAY_ONLY:
                    found.append(f"{path}:{line}: reach {name} through tvm_npu.door.door()")
        elif top == "tvm" and (folder not in ("tvm_npu", "runtime") or path.startswith(NO_TVM)):
            found.append(f"{path}:{line}: {path.rpartition('/')[0]}/ must not import tvm")
        elif top == "tvm" and rest.split(".")[0] in TVM_IR and not path.startswith(DOORS):
            found.append(f"{path}:{line}: TVM's IR ({name}) belongs to tvm_npu/relay, relax")
    return found


EXACT = ("codegen/nmp/plan/exact", "codegen/plan/loops/exact")
"""Packages of one public module: others use what the package itself gives."""


def inner_uses(path: str, text: str) -> list[str]:
    """What of the inside of an exact planner ``text``, as the file ``path``, imports."""
    found = []
    for folder in EXACT:
        package = "tvm_npu." + folder.replace("/", ".")
        inner = {f"{package}.{module.stem}" for module in (ROOT / folder).glob("[!_]*.py")}
        for line, name in imported_names(ast.parse(text), ""):
            if inside(name, tuple(inner)) and not path.startswith(folder + "/"):
                found.append(f"{path}:{line}: {name} is inside of {package}")
    return found


@pytest.mark.parametrize("path", sources())
def test_exact_planners_are_used_by_their_packages(path: str) -> None:
    assert not inner_uses(path, (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "from tvm_npu.codegen.nmp.plan.exact import search",
        "from tvm_npu.codegen.nmp.plan.exact.search import best_first",
        "import tvm_npu.codegen.plan.loops.exact.planner",
    ],
)
def test_uses_inside_of_exact_planners_are_found(text: str) -> None:
    assert len(inner_uses("codegen/nmp/plan/shortlist.py", text)) == 1
    assert not inner_uses("codegen/x.py", "from tvm_npu.codegen.nmp.plan.exact import Proof")


@pytest.mark.parametrize("path", sources())
def test_imports_follow_the_rules(path: str) -> None:
    assert not violations(path, (ROOT / path).read_text("utf-8"))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sim/x.py", "from tvm_npu.codegen import graph"),
        ("sim/isa/x.py", "from ...codegen.graph import Graph"),
        ("sim/x.py", "def f():\n    import tvm"),
        ("sim/x.py", "import importlib\nimportlib.import_module('tvm')"),
        ("codegen/x.py", "from tvm_npu.sim.nmp.simulator import run"),
        ("codegen/x.py", "from tvm_npu.sim import nmp"),
        ("codegen/x.py", "from tvm_npu.sim.tiles.simulator import TileSimulator"),
        ("codegen/x.py", "from tvm_npu.runtime.session import Session"),
        ("codegen/x.py", "from tvm_npu.relay import partition_for_npu"),
        ("codegen/x.py", "from sim.description import Part"),
        ("runtime/x.py", "from tvm_npu.codegen.compile import compile_graph"),
        ("runtime/x.py", "from tvm_npu.codegen.reference import run_fixed"),
        ("runtime/x.py", "from tvm import relay"),
        ("runtime/x.py", "import tvm\ntvm.relay.build()"),
        ("tvm_npu/cli/x.py", "import tvm.relay as r"),
        ("tvm_npu/x.py", "import tvm\nmod = tvm.IRModule()"),
        ("tvm_npu/door/x.py", "def f():\n    import tvm"),
        ("tvm_npu/door/x.py", "from tvm.runtime import NDArray"),
        ("tvm_npu/door/x.py", "from tvm_npu.relay import operands"),
        ("tvm_npu/cli/x.py", "from tvm_npu.relay import partition_for_npu"),
    ],
)
def test_the_check_finds(path: str, text: str) -> None:
    assert len(violations(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sim/isa/x.py", "from .table import Field\nfrom ..description import MachineDescription"),
        ("codegen/x.py", "import tvm_npu.sim.machine_file\nimport tvm_npu.sim.nmp.xnmp"),
        ("codegen/x.py", "from tvm_npu.sim.tiles.isa import TILE_ISA"),
        ("runtime/x.py", "import tvm\ntvm.register_func('a')\nfrom tvm_npu.codegen import program"),
        ("tvm_npu/relay/x.py", "from tvm import relay\nimport tvm\ntvm.IRModule()"),
        ("sim/x.py", "import tvm_npu.sim.machine_file\nfrom tvm_npu import __version__"),
    ],
)
def test_the_check_lets_pass(path: str, text: str) -> None:
    assert not violations(path, text)


def test_third_party_imports_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    modules: dict[str, set[str]] = {}
    for key, requirements in (
        ("core", project["dependencies"]),
        ("doors", [*extras["relay"], *extras["relax"]]),
        ("plot", extras["plot"]),
        ("report", extras["report"]),
        ("learn", extras["learn"]),
        ("sweep", [*extras["sweep"], *extras["dask"]]),
        ("compare", extras["compare"]),
        ("frames", extras["frames"]),
    ):
        names = {re.split(r"[^\w.-]", text)[0].lower().replace("-", "_") for text in requirements}
        modules[key] = {MODULE_OF.get(name, name) for name in names}
    standard = set(sys.stdlib_module_names) | {"tvm_npu", "tomllib"}
    for path in sources():
        declared = standard | modules["core"]
        if path.startswith(("tvm_npu/", "runtime/")):
            declared |= modules["doors"]
        if path.startswith("scripts/studies/"):
            declared |= modules["plot"]
        if path.startswith("tvm_npu/sweep/"):
            declared |= modules["sweep"]
        if path.startswith("tvm_npu/comparison/runners/"):
            declared |= modules["compare"]
        if path.startswith("codegen/tune/"):
            declared |= modules["learn"]
        if path == "sim/frames.py":
            declared |= modules["frames"]
        if path.startswith("tvm_npu/report/page/"):
            declared |= modules["report"]
        for line, name in imported_names(ast.parse((ROOT / path).read_text("utf-8")), "tvm_npu.x"):
            assert name.split(".")[0] in declared, f"{path}:{line}: {name} is not declared"


def test_door_codegen_and_sim_import_without_tvm() -> None:
    program = (
        "import importlib, pkgutil, sys\n"
        "sys.modules['tvm'] = None\n"
        "import tvm_npu.codegen, tvm_npu.door, tvm_npu.sim\n"
        "for package in (tvm_npu.codegen, tvm_npu.door, tvm_npu.sim):\n"
        "    for item in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(item.name)\n"
        "        print(item.name)\n"
        "assert not any(name.startswith('tvm.') for name in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 0, result.stderr
    found = set(result.stdout.split())
    assert {"tvm_npu.codegen.graph", "tvm_npu.door.models", "tvm_npu.sim.nmp.xnmp"} <= found
