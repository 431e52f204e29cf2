"""The glossary: one entry a word, code that exists, and every abbreviation of the pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = "docs/glossary.md"
PAGES = (
    "README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")),
)
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
ABBREVIATION = re.compile(r"(?<![\w.&/-])[A-Z][A-Z0-9]+(?=s?\b)(?!-\d)")

KNOWN = frozenset(
    "ABI API ARM ASCII AVX AVX2 CPU CSV DDR DRAM ELF FIFO FPGA GB GEMM GPU HTML JPEG JSON KB MB "
    "PNG RISC SHA TOML TVM".split()
)
"""Abbreviations that every reader of such pages knows."""
NAMES = frozenset(
    "A57 CHANGELOG CIFAR DDI FAIL INT4 LCTES LICENSE LLVM MNIST NCHW OIHW IOHW ONNX SIGKILL TX2 "
    "TVMNPUP UINT4 VGG VGG16 XC7Z045 XNNPACK XCKU060 YOLO".split()
)
"""Names of products, models, files, layouts and conferences."""
INSTRUCTION_SETS = tuple(page for page in PAGES if page.startswith("docs/isa-"))
"""Pages that define instructions and registers, which other pages then name."""


def entries() -> list[tuple[str, str, str]]:
    text = (ROOT / GLOSSARY).read_text("utf-8")
    rows = [row for row in ROW.findall(text) if row[0] != "word" and not set(row[0]) <= set("-| ")]
    return [(word, meaning, code) for word, meaning, code in rows]


def words() -> list[str]:
    return [word.strip() for entry in entries() for word in entry[0].split(",")]


def defined_names(path: Path) -> set[str]:
    """Classes, functions and variables of a module or of its classes."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def in_code(page: str) -> set[str]:
    """Names in the code of a page, and their parts: IN_MEM_0 defines IN."""
    return set(re.findall(r"[A-Z][A-Z0-9]+", " ".join(CODE.findall(read(page)))))


def of_instruction_sets() -> set[str]:
    """What the tables of instructions and registers name; instructions are in lower case there."""
    rows = [row for page in INSTRUCTION_SETS for row in re.findall(r"^\|.*$", read(page), re.M)]
    code = " ".join(name for row in rows for name in re.findall(r"`[^`]*`", row))
    return {name.upper() for name in re.findall(r"\w+", code)} | set(
        re.findall(r"[A-Z][A-Z0-9]+", " ".join(rows))
    )


def test_there_are_words() -> None:
    field = "TLE TLT DME IFM OFM IS OS WS KS COOP INDP multicast halo stage window kernel"
    own = "chain cascade calibrate transfer cut spread expression primitive"
    assert set(f"{field} {own}".split()) <= set(words())


def test_one_entry_a_word() -> None:
    found = [word.lower() for word in words()]
    assert [word for word in found if found.count(word) > 1] == []


@pytest.mark.parametrize("entry", [e for e in entries() if e[2]], ids=lambda entry: entry[0])
def test_code_exists(entry: tuple[str, str, str]) -> None:
    match = re.fullmatch(r"`([\w/.]+)`(?:: `(\w+)`)?", entry[2])
    assert match, f"{entry[0]}: {entry[2]!r} is not a path, or a path and a name"
    path, name = match.groups()
    assert (ROOT / path).exists(), path
    if name:
        assert name in defined_names(ROOT / path), f"{path} does not define {name}"


@pytest.mark.parametrize("page", PAGES)
def test_abbreviations_are_in_the_glossary(page: str) -> None:
    listed = {part for word in words() for part in re.findall(r"[\w-]+", word)}
    text = CODE.sub("", read(page))
    if page in INSTRUCTION_SETS:
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    used = set(ABBREVIATION.findall(text))
    defined = listed | KNOWN | NAMES | in_code(page) | of_instruction_sets()
    assert not used - defined, f"{page}: {sorted(used - defined)} have no entry in {GLOSSARY}"
