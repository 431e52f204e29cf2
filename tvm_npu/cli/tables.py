"""Tables whose numbers are always whole: names give way when the terminal is narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 2
"""Blanks between columns: one of padding and one in place of a rule."""
_SHORTEST_NAME = 8


@dataclass(frozen=True)
class Column:
    """A heading (lines apart by newline) and its cells. ``name`` cells may be shortened and stand
    left, ``prose`` cells run over several lines and stand left; numbers are never touched.
    ``total`` is the cell below the line, if there is one."""

    heading: str
    cells: tuple[str, ...]
    name: bool = False
    total: str = ""
    prose: bool = False

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
            justify="left" if column.name or column.prose else "right",
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


def _heading_width(column: Column) -> int:
    return max(map(len, (*column.heading.split("\n"), column.total)))
