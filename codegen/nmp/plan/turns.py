"""The turns of a TLE: what its TLTs work on, axis by axis.

A TLE walks its rows, columns and filters in turns of a tile each. An axis that is dealt to several
parts of the TLTs makes as many turns as its first part, which is the longest; in the last turns
other parts may have nothing. TLEs that share tiles over the ring keep step with the longest of
them, too: then the last turns may be empty for all parts of a TLE.

Turns that are alike and follow each other are counted together: the order of the loops stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, product
from typing import NamedTuple, TypeVar

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows
from tvm_npu.codegen.plan.problem import ConvProblem, share, slice_of
from tvm_npu.sim.nmp.machine import NmpMachine


class Tile(NamedTuple):
    """Along one axis: what is stored of it, what the convolution computes for that (the same
    without a window behind it), the IFM extent inside the tensor, and what of the OFM goes to the
    window (with rows that are kept more than is computed)."""

    out: int = 0
    middle: int = 0
    real: int = 0
    passed: int = 0


NO_TILE = Tile()
Turn = TypeVar("Turn", tuple[Tile, ...], tuple[int, ...])
PlaceTurns = tuple[tuple[tuple[Tile, ...], int], ...]
"""(the parts' tiles, how many such turns); `NO_TILE` is a part without one."""
ItemTurns = tuple[tuple[tuple[int, ...], int], ...]
"""(the parts' numbers of items, how many such turns)."""


@dataclass(frozen=True)
class TleTurns:
    """One TLE: its turns along three axes, and its number among the TLEs that share IN tiles
    (``in_part``) and W tiles (``weight_part``)."""

    rows: PlaceTurns
    columns: PlaceTurns
    items: ItemTurns
    in_part: int = 0
    weight_part: int = 0

    def alike_together(self) -> TleTurns:
        """With turns that are alike counted together wherever they are, in the order in which they
        first appear, as closed forms and the search of `exact` take them."""
        return replace(
            self,
            rows=_gathered(self.rows),
            columns=_gathered(self.columns),
            items=_gathered(self.items),
        )

    @property
    def places(self) -> int:
        """Turns over the rows and columns."""
        return sum(number for _, number in self.rows) * sum(number for _, number in self.columns)

    @property
    def parts(self) -> int:
        """Filter parts of the TLTs that have any."""
        return sum(size > 0 for size in self.items[0][0])

    @property
    def tlt_places(self) -> int:
        """Places of the TLTs that have any rows and columns."""
        rows, columns = self.rows[0][0], self.columns[0][0]
        return sum(tile.out > 0 for tile in rows) * sum(tile.out > 0 for tile in columns)


def tlt_filters(plan: ConvPlan, machine: NmpMachine) -> int:
    """Parts of the filters (or groups) among the TLTs of a TLE."""
    return machine.cores.tlts_per_tle // (plan.tlt_rows * plan.tlt_columns)


def item_count(problem: ConvProblem, plan: ConvPlan) -> int:
    """What is dealt to filter slices: filters of a group, or groups in the grouped mode."""
    return problem.groups if plan.mode == "grouped" else problem.filters // problem.groups


def turns_of(total: int, slices: int, parts: int, tile: int) -> int:
    """Turns along an axis of ``total``, of the longest part of the longest slice."""
    longest = slice_of(total, slices, 0)[1]
    return -(-share(longest, parts, 0)[1] // tile)


@lru_cache(maxsize=1 << 14)
def place_turns(
    problem: ConvProblem,
    axis: int,
    run: tuple[int, int],
    parts: int,
    tile: int,
    least_turns: int = 0,
    kept: int = 0,
) -> PlaceTurns:
    """Turns over the rows (``axis`` 0) or columns (1) of ``run`` = (begin, count) of what is
    stored; but for the first, ``kept`` of what a tile takes of the OFM is there already."""
    begin, count = run
    runs = [share(count, parts, part) for part in range(parts)]
    turns = []
    for turn in range(max(-(-runs[0][1] // tile), least_turns)):
        tiles = []
        for first, own in runs:
            extent = min(tile, own - turn * tile)
            at, there = begin + first + turn * tile, kept if turn else 0
            tiles.append(tile_at(problem, axis, at, max(0, extent), there))
        turns.append(tuple(tiles))
    return _counted(turns)


def tile_at(problem: ConvProblem, axis: int, first: int, extent: int, kept: int = 0) -> Tile:
    """The tile of ``extent`` stored rows (``axis`` 0) or columns (1) from ``first`` on, where the
    first ``kept`` of the OFM under it are there already."""
    if extent == 0:
        return NO_TILE
    window = problem.window
    begin, end = first, first + extent
    if window is not None:
        low = first * window.stride[axis] - window.padding[axis]
        high = low + (extent - 1) * window.stride[axis] + window.kernel[axis]
        begin, end = max(low, 0), min(high, (problem.rows, problem.columns)[axis])
    passed = end - begin
    begin += kept
    span = (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
    low = begin * problem.stride[axis] - problem.padding[axis]
    high = low + (end - begin - 1) * problem.stride[axis] + span
    in_extent = (problem.in_rows, problem.in_columns)[axis]
    return Tile(extent, end - begin, max(0, min(high, in_extent) - max(low, 0)), passed)


@lru_cache(maxsize=1 << 14)
def item_turns(count: int, parts: int, tile: int, least_turns: int = 0) -> ItemTurns:
    """Turns of ``parts`` parts that have ``count`` items and walk them in tiles."""
    runs = [share(count, parts, part)[1] for part in range(parts)]
    return _counted(
        tuple(min(tile, max(0, run - turn * tile)) for run in runs)
        for turn in range(max(-(-runs[0] // tile), least_turns))
    )


def _counted(turns: Iterable[Turn]) -> tuple[tuple[Turn, int], ...]:
    """With how many alike follow each other."""
    return tuple((turn, len(list(alike))) for turn, alike in groupby(turns))


def _gathered(turns: tuple[tuple[Turn, int], ...]) -> tuple[tuple[Turn, int], ...]:
    found: dict[Turn, int] = {}
    for turn, number in turns:
        found[turn] = found.get(turn, 0) + number
    return tuple(found.items())


def tle_turns(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> list[TleTurns]:
    """The turns of every TLE that has any, of one group in the multicast mode."""
    grouped = plan.mode == "grouped"
    each = problem.filters // problem.groups if grouped else 1
    tile_items = max(1, plan.tile_m // each)
    parts = tlt_filters(plan, machine)
    total = item_count(problem, plan)
    most_rows = most_columns = most_items = 0
    if plan.ring_weights:
        most_rows = turns_of(problem.out_rows, plan.row_slices, plan.tlt_rows, plan.tile_r)
        most_columns = turns_of(
            problem.out_columns, plan.column_slices, plan.tlt_columns, plan.tile_c
        )
    if plan.ring_in:
        most_items = turns_of(total, plan.filter_slices, parts, tile_items)
    columns = [
        place_turns(problem, 1, run, plan.tlt_columns, plan.tile_c, most_columns)
        for run in _slices(problem.out_columns, plan.column_slices)
    ]
    items = [
        item_turns(run[1], parts, tile_items, most_items)
        for run in _slices(total, plan.filter_slices)
    ]
    kept = shared_rows(problem) if plan.keeps_rows else 0
    rows = [
        place_turns(problem, 0, run, plan.tlt_rows, plan.tile_r, most_rows, kept)
        for run in _slices(problem.out_rows, plan.row_slices)
    ]
    return [
        TleTurns(row_turns, column_turns, own, in_part, weight_part)
        for weight_part, (row_turns, column_turns) in enumerate(product(rows, columns))
        for in_part, own in enumerate(items)
    ]


def _slices(total: int, slices: int) -> list[tuple[int, int]]:
    runs = [slice_of(total, slices, index) for index in range(slices)]
    return [run for run in runs if run[1]]
