"""Tables in any width: no number is ever cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from tvm_npu.cli.tables import Column, least_width, make_table


@dataclass(frozen=True)
class Sheet:
    """A table before it is known how wide it may be."""

    title: str
    columns: Sequence[Column]


def print_sheets(console: Console, sheets: Iterable[Sheet]) -> None:
    """Each with an empty line behind it. Where the console is too narrow for one, it is folded:
    several tables below each other, each of which begins with the columns that name its rows."""
    for sheet in sheets:
        parts = list(folded(sheet.columns, console.width))
        for number, part in enumerate(parts, 1):
            title = sheet.title
            if len(parts) > 1:
                title += f" (part {number} of {len(parts)})"
            console.print(title, soft_wrap=True)
            _print_whole(console, part)
            console.print()


def _print_whole(console: Console, columns: Sequence[Column]) -> None:
    """A number that is wider than the console runs over, rather than being cut."""
    width = console.width
    console.width = max(width, least_width(columns))
    console.print(make_table(columns, width), crop=False)
    console.width = width


def folded(columns: Sequence[Column], width: int) -> Iterator[list[Column]]:
    """``columns`` in as few parts of at most ``width`` as their order allows."""
    if least_width(columns) <= width:
        yield list(columns)
        return
    names = 1
    while names < len(columns) - 1 and (columns[names].name or columns[names].prose):
        names += 1
    keys, part = list(columns[:names]), list(columns[:names])
    for column in columns[names:]:
        if len(part) > len(keys) and least_width([*part, column]) > width:
            yield part
            part = list(keys)
        part.append(column)
    yield part
