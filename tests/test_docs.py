"""The pages tell the truth: their Python runs, their links exist, their tables match the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from tests.patience import PATIENCE_S
from tvm_npu.codegen.program import format as program
from tvm_npu.door.document import rules_document
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.tiles.machine import TileMachine

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
)
TUTORIALS = tuple(page for page in PAGES if page.startswith("docs/tutorials/"))
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE_ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def with_python() -> list[str]:
    """Tutorials run in tests/test_tutorials.py."""
    return [page for page in PAGES if page not in TUTORIALS and PYTHON_BLOCK.search(read(page))]


def test_readme_and_usage_have_python() -> None:
    assert {"README.md", "docs/usage.md"} <= set(with_python())


@pytest.mark.parametrize("page", with_python())
def test_python_runs(page: str) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    blocks = PYTHON_BLOCK.findall(read(page))
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == 0, f"{page}:\n{result.stderr}"
    if page == "README.md":
        read_digit, written = re.search(r"read (\d) written (\d)", result.stdout).groups()  # type: ignore[union-attr]
        assert read_digit == written
        assert re.search(r"main_0: [\d,]+ cycles, [\d.]+ us", result.stdout)


def test_commands_exist() -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    from tvm_npu.cli import main

    named = {name for page in PAGES for name in re.findall(r"^tvm-npu (\S+)", read(page), re.M)}
    assert {"profile", "compile", "--help"} <= named
    for name in sorted(named - {"--help"}):
        assert main([name, "--help"]) == 0, name


def test_the_menu_of_the_site_has_every_page() -> None:
    """`scripts/docs` builds the site, strictly; what it leaves out is quick to see."""
    entries = re.findall(r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", read("mkdocs.yml"), re.MULTILINE)
    beside = set(re.findall(r'": "([\w-]+\.md)"', read("scripts/docs_pages.py")))
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")}
    assert sorted(entries) == sorted(pages | beside), "the menu is in mkdocs.yml"


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_exist(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith("https://"):
            assert (ROOT / page).parent.joinpath(target).is_file(), target
    folders = "codegen|docs|runtime|scripts|sim|tests|tvm_npu"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path


def rows(page: str) -> list[list[str]]:
    """Cells of all tables, without heads' rulers."""
    found = []
    for row in TABLE_ROW.findall(read(page)):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        if not set("".join(cells)) <= {"-"}:
            found.append(cells)
    return found


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result.update(flat(value, f"{prefix}{key}."))
        else:
            result[prefix + key] = value
    return result


def declared(model: type[BaseModel], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, info in model.model_fields.items():
        tables = sorted(models_in(info.annotation), key=lambda table: len(table.model_fields))
        if not tables:
            keys.append(prefix + key)
        for table in tables[::-1]:  # the larger of two that exclude each other first
            keys += [name for name in declared(table, f"{prefix}{key}.") if name not in keys]
    return keys


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Tables in a field's type: it may be left out, or be one of several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for option in get_args(annotation) for model in models_in(option)]


MACHINES = {"nmp-4x8": NmpMachine, "setup-a": TileMachine, "snowflake-1cc": SnowflakeMachine}
"""Built-in machines and what describes them; each has a table on the page."""


def machine_rows(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    inside = False
    for cells in rows("docs/machine-file.md"):
        if cells[0] == "key":
            inside = cells[1] == name
        elif inside:
            found[cells[0].strip("`")] = cells[1:]
    return found


@pytest.mark.parametrize(("name", "model"), MACHINES.items())
def test_machine_keys_are_those_of_the_model(name: str, model: type[BaseModel]) -> None:
    keys = list(machine_rows(name))
    assert sorted(keys) == sorted(declared(model))
    tables = list(dict.fromkeys(key.split(".")[0] for key in keys))
    assert tables == list(dict.fromkeys(key.split(".")[0] for key in declared(model)))


@pytest.mark.parametrize("name", MACHINES)
def test_machine_values_are_those_of_the_file(name: str) -> None:
    values = flat(load_machine(name).model_dump())
    for key, (shown, *_) in machine_rows(name).items():
        if key != "description":
            actual = values.get(key, "-")
            assert shown == (f"{actual:g}" if isinstance(actual, float) else str(actual)), key


@pytest.mark.parametrize(
    ("name", "least"), [("nmp-4x8", 10), ("setup-a", 6), ("snowflake-1cc", 12)]
)
def test_machine_bounds_are_those_of_the_model(name: str, least: int) -> None:
    """A number range in the table is accepted at its ends and refused beyond them."""
    checked = 0
    for key, (shown, allowed, _) in machine_rows(name).items():
        ends = re.match(r"(\d+) to (\d+)(?:, multiples of (\d+))?$", allowed)
        if ends is None or key.startswith("dram.") or shown == "-":
            continue
        low, high, step = (int(text or 1) for text in ends.groups())
        for value, good in ((low, True), (high, True), (low - step, False), (high + step, False)):
            assert accepts(name, key, value) == good, f"{key} = {value}"
        if step > 1:
            assert not accepts(name, key, low + 1), key
        checked += 1
    assert checked >= least


def accepts(name: str, key: str, value: int) -> bool:
    values = load_machine(name).model_dump()
    *parents, last = key.split(".")
    part = values
    for parent in parents:
        part = part[parent]
    part[last] = value
    try:
        machine_from_dict(values)
    except ValueError:
        return False
    return True


def test_program_format_is_the_codes() -> None:
    text = read("docs/program-format.md")
    cells = {row[0].replace("`", "") for row in rows("docs/program-format.md")}
    keys = {name for cell in cells for name in cell.split(", ")}
    assert set(program._Header.model_fields) <= keys
    assert set(program.SECTIONS) <= keys
    assert [row[0] for row in rows("docs/program-format.md")[1:6]] == ["8", "4", "4", "8", "32"]
    assert program.PROLOGUE.size == 8 + 4 + 4 + 8 + 32
    assert f"format version: {program.FORMAT_VERSION}" in text
    assert program.MAGIC == b"TVMNPUP\n" and "`TVMNPUP` and a newline" in text
    assert f"{program.RELOCATION.itemsize} bytes each" in text
    assert f"{program.DEBUG.itemsize} bytes an instruction" in text
    assert [segment.value for segment in program.SEGMENTS] == [
        "code", "constants", "activations", "states",
    ]  # fmt: skip


def test_rules_page_is_up_to_date() -> None:
    assert read("docs/rules.md") == rules_document(), (
        "run: python -m tvm_npu.door.document docs/rules.md"
    )
