"""The questions of docs/report.md: every answer stands where the page says."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.report.small_runs import profiled, recorded
from tvm_npu.report.page import make_page
from tvm_npu.report.table import rows

pytest.importorskip("bokeh")
pytest.importorskip("jinja2")

PAGE = Path(__file__).parents[2] / "docs" / "report.md"
ROW = re.compile(r"^\| (.+\?) \| (.+) \| (.+) \|$", re.MULTILINE)
ELSEWHERE = frozenset({
    "--trace", "--json", "dma", "tvm-npu accuracy --json", "[energy]", "shares()",
    "tvm_npu.profile",
})  # fmt: skip
"""Words in code that are no columns or keys: options, values, commands, methods."""
ON_DEMAND = frozenset({"Accuracy", "Comparison", "Graph"})
"""Parts of the page for which the run of this test brings nothing."""


def questions() -> list[tuple[str, str, str]]:
    return ROW.findall(PAGE.read_text("utf-8"))


def keys(values: Any, path: str = "") -> set[str]:
    """Names of keys of JSON, and their paths."""
    found: set[str] = set()
    if isinstance(values, dict):
        for key, value in values.items():
            inner = f"{path}.{key}" if path else str(key)
            found |= {str(key), inner} | keys(value, inner)
    elif isinstance(values, list | tuple):
        for value in values:
            found |= keys(value, path)
    return found


def test_there_are_twenty_questions() -> None:
    assert len(questions()) >= 20


@pytest.mark.parametrize(("question", "part", "answers"), questions())
def test_the_answer_is_there(question: str, part: str, answers: str) -> None:
    known: set[str] = set()
    for name in ("nmp", "snowflake-1cc"):
        known |= set(rows(profiled(name))[0]) | keys(profiled(name).to_dict())
    named = [one for one in re.findall(r"`([^`]+)`", answers) if one not in ELSEWHERE]
    for one in named:
        pattern = re.compile(re.escape(one).replace(r"\*", r"\w+"))
        assert any(pattern.fullmatch(key) for key in known), f"{question}: {one}"
    tabs = set(re.findall(r'role="tab"[^>]*>([^<]+)<', _page()))
    wanted = {one.strip() for one in part.split(",")}
    assert wanted <= tabs | ON_DEMAND, f"{question}: {wanted - tabs}"


@lru_cache(maxsize=1)
def _page() -> str:
    return make_page(profiled("nmp"), [recorded("nmp")])
