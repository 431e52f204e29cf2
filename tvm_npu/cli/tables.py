"""Tables whose numbers are always whole when the terminal is narrow: names of layers are shortened;
names that users type are not, whole columns move behind the table or go instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_npu.cli.shown import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_GAP = 2
"""Blanks between columns: one of padding and one in place of a rule."""
_SHORTEST_NAME = 8
_READABLE_PROSE = 24
"""Characters a line below which prose moves behind the table."""


@dataclass(frozen=True)
class Column:
    """A heading (lines apart by newline) and its cells, whose control characters are escaped.
    ``name`` cells may be shortened and stand left, ``key`` cells stand left, ``prose`` cells run
    over several lines and stand left; keys and numbers are never shortened. ``total`` is the cell
    below the line, if there is one."""

    heading: str
    cells: tuple[str, ...]
    name: bool = False
    total: str = ""
    prose: bool = False
    key: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(map(shown, self.cells)))

    @property
    def width(self) -> int:
        return max(map(len, (*self.heading.split("\n"), *self.cells, self.total)))


def natural_width(columns: Sequence[Column]) -> int:
    """Terminal columns that a table takes with nothing shortened."""
    return sum(column.width + _GAP for column in columns)


def least_width(columns: Sequence[Column]) -> int:
    """Terminal columns that a table takes with names and prose as short as they can be."""
    return sum(fitted_widths(columns, 0)) + _GAP * len(columns)


def fitted_widths(columns: Sequence[Column], width: int) -> list[int]:
    """Widths with which the table is at most ``width`` wide: names and prose give way, the
    longest first, as far as that goes."""
    widths = [column.width for column in columns]
    while sum(widths) + _GAP * len(widths) > width:
        candidates = [
            index
            for index, column in enumerate(columns)
            if (column.name or column.prose)
            and widths[index] > max(_SHORTEST_NAME, _heading_width(column))
        ]
        if not candidates:
            break
        widths[max(candidates, key=lambda index: (widths[index], -index))] -= 1
    return widths


def shortened(text: str, width: int) -> str:
    """``text`` with its middle replaced by one character, if it is longer than ``width``."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def make_table(columns: Sequence[Column], width: int, title: str | None = None) -> Table:
    """A rich table of at most ``width`` terminal columns where names allow it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    with_total = any(column.total for column in columns)
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_footer=with_total,
    )
    widths = fitted_widths(columns, width)
    for column, size in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.heading),
            Text(column.total),
            justify="left" if column.name or column.prose or column.key else "right",
            no_wrap=not column.prose,
            width=size,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(
            *(
                Text(shortened(cell, size) if column.name else cell)
                for column, size, cell in zip(columns, widths, row, strict=True)
            )
        )
    return table


def print_tables(columns: Sequence[Column], console: Console) -> None:
    """A table in which nothing is shortened: prose that has no room stands in a table of its own,
    beside the first column; columns that have none are left out, the last first, and named."""
    shown, behind = list(columns), []
    if _least_whole_width(shown) > console.width:
        shown = [column for column in columns if not column.prose]
        behind = [column for column in columns if column.prose]
    left_out: list[str] = []
    while len(shown) > 1 and _least_whole_width(shown) > console.width:
        left_out.insert(0, shown.pop().heading.replace("\n", " "))
    console.print(make_table(shown, console.width))
    beside = [columns[0], *behind]
    if behind and least_width(beside) <= console.width:
        console.print()
        console.print(make_table(beside, console.width))
    else:
        left_out += [column.heading for column in behind]
    if left_out:
        console.print(
            f"left out in {console.width} columns: {', '.join(left_out)}; a wider terminal and "
            "--json FILE show all",
            soft_wrap=True,
        )


def _least_whole_width(columns: Sequence[Column]) -> int:
    widths = (min(one.width, _READABLE_PROSE) if one.prose else one.width for one in columns)
    return sum(widths) + _GAP * len(columns)


def _heading_width(column: Column) -> int:
    return max(map(len, (*column.heading.split("\n"), column.total)))


def plural(number: int, noun: str) -> str:
    """``1 image``, ``2 images``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
