"""Errors of predictions as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planning.errors import SIZES_US, ErrorRow, class_of, errors_of
from studies.planning.tables import NONE, title_of
from tvm_npu.cli.tables import Column

FARTHEST = 3
"""Layers that are named for each machine and planner: those with the largest errors."""


def print_errors(console: Console, rows: Sequence[ErrorRow]) -> None:
    print_sheets(console, [sizes_table(rows), networks_table(rows)])
    for line in farthest_lines(rows):
        console.print(line, soft_wrap=True)


def pairs_of(rows: Sequence[ErrorRow]) -> list[tuple[str, str]]:
    """(machine, planner), in order."""
    return list(dict.fromkeys((row.machine, row.planner) for row in rows))


def sizes_table(rows: Sequence[ErrorRow]) -> Sheet:
    """Layers and their mean error, all and by size."""
    pairs = pairs_of(rows)
    own = [[row for row in rows if (row.machine, row.planner) == pair] for pair in pairs]
    heads = [f"below\n{_time(limit)}" for limit in SIZES_US] + ["above"]
    columns = [
        Column("machine", tuple(machine for machine, _ in pairs), prose=True),
        Column("planner", tuple(name for _, name in pairs), prose=True),
        Column("layers: mean\nabs. error", tuple(_mean(some) for some in own)),
        *(
            Column(head, tuple(_mean([one for one in some if class_of(one.simulated_us) == number])
                               for some in own))
            for number, head in enumerate(heads)
        ),
    ]  # fmt: skip
    return Sheet("Predicted against simulated time by layer, and by its simulated time", columns)


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f} us" if microseconds < 1000 else f"{microseconds / 1000:,.0f} ms"


def _mean(rows: Sequence[ErrorRow]) -> str:
    found = errors_of([row.error for row in rows])
    return NONE if found.mean is None else f"{found.layers}: {found.mean:.1%}"


def networks_table(rows: Sequence[ErrorRow]) -> Sheet:
    """Whole networks: sums over layers."""
    places = list(dict.fromkeys((row.model, row.machine, row.planner) for row in rows))
    sums = []
    for place in places:
        own = [row for row in rows if (row.model, row.machine, row.planner) == place]
        simulated = sum(row.simulated_us for row in own)
        sums.append((simulated, sum(row.predicted_us or 0.0 for row in own)))
    columns = [
        Column("network", tuple(title_of(model) for model, _, _ in places), name=True),
        Column("machine", tuple(machine for _, machine, _ in places), prose=True),
        Column("planner", tuple(name for _, _, name in places), prose=True),
        Column("simulated\nus", tuple(f"{one:,.0f}" for one, _ in sums)),
        Column("predicted\nus", tuple(f"{two:,.0f}" for _, two in sums)),
        Column("error", tuple(f"{two / one - 1:+.1%}" if one else NONE for one, two in sums)),
    ]
    return Sheet("Networks; all values equal the reference's, bit for bit", columns)


def farthest_lines(rows: Sequence[ErrorRow]) -> list[str]:
    """The layers whose predictions are farthest off, one a line."""
    lines = []
    for pair in pairs_of(rows):
        own = [
            (row.error, row)
            for row in rows
            if (row.machine, row.planner) == pair and row.error is not None
        ]
        own.sort(key=lambda one: -abs(one[0]))
        for error, row in own[:FARTHEST]:
            lines.append(
                f"{row.machine}, {row.planner}: {error:+.1%} of {row.simulated_us:,.1f} us, "
                f"{title_of(row.model)} {row.layer}"
            )
    return lines
