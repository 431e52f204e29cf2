"""The fastest plan of a block, with its proof."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, with_prediction
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Split
from tvm_npu.codegen.nmp.plan.exact_blocks import search
from tvm_npu.codegen.nmp.plan.exact_blocks.axis import KIND_WIDTH
from tvm_npu.codegen.nmp.plan.exact_blocks.bound import SUM_WIDTH
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import (
    Spread,
    as_rows,
    block_numbers,
    machine_numbers,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.places import PLACE_WIDTH
from tvm_npu.codegen.nmp.plan.tile_overlap import TILE_WIDTH
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import share, slice_of, tile_sizes
from tvm_npu.sim.nmp.machine import NmpMachine

PREDICTED = 8
"""Plans that the search hands over to the cost model."""
SLACK = 1e-9
"""Relative allowance for rounding: sums in another order differ by far less."""


@dataclass(frozen=True)
class BlockProof:
    """A plan and why none is faster: ``bound_cycles`` is a lower bound on every plan of the space,
    and equals the plan's time where it is proven. ``nodes`` were bounded, ``opened`` of them
    searched, and ``timed`` plans timed."""

    plan: BlockPlan
    bound_cycles: float
    nodes: int
    opened: int
    timed: int


def spreads_of(problem: BlockProblem, machine: NmpMachine) -> Iterator[Spread]:
    """All ways to deal a block to TLEs and TLTs in which every TLE in use has work."""
    head, cores = problem.head, machine.cores
    for slices, parts in product(_slices(problem, machine), _grids(cores.tlts_per_tle)):
        crew = slices[2] * parts[2]
        if head.filters % crew:
            continue
        rows, columns, point = (
            share(slice_of(extent, slices[axis], 0)[1], parts[axis], 0)[1]
            for axis, extent in enumerate((head.out_rows, head.out_columns, problem.filters))
        )
        yield Spread(*slices, *parts, rows, columns, head.filters // crew, point)


def _slices(problem: BlockProblem, machine: NmpMachine) -> list[tuple[int, int, int]]:
    """Over TLEs, all of which have work. A crew of several TLEs needs all of the machine's."""
    head, tles = problem.head, machine.cores.tles

    def is_full(extent: int, slices: int) -> bool:
        return slice_of(extent, slices, slices - 1)[1] > 0

    sizes = range(1, tles + 1)
    return [
        (rows, columns, filters)
        for rows, columns, filters in product(sizes, sizes, sizes)
        if rows * columns * filters <= tles
        and (rows * columns * filters == tles or filters == 1)
        and is_full(head.out_rows, rows)
        and is_full(head.out_columns, columns)
    ]


def _grids(total: int) -> Iterator[tuple[int, int, int]]:
    """Rows x columns x filters of ``total`` cores."""
    divisors = [one for one in range(1, total + 1) if total % one == 0]
    for rows, columns in product(divisors, divisors):
        if total % (rows * columns) == 0:
            yield rows, columns, total // (rows * columns)


class Found(NamedTuple):
    """``plans`` with lower bounds of their times, the least first; the ``bound_cycles`` of all
    others; and how many nodes were bounded and opened, and plans timed."""

    plans: list[tuple[float, BlockPlan]]
    bound_cycles: float
    counts: tuple[int, int, int]


def fastest_plans(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits, count: int
) -> Found:
    """At most ``count`` plans, the fastest by the times of their slowest TLEs. The machine has
    rings."""
    spreads = sorted(spreads_of(problem, machine), key=lambda one: -_tles(one))
    if not spreads:
        return Found([], math.inf, (0, 0, 0))
    block = block_numbers(problem)
    numbers = machine_numbers(machine, problem.element_bytes, limits)
    most_r, most_c, most_m = limits.max_tile_r, limits.max_tile_c, limits.max_tile_m
    space = search.Space(
        as_rows(spreads),
        _sizes([tile_sizes(min(one.rows, most_r or one.rows)) for one in spreads]),
        _sizes([tile_sizes(min(one.columns, most_c or one.columns)) for one in spreads]),
        _sizes([_divisors(one.filters, most_m or one.filters) for one in spreads]),
    )
    scratch = _scratch(spreads, space)
    sizes = np.prod([np.count_nonzero(one, axis=1) for one in space[1:]], axis=0)
    most = 4 * machine.memories.ports * int(sizes.sum())  # with rows and IN tiles kept, or not
    nodes, bounds = np.empty((most, search.NODE_WIDTH), np.int64), np.empty(most)
    found = np.zeros((count, search.FOUND_WIDTH), np.int64)
    cycles, counts = np.full(count, math.inf), np.zeros(2, np.int64)
    all_nodes, begin = 0, 0
    for end in (_over_all(spreads, machine), len(spreads)):
        limit = float(cycles[-1]) * (1 + SLACK)
        number = search.bound_nodes(
            block, numbers, space, scratch, begin, end, limit, nodes, bounds
        )
        order = np.argsort(bounds[:number], kind="stable")
        search.open_nodes(
            block, numbers, space, scratch, nodes[order], bounds[order] * (1 - SLACK), found,
            cycles, counts,
        )  # fmt: skip
        all_nodes, begin = all_nodes + number, end
    plans = [
        (float(least), _chosen_plan(spreads[chosen[search.SPREAD]], chosen))
        for chosen, least in zip(found, cycles, strict=True)
        if least < math.inf
    ]
    return Found(plans, float(cycles[-1]), (all_nodes, int(counts[0]), int(counts[1])))


