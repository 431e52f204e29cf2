"""Drawings: every format, any subset of columns, the same bytes every time."""

from __future__ import annotations

import pytest

from studies.shared.simulation import Breakdown
from studies.shared.titles import TITLES
from studies.tso.cells import Cell
from studies.tso.plots import plot
from studies.tso.published import COLUMNS

pytest.importorskip("matplotlib", reason="the plot extra is not installed")

HEADS = tuple(column.head for column in COLUMNS)


def drawn(models: tuple[str, ...], heads: tuple[str, ...], file_format: str) -> bytes:
    cells = [
        Cell(model, head, 100.0 + 10 * at, 90.0 + 12 * at, 91.0)
        for model in models
        for at, head in enumerate(heads)
    ]
    parts = {(cell.model, cell.column): Breakdown(40.0, 10.0, 30.0, 5.0) for cell in cells}
    return plot(cells, parts, file_format)


def test_the_same_bytes_every_time() -> None:
    """Formats are made by one function for all studies (tests/studies/planning/test_plots.py)."""
    one = drawn(("lenet",), HEADS[:2], "svg")
    assert one.startswith(b"<?xml")
    assert one == drawn(("lenet",), HEADS[:2], "svg")


def test_whole_table_is_named() -> None:
    text = drawn(tuple(TITLES), HEADS, "svg").decode()
    for word in (*TITLES.values(), "KS&amp;OFM", "Figure 8", "Figure 12", "Figure 13", "MAC"):
        assert f"<!-- {word}" in text, word


def test_without_the_burst_column() -> None:
    assert drawn(("lenet", "resnet50"), ("KS", "WS"), "png").startswith(b"\x89PNG")
