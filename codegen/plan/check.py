"""Whether a plan computes its layer: every product once, in tiles that fit.

Independent of planners and of the cost model: the ranges that `ConvPlan` deals to TLEs, TLTs and
tiles are written out as intervals, and every axis must be a partition of its whole. A core's work
is the product of its intervals, so partitions of the axes make a partition of the product space
(group, filter, channel, kernel row, kernel column, row, column); the kernel is never cut. The
intervals also give the largest tiles, which must fit their scratchpads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, share, slice_of
from tvm_npu.sim.machine import Machine

BIAS_BYTES = 4

Interval = tuple[int, int]
"""(begin, end); end is not in it."""


@dataclass(frozen=True)
class PlanFault:
    """What is wrong with a plan: the thing, its value, and the limit that it breaks."""

    what: str
    value: object
    limit: object

    def __str__(self) -> str:
        return f"{self.what} is {self.value}; it must be {self.limit}"


class _Found(Exception):
    """Carries the first fault out of the checks."""

    def __init__(self, fault: PlanFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def check_plan(problem: ConvProblem, plan: ConvPlan, machine: Machine) -> PlanFault | None:
    """The first fault of ``plan`` for ``problem`` on ``machine``; None for a sound plan."""
    try:
        _check_choices(problem, plan, machine)
        deal = _Deal.of(problem, plan, machine)
        _check_tiles(problem, plan, deal)
        _check_products(problem, plan, deal)
        _check_room(problem, plan, machine, deal)
    except _Found as found:
        return found.fault
    return None


def _require(holds: bool, what: str, value: object, limit: object) -> None:
    if not holds:
        raise _Found(PlanFault(what, value, limit))


def _check_choices(problem: ConvProblem, plan: ConvPlan, machine: Machine) -> None:
    """Words that exist, in combinations that exist, on TLEs that exist."""
    _require(problem.groups >= 1, "groups", problem.groups, "at least 1")
    for name, total in (("filters", problem.filters), ("channels", problem.channels)):
        _require(
            total > 0 and total % problem.groups == 0,
            name, total, f"a positive multiple of {problem.groups} groups",
        )  # fmt: skip
    _require(plan.mode in ("multicast", "grouped"), "mode", plan.mode, "multicast or grouped")
    schedules = ("OS", "WS") if plan.mode == "grouped" else ("IS", "OS", "WS")
    _require(
        plan.schedule in schedules,
        f"schedule of a {plan.mode} plan", plan.schedule, " or ".join(schedules),
    )  # fmt: skip
    for name in ("row_slices", "filter_slices", "tile_m", "tile_n", "tile_r", "tile_c"):
        value = getattr(plan, name)
        _require(isinstance(value, int) and value >= 1, name, value, "an integer of at least 1")
    tles = plan.row_slices * plan.filter_slices
    _require(
        tles <= machine.cores.tles,
        "row_slices * filter_slices", tles, f"at most {machine.cores.tles} TLEs",
    )  # fmt: skip
    _require(plan.split in ("KS", "KS&OFM", "OFM"), "split", plan.split, "KS, KS&OFM or OFM")
    if plan.split == "KS":
        _require(plan.row_slices == 1, "row_slices under KS", plan.row_slices, "1")
    if plan.split == "OFM":
        _require(plan.filter_slices == 1, "filter_slices under OFM", plan.filter_slices, "1")


@dataclass(frozen=True)
class _Deal:
    """Who has what. Items are filters of one group (multicast; every group is dealt alike, one
    after another) or groups (grouped). ``rows[s]`` is row slice s, ``items[f][t]`` the items of
    TLT t in filter slice f; TLE (s, f) works on rows[s] x items[f]."""

    item_filters: int
    item_total: int
    rows: tuple[Interval, ...]
    items: tuple[tuple[Interval, ...], ...]

    @staticmethod
    def of(problem: ConvProblem, plan: ConvPlan, machine: Machine) -> _Deal:
        filters_each = problem.filters // problem.groups
        is_grouped = plan.mode == "grouped"
        total = problem.groups if is_grouped else filters_each
        rows = []
        for index in range(plan.row_slices):
            begin, count = slice_of(problem.rows, plan.row_slices, index)
            rows.append((begin, begin + count))
        items = []
        for index in range(plan.filter_slices):
            first, count = slice_of(total, plan.filter_slices, index)
            runs = []
            for tlt in range(machine.cores.tlts_per_tle):
                begin, own = share(count, machine.cores.tlts_per_tle, tlt)
                runs.append((first + begin, first + begin + own))
            items.append(tuple(runs))
        return _Deal(filters_each if is_grouped else 1, total, tuple(rows), tuple(items))

    @property
    def most_rows(self) -> int:
        return _longest(self.rows)

    @property
    def most_items(self) -> int:
        """Items of the TLT that has most, which sets how many turns its TLE makes."""
        return max(_longest(runs) for runs in self.items)


def _longest(intervals: Iterable[Interval]) -> int:
    return max(end - begin for begin, end in intervals)


def _cut(interval: Interval, size: int) -> list[Interval]:
    """The tiles of a loop from begin to end in steps of ``size``."""
    begin, end = interval
    return [(at, min(at + size, end)) for at in range(begin, end, size)]


def _require_partition(what: str, parts: Iterable[Interval], whole: Interval) -> None:
    """Every integer of ``whole`` lies in exactly one of ``parts``, and nothing else in any."""
    at = whole[0]
    for begin, end in sorted(part for part in parts if part[0] != part[1]):
        _require(begin < end, f"{what}: a part", (begin, end), "no shorter than empty")
        _require(begin <= at, f"{what}: first in no part", at, "in one part")
        _require(begin >= at, f"{what}: first in two parts", begin, "in one part")
        at = end
    _require(at == whole[1], f"{what}: end of the parts", at, f"{whole[1]}")


def _check_tiles(problem: ConvProblem, plan: ConvPlan, deal: _Deal) -> None:
    """Tiles no larger than what they cut, and whole where the mode or schedule asks for it."""
    channels = problem.channels // problem.groups
    most_filters = deal.most_items * deal.item_filters
    for name, most in (
        ("tile_m", most_filters),
        ("tile_n", channels),
        ("tile_r", deal.most_rows),
        ("tile_c", problem.columns),
    ):
        _require(getattr(plan, name) <= most, name, getattr(plan, name), f"at most {most}")
    if plan.mode == "grouped":
        _require(
            plan.tile_m % deal.item_filters == 0,
            "tile_m of a grouped plan",
            plan.tile_m,
            f"a multiple of the {deal.item_filters} filters of a group",
        )
        _require(plan.tile_n == channels, "tile_n of a grouped plan", plan.tile_n, channels)
    if plan.schedule == "IS":
        _require(
            plan.tile_m == most_filters,
            "tile_m under IS", plan.tile_m, f"all {most_filters} filters of a TLT",
        )  # fmt: skip


def _check_products(problem: ConvProblem, plan: ConvPlan, deal: _Deal) -> None:
    """Every OUT element has one owner, which adds all its products once."""
    _require_partition("rows over TLEs", deal.rows, (0, problem.rows))
    for rows in deal.rows:
        _require_partition("rows over tiles", _cut(rows, plan.tile_r), rows)
    columns = (0, problem.columns)
    _require_partition("columns over tiles", _cut(columns, plan.tile_c), columns)
    what = "groups" if plan.mode == "grouped" else "filters"
    runs = [run for tlts in deal.items for run in tlts]
    _require_partition(f"{what} over TLTs", runs, (0, deal.item_total))
    for run in runs:
        tiles = _cut(run, plan.tile_m // deal.item_filters)
        _require_partition(f"{what} over tiles", tiles, run)
        # All TLTs of a TLE make as many turns as the longest run needs.
        turns = len(_cut((0, deal.most_items), plan.tile_m // deal.item_filters))
        _require(len(tiles) <= turns, f"tiles of {what} {run}", len(tiles), f"at most {turns}")
    channels = (0, problem.channels // problem.groups)
    _require_partition("channels over tiles", _cut(channels, plan.tile_n), channels)
    for rows in deal.rows:
        _check_windows(problem, 0, _cut(rows, plan.tile_r))
    _check_windows(problem, 1, _cut(columns, plan.tile_c))


def _check_windows(problem: ConvProblem, axis: int, tiles: Iterable[Interval]) -> None:
    """The IN tile under each OUT tile holds the positions of all its windows, to the last."""
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    extent_of = (problem.in_tile_rows, problem.in_tile_columns)[axis]
    for begin, end in tiles:
        first = begin * stride - problem.padding[axis]
        last = (end - 1) * stride - problem.padding[axis]
        last += (problem.kernel[axis] - 1) * dilation
        extent = extent_of(end - begin)
        _require(
            first + extent == last + 1,
            f"IN tile under OUT {('rows', 'columns')[axis]} {begin} to {end}: extent",
            extent, last + 1 - first,
        )  # fmt: skip


def _check_room(problem: ConvProblem, plan: ConvPlan, machine: Machine, deal: _Deal) -> None:
    """The largest tiles that occur, in bytes, against the memories of a TLT."""
    memories = machine.memories
    channels = problem.channels // problem.groups
    item_tile = _longest(
        tile
        for runs in deal.items
        for run in runs
        for tile in _cut(run, plan.tile_m // deal.item_filters)
    )
    filters = item_tile * deal.item_filters
    rows = _longest(tile for part in deal.rows for tile in _cut(part, plan.tile_r))
    columns = _longest(_cut((0, problem.columns), plan.tile_c))
    depth = _longest(_cut((0, channels), plan.tile_n))
    in_channels = item_tile * channels if plan.mode == "grouped" else depth
    w_channels = channels if plan.schedule == "WS" else depth
    in_area = problem.in_tile_rows(rows) * problem.in_tile_columns(columns)
    taps = problem.kernel[0] * problem.kernel[1]
    size = problem.element_bytes
    out_bytes = filters * rows * columns * size
    needs = [
        ("IN tile in MB0, bytes", in_channels * in_area * size, memories.mb0_bytes),
        ("W tile in MB1, bytes", filters * w_channels * taps * size, memories.mb1_bytes),
        ("OUT tile in MB2, bytes", out_bytes, memories.mb2_bytes),
        (
            "biases of one TLT, bytes",
            deal.most_items * deal.item_filters * BIAS_BYTES,
            memories.bias_bytes,
        ),
    ]
    if problem.has_residual:
        needs.append(("residual tile in MB0, bytes", out_bytes, memories.mb0_bytes))
    for what, needed, available in needs:
        _require(needed <= available, what, needed, f"at most {available}")
