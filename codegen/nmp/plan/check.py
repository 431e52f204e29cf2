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

from tvm_npu.codegen.nmp.plan.check_choices import (
    Found,
    Interval,
    check_choices,
    check_split,
    middle_of,
    require,
)
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.kept_rows import guard_elements, in_room, shared_rows
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem, share, slice_of
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

Parts = tuple[Interval, ...]
"""What the TLTs of a TLE have of an axis."""


def check_plan(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> PlanFault | None:
    """The first fault of ``plan`` for ``problem`` on ``machine``; None for a sound plan."""
    try:
        require_room(problem, plan, machine, checked_deal(problem, plan, machine))
    except Found as found:
        return found.fault
    return None


def checked_deal(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Deal:
    """Who has what under a plan that computes every product once; raises `Found`. Whether its tiles
    fit is another question."""
    check_choices(problem, plan, machine)
    check_split(plan)
    deal = Deal.of(problem, plan, machine)
    _check_tiles(problem, plan, deal)
    _check_products(problem, plan, deal)
    return deal


Need = tuple[str, str, int, int]
"""A memory, what takes room there, how many bytes, and how many there are."""


def most_lacking(need: Need) -> int:
    """Bytes; by this key the largest is what a plan lacks most."""
    return need[2] - need[3]


@dataclass(frozen=True)
class Deal:
    """Who has what. Items are filters of one group (multicast; every group is dealt alike, one
    after another) or groups (grouped). ``rows[s][p]`` is part p of row slice s, ``columns`` and
    ``items`` likewise; TLE (r, c, f) works on rows[r] x columns[c] x items[f], its TLT (i, j, k)
    on rows[r][i] x columns[c][j] x items[f][k]."""

    item_filters: int
    item_total: int
    rows: tuple[Parts, ...]
    columns: tuple[Parts, ...]
    items: tuple[Parts, ...]

    @staticmethod
    def of(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Deal:
        filters_each = problem.filters // problem.groups
        is_grouped = plan.mode == "grouped"
        total = problem.groups if is_grouped else filters_each
        filter_parts = machine.cores.tlts_per_tle // (plan.tlt_rows * plan.tlt_columns)
        return Deal(
            filters_each if is_grouped else 1,
            total,
            _dealt(problem.out_rows, plan.row_slices, plan.tlt_rows),
            _dealt(problem.out_columns, plan.column_slices, plan.tlt_columns),
            _dealt(total, plan.filter_slices, filter_parts),
        )

    @property
    def most_rows(self) -> int:
        return max(longest(parts) for parts in self.rows)

    @property
    def most_columns(self) -> int:
        return max(longest(parts) for parts in self.columns)

    @property
    def most_items(self) -> int:
        """Items of the TLT that has most, which sets how many turns its TLE makes."""
        return max(longest(parts) for parts in self.items)


def _dealt(total: int, slices: int, parts: int) -> tuple[Parts, ...]:
    dealt = []
    for index in range(slices):
        first, count = slice_of(total, slices, index)
        runs = (share(count, parts, part) for part in range(parts))
        dealt.append(tuple((first + begin, first + begin + own) for begin, own in runs))
    return tuple(dealt)


def longest(intervals: Iterable[Interval]) -> int:
    return max(end - begin for begin, end in intervals)


def in_tiles(interval: Interval, size: int) -> list[Interval]:
    """The tiles of a loop from begin to end in steps of ``size``."""
    begin, end = interval
    return [(at, min(at + size, end)) for at in range(begin, end, size)]


def require_partition(what: str, parts: Iterable[Interval], whole: Interval) -> None:
    """Every integer of ``whole`` lies in exactly one of ``parts``, and nothing else in any."""
    at = whole[0]
    for begin, end in sorted(part for part in parts if part[0] != part[1]):
        require(begin < end, f"{what}: a part", (begin, end), "no shorter than empty")
        require(begin <= at, f"{what}: first in no part", at, "in one part")
        require(begin >= at, f"{what}: first in two parts", begin, "in one part")
        at = end
    require(at == whole[1], f"{what}: end of the parts", at, f"{whole[1]}")


def _check_tiles(problem: ConvProblem, plan: ConvPlan, deal: Deal) -> None:
    """Tiles no larger than what they cut, and whole where the mode or schedule asks for it."""
    channels = problem.channels // problem.groups
    most_filters = deal.most_items * deal.item_filters
    for name, most in (
        ("tile_m", most_filters),
        ("tile_n", channels),
        ("tile_r", deal.most_rows),
        ("tile_c", deal.most_columns),
    ):
        require(getattr(plan, name) <= most, name, getattr(plan, name), f"at most {most}")
    if plan.mode == "grouped":
        require(
            plan.tile_m % deal.item_filters == 0,
            "tile_m of a grouped plan",
            plan.tile_m,
            f"a multiple of the {deal.item_filters} filters of a group",
        )
        require(plan.tile_n == channels, "tile_n of a grouped plan", plan.tile_n, channels)
    if plan.schedule == "IS":
        require(
            plan.tile_m == most_filters,
            "tile_m under IS", plan.tile_m, f"all {most_filters} filters of a TLT",
        )  # fmt: skip


def _check_products(problem: ConvProblem, plan: ConvPlan, deal: Deal) -> None:
    """Every OUT element has one owner, which adds all its products once. (Under a window behind,
    owners of OUT elements whose windows overlap compute what these share each for itself.)"""
    what = "groups" if plan.mode == "grouped" else "filters"
    tile_items = plan.tile_m // deal.item_filters
    for name, slices, total, tile in (
        ("rows", deal.rows, problem.out_rows, plan.tile_r),
        ("columns", deal.columns, problem.out_columns, plan.tile_c),
        (what, deal.items, deal.item_total, tile_items),
    ):
        number = len(slices)
        runs = (slice_of(total, number, index) for index in range(number))
        wholes = [(begin, begin + count) for begin, count in runs]
        require_partition(f"{name} over TLEs", wholes, (0, total))
        for whole, parts in zip(wholes, slices, strict=True):
            require_partition(f"{name} over TLTs", parts, whole)
            # All TLTs of a TLE make as many turns as the longest run needs.
            turns = len(in_tiles((0, longest(parts)), tile))
            for part in parts:
                tiles = in_tiles(part, tile)
                require_partition(f"{name} over tiles", tiles, part)
                require(len(tiles) <= turns, f"tiles of {name} {part}", len(tiles), turns)
    channels = (0, problem.channels // problem.groups)
    require_partition("channels over tiles", in_tiles(channels, plan.tile_n), channels)
    for axis, slices, tile in ((0, deal.rows, plan.tile_r), (1, deal.columns, plan.tile_c)):
        for parts in slices:
            for part in parts:
                tiles = in_tiles(part, tile)
                _check_kernels(problem, axis, tiles)
                if axis == 0 and plan.keeps_rows and tiles:
                    _check_kept(problem, tiles)
    if plan.ring_in:
        _check_runs("channels of an IN tile", plan.tile_n, [(0, plan.filter_slices)])
    if plan.ring_weights:
        sharing = plan.row_slices * plan.column_slices
        rotations = [(part, sharing) for part in range(len(deal.items[0]))]
        _check_runs("filters of a W tile", plan.tile_m, rotations)


def run_size(extent: int, sharing: int) -> int:
    """Of a tile that ``sharing`` TLEs load together, what each of them loads at most."""
    return -(-extent // sharing)


def _check_runs(what: str, extent: int, rotations: Iterable[tuple[int, int]]) -> None:
    """The TLEs that share a tile load it all, once: TLE p of ``sharing`` loads run
    (p + first) % sharing of ceil(extent / sharing) for each (first, sharing)."""
    for first, sharing in rotations:
        size = run_size(extent, sharing)
        runs = [(tle + first) % sharing * size for tle in range(sharing)]
        parts = [(begin, max(begin, min(begin + size, extent))) for begin in runs]
        require_partition(f"{what} over TLEs", parts, (0, extent))


def _check_kept(problem: ConvProblem, tiles: list[Interval]) -> None:
    """A TLT computes the rows of the OFM under its tiles once, in order: the first `shared_rows` of
    those under a tile, and no others, it has from the tile above."""
    computed = [middle_of(problem, 0, tile) for tile in tiles]
    for number in range(1, len(tiles)):
        begin, end = middle_of(problem, 0, tiles[number])
        above = computed[number - 1][1]
        kept = above - begin
        what = f"OFM rows under OUT rows {tiles[number]} from the tile above"
        require(kept == shared_rows(problem), what, kept, shared_rows(problem))
        computed[number] = (above, end)
    whole = computed[0][0], computed[-1][1]
    require_partition("OFM rows over tiles", computed, whole)


def _check_kernels(problem: ConvProblem, axis: int, tiles: Iterable[Interval]) -> None:
    """The IN tile under each OUT tile holds the positions of all its windows, to the last."""
    stride, dilation = problem.stride[axis], problem.dilation[axis]
    extent_of = (problem.in_tile_rows, problem.in_tile_columns)[axis]
    for tile in tiles:
        begin, end = middle_of(problem, axis, tile)
        first = begin * stride - problem.padding[axis]
        last = (end - 1) * stride - problem.padding[axis]
        last += (problem.kernel[axis] - 1) * dilation
        extent = extent_of(end - begin)
        require(
            first + extent == last + 1,
            f"IN tile under OUT {('rows', 'columns')[axis]} {begin} to {end}: extent",
            extent, last + 1 - first,
        )  # fmt: skip


def require_room(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine, deal: Deal) -> None:
    """The largest tiles that occur, in bytes, against the memories of a TLT."""
    memories = machine.memories
    channels = problem.channels // problem.groups
    tile_items = plan.tile_m // deal.item_filters
    filters = longest_tile(deal.items, tile_items) * deal.item_filters
    rows = longest_tile(deal.rows, plan.tile_r)
    columns = longest_tile(deal.columns, plan.tile_c)
    box = problem.middle_tile(rows, columns)
    middle = min(box[0], problem.rows), min(box[1], problem.columns)
    depth = longest(in_tiles((0, channels), plan.tile_n))
    in_channels = filters // deal.item_filters * channels if plan.mode == "grouped" else depth
    w_channels = channels if plan.schedule == "WS" else depth
    in_area = problem.in_tile_rows(middle[0]) * problem.in_tile_columns(middle[1])
    taps = problem.kernel[0] * problem.kernel[1]
    size = problem.element_bytes
    in_bytes = in_channels * in_area * size
    guard = guard_elements(problem, *middle) * size if plan.keeps_rows else 0
    out_bytes = filters * rows * columns * size
    copies = copies_of(plan, deal, len(in_tiles((0, channels), plan.tile_n)))
    needs = []

    def need(tile: str, memory: str, number: int, tile_bytes: int, available: int) -> None:
        what = f"{tile} tile in {memory}" if number == 1 else f"two {tile} tiles in {memory}"
        needs.append((f"{what}, bytes", number * tile_bytes, available))

    need("IN", "MB0", copies["IN"], in_bytes, memories.mb0_bytes)
    weight_bytes = filters * w_channels * taps * size
    need("W", "MB1", copies["W"], weight_bytes, memories.mb1_bytes)
    need("OUT", "MB2", copies["OUT"], out_bytes, memories.mb2_bytes)
    biases = deal.most_items * deal.item_filters * BIAS_BYTES
    needs.append(("biases of one TLT, bytes", biases, memories.bias_bytes))
    window = problem.window
    if window is not None:
        middle_bytes = filters * middle[0] * middle[1] * size
        out = copies["OUT"] * out_bytes + middle_bytes
        needs.append(("OUT and OFM tiles in MB2, bytes", out, memories.mb2_bytes))
        stays = plan.buffers == 2 or plan.keeps_in
        beside = in_room(in_bytes, copies["IN"], guard)
        moved = (filters + plan.keeps_rows) * box[0] * box[1] * size
        moved = max(beside + guard, moved + (beside if stays else 0))
        needs.append(("OFM tile under a window in MB0, bytes", moved, memories.mb0_bytes))
    if window is not None and window.has_weights:
        kernels = deal.most_items * window.kernel[0] * window.kernel[1] * size
        both = copies["W"] * weight_bytes + kernels
        needs.append(("W tiles and kernels of the window in MB1, bytes", both, memories.mb1_bytes))
        needs.append(("biases of both layers, bytes", 2 * biases, memories.bias_bytes))
    if problem.has_residual:
        if plan.buffers == 2 or plan.keeps_in:  # it comes while IN must stay
            what, beside = "IN and residual tiles in MB0, bytes", copies["IN"] * in_bytes
        else:
            what, beside = "residual tile in MB0, bytes", 0
        needs.append((what, beside + out_bytes, memories.mb0_bytes))
    for what, needed, available in needs:
        require(needed <= available, what, needed, f"at most {available}")


def longest_tile(slices: Iterable[Parts], tile: int) -> int:
    return longest(cut for parts in slices for part in parts for cut in in_tiles(part, tile))


def copies_of(plan: ConvPlan, deal: Deal, channel_tiles: int) -> dict[str, int]:
    """Places for each kind of tile: as many as the plan has buffers, one for what a TLT loads or
    makes only once a layer (a group)."""
    filter_tiles = len(in_tiles((0, deal.most_items), plan.tile_m // deal.item_filters))
    places = len(in_tiles((0, deal.most_rows), plan.tile_r))
    places *= len(in_tiles((0, deal.most_columns), plan.tile_c))
    made = {
        "IN": places * channel_tiles * (1 if plan.keeps_in else filter_tiles),
        "W": filter_tiles * (1 if plan.schedule == "WS" else places * channel_tiles),
        "OUT": places * filter_tiles,
    }
    return {tile: plan.buffers if number > 1 else 1 for tile, number in made.items()}
