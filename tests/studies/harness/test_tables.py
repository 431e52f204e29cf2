"""Tables in narrow consoles: all numbers whole, every part named."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from studies.harness.tables import Sheet, folded, print_sheets
from tvm_npu.cli.tables import Column, least_width

WIDE = [
    Column("network", ("inception_v3", "lenet"), name=True),
    Column("machine", ("nmp-4x8-dual", "setup-a"), prose=True),
    *(
        Column(f"planner {n}\nus", (f"{10**7 + n:,}.{n}", f"{n}.5"), total=f"{n:,}")
        for n in range(20)
    ),
]


def text(columns: list[Column], width: int) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        print_sheets(console, [Sheet("Times", columns)])
    return capture.get()


@pytest.mark.parametrize("width", [40, 80, 100, 400])
def test_no_number_is_cut(width: int) -> None:
    shown = text(WIDE, width)
    assert max(map(len, shown.splitlines())) <= width
    words = shown.split()
    for column in WIDE[2:]:
        for cell in column.cells:
            assert words.count(cell) == 1, cell
    parts = len(list(folded(WIDE, width)))
    assert (parts == 1) == (width == 400)
    assert len(re.findall("Times", shown)) == parts
    assert parts == 1 or f"(part {parts} of {parts})" in " ".join(words)
    assert words.count("machine") == parts, "every part names its rows"


def test_a_number_that_is_wider_than_the_console_runs_over() -> None:
    assert "1" * 60 in text([Column("n", ("a",), name=True), Column("x", ("1" * 60,))], 20)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(10, 120))
def test_every_column_is_in_one_part(widths: list[int], width: int) -> None:
    numbers = [Column(f"c{n}", ("9" * size,)) for n, size in enumerate(widths)]
    columns = [Column("name", ("x",), name=True), *numbers]
    parts = list(folded(columns, width))
    assert [one for part in parts for one in part[1:]] == numbers
    for part in parts:
        assert part[0] is columns[0]
        assert least_width(part) <= width or len(part) == 2
