"""Planners beside `exact-layers` as a table and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from studies.harness.tables import Sheet, print_sheets
from studies.planning.figures import GOAL_NETWORKS, geometric_mean
from studies.planning.joining import APART, JoinedRow
from studies.planning.tables import NONE, title_of
from tvm_npu.cli.tables import Column

Pair = tuple[JoinedRow, JoinedRow]


def print_joined(console: Console, rows: Sequence[JoinedRow]) -> None:
    pairs = pairs_of(rows)
    print_sheets(console, [joined_table(pairs)])
    for line in joined_lines(pairs):
        console.print(line, soft_wrap=True)


def pairs_of(rows: Sequence[JoinedRow]) -> list[Pair]:
    """Every other planner's row with that of `APART` of the same network and machine, in order."""
    apart = {(row.model, row.machine): row for row in rows if row.planner == APART}
    return [(row, apart[row.model, row.machine]) for row in rows if row.planner != APART]


def joined_table(pairs: Sequence[Pair]) -> Sheet:
    def bounded(row: JoinedRow) -> str:
        return NONE if row.bound_us is None else f"{row.simulated_us / row.bound_us:.2f}"

    def megabytes(count: int | None) -> str:
        return NONE if count is None else f"{count / 1e6:,.1f}"

    columns = [
        Column("network", tuple(title_of(one.model) for one, _ in pairs), name=True),
        Column("machine", tuple(one.machine for one, _ in pairs), prose=True),
        Column("planner", tuple(one.planner for one, _ in pairs), prose=True),
        Column("us", tuple(f"{one.simulated_us:,.0f}" for one, _ in pairs)),
        Column(f"{APART}\nus", tuple(f"{two.simulated_us:,.0f}" for _, two in pairs)),
        Column("times\nas fast", tuple(f"{_gain(pair):.3f}" for pair in pairs)),
        Column("MB", tuple(megabytes(one.dram_bytes) for one, _ in pairs)),
        Column(f"{APART}\nMB", tuple(megabytes(two.dram_bytes) for _, two in pairs)),
        Column("compulsory\nMB", tuple(megabytes(one.compulsory_bytes) for one, _ in pairs)),
        Column("us\n/ bound", tuple(bounded(one) for one, _ in pairs)),
    ]
    return Sheet("Plans over the graph; all values equal the reference's, bit for bit", columns)


def joined_lines(pairs: Sequence[Pair]) -> list[str]:
    """Geometric means by machine and planner."""
    return [
        f"{machine}: {name} is {_mean_gain(own):.3f} times as fast as {APART} and moves "
        f"{_mean_moved(own):.3f} times its bytes (geometric means)"
        for (machine, name), own in _by_planner(pairs).items()
    ]


def missed_gains(rows: Sequence[JoinedRow]) -> list[str]:
    """Where planning over the graph does not pay over `GOAL_NETWORKS`, in words: `exact` is slower
    than layers alone, or `exact-traffic` moves more."""
    lines = []
    pairs = [pair for pair in pairs_of(rows) if pair[0].model in GOAL_NETWORKS]
    for (machine, name), own in _by_planner(pairs).items():
        if {one.model for one, _ in own} != GOAL_NETWORKS:
            continue
        gain, moved = _mean_gain(own), _mean_moved(own)
        if name == "exact" and gain < 1:
            lines.append(f"{name} on {machine} is {gain:.3f} times as fast as {APART}, not 1")
        if name == "exact-traffic" and moved > 1:
            lines.append(f"{name} on {machine} moves {moved:.3f} times the bytes of {APART}, not 1")
    return lines


def _by_planner(pairs: Sequence[Pair]) -> dict[tuple[str, str], list[Pair]]:
    """By machine and planner, in the order in which these first come."""
    found: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        found.setdefault((pair[0].machine, pair[0].planner), []).append(pair)
    return found


def _mean_gain(pairs: Sequence[Pair]) -> float:
    return geometric_mean(map(_gain, pairs))


def _mean_moved(pairs: Sequence[Pair]) -> float:
    return geometric_mean(one.dram_bytes / two.dram_bytes for one, two in pairs)


def _gain(pair: Pair) -> float:
    joined, apart = pair
    return apart.simulated_us / joined.simulated_us