def fastest_block(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits, name: str
) -> BlockProof | None:
    """None where no plan fits. The machine has rings."""
    found = fastest_plans(problem, machine, limits, PREDICTED)
    best: BlockPlan | None = None
    best_cycles, bound = math.inf, found.bound_cycles
    for least, plan in found.plans:
        if least >= best_cycles:
            bound = min(bound, least)
            break
        if check_block(problem, plan, machine) is not None:
            continue
        prediction = predict_block(problem, plan, machine)
        if prediction.cycles < best_cycles:
            best, best_cycles = with_prediction(plan, prediction, name), prediction.cycles
    if best is None:
        return None
    return BlockProof(best, min(bound, best_cycles), *found.counts)


def _tles(spread: Spread) -> int:
    return spread.row_slices * spread.column_slices * spread.filter_slices


def _over_all(spreads: list[Spread], machine: NmpMachine) -> int:
    """How many of the spreads, which are the first, use all TLEs."""
    return sum(_tles(one) == machine.cores.tles for one in spreads)


def _divisors(total: int, most: int) -> list[int]:
    return [one for one in range(1, min(total, most) + 1) if total % one == 0]


def _sizes(lists: list[Iterable[int]]) -> NDArray[np.int64]:
    """Rows of integers, with zeros behind."""
    rows = [list(one) for one in lists]
    made = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, values in zip(made, rows, strict=True):
        row[: len(values)] = values
    return made


def _scratch(spreads: list[Spread], space: search.Space) -> search.Scratch:
    rows, columns = max(one.rows for one in spreads), max(one.columns for one in spreads)
    parts = max(max(one.row_parts, one.column_parts) for one in spreads)
    widths = space.columns.shape[1]
    longest = max(rows, columns) + 1
    # Pairs of kinds: of a spread, which shares its rows and columns.
    pairs = max((one.rows + 1) * (one.columns + 1) for one in spreads)
    return search.Scratch(
        np.empty((rows + 1, KIND_WIDTH), np.int64),
        np.empty((widths, columns + 1, KIND_WIDTH), np.int64),
        np.zeros(widths, np.int64),
        np.empty((longest, parts, 4), np.int64),
        np.empty((pairs, PLACE_WIDTH)),
        np.empty((pairs, PLACE_WIDTH)),
        np.empty((pairs, TILE_WIDTH)),
        np.empty(SUM_WIDTH),
    )


def _chosen_plan(spread: Spread, chosen: Any) -> BlockPlan:
    return plan_of(
        spread, chosen, bool(chosen[search.KEEPS_ROWS]), bool(chosen[search.KEEPS_IN]),
        bool(chosen[search.ON_CHIP]), bool(chosen[search.MACS_FIRST]),
    )  # fmt: skip


def plan_of(
    spread: Spread,
    chosen: Any,
    keeps_rows: bool,
    keeps_in: bool,
    on_chip: bool,
    macs_first: bool = False,
) -> BlockPlan:
    """``chosen`` has the sizes of tiles and rounds, and the numbers of buffers and slots, at the
    places that `search` gives them."""
    tile_r, tile_c, tile_m, tile_n, passed = (
        int(chosen[at])
        for at in (search.TILE_R, search.TILE_C, search.TILE_M, search.TILE_N, search.PASSED)
    )
    sharing = spread.row_slices * spread.column_slices
    split: Split = "KS&OFM"
    if spread.filter_slices == 1:
        split = "OFM"
    elif sharing == 1:
        split = "KS"
    head = ConvPlan(
        "multicast", split, spread.row_slices, spread.filter_slices,
        "WS" if tile_m == spread.filters else "OS", tile_m, tile_n, tile_r, tile_c,
        column_slices=spread.column_slices, tlt_rows=spread.row_parts,
        tlt_columns=spread.column_parts, keeps_in=keeps_in, ring_in=spread.filter_slices > 1,
        ring_weights=sharing > 1, weights="tiles", linear_maps=True,
        buffers=2 if chosen[search.BUFFERS] == 2 else 1, keeps_rows=keeps_rows,
        macs_first=macs_first,
    )  # fmt: skip
    slots: Literal[1, 2] = 2 if chosen[search.SLOTS] == 2 else 1
    return BlockPlan(head, passed, slots=slots, residual_on_chip=on_chip)
