"""When the tiles of a convolution come, for compiled code: steps, and the loads of each
(`steps.passes`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.plan.alike_moves import alike_maps, alike_results, nothing_known
from tvm_npu.codegen.snowflake.plan.counting import LANE
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import Choice, depth_parts
from tvm_npu.codegen.snowflake.plan.tiling import KERNEL_PLACES
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div

MOST_AHEAD = 24
"""Steps over which a load is dealt, at most (`steps.passes`)."""


class Step(NamedTuple):
    """Numbers of the tiles that a step works on."""

    tile: int
    map_row: int
    map_column: int
    depth: int


class Tiles(NamedTuple):
    """How many there are: of kernels, of rows and of columns of maps, of the depth, steps."""

    kernels: int
    down: int
    across: int
    depths: int
    steps: int


@device
def tiles_of(n: Numbers, p: Choice) -> Tiles:
    kernels, depths = ceil_div(n.filters, p.m), depth_parts(n, p.mode)
    down, across = ceil_div(n.rows.out, p.r), ceil_div(n.columns.out, p.c)
    return Tiles(kernels, down, across, depths, kernels * down * across * depths)


@device
def step_at(p: Choice, number: int, tiles: Tiles) -> Step:
    """The step with this number, tiles of the kind that stays outside (`steps.passes.grouped`)."""
    maps = tiles.down * tiles.across
    depth = number % tiles.depths
    if p.maps_stay and p.mode != LANE:
        at, tile = number // (tiles.depths * tiles.kernels), number // tiles.depths % tiles.kernels
    else:
        tile, at = number // (tiles.depths * maps), number // tiles.depths % maps
    return Step(tile, at // tiles.across, at % tiles.across, depth)


@device
def held(keys, used, count: int, key: int, number: int) -> tuple[int, bool]:
    """(last step that used the place of what step ``number`` needs, whether it lies there already);
    it replaces what was used longest ago."""
    oldest = 0
    for place in range(count):
        if keys[place] == key:
            before = used[place]
            used[place] = number
            return before, True
        if used[place] < used[oldest]:
            oldest = place
    before = used[oldest]
    keys[oldest], used[oldest] = key, number
    return before, False


class Loads(NamedTuple):
    """Units of memory and transfers by step, each [2, steps]: ``late`` are those that a step begins
    with, ``during`` come beside it, ``behind`` too, when the results of the step before have left.
    ``early`` came before the first step. ``further`` [steps] are the units of ``during`` that come
    last and that the next step does not wait for."""

    late: np.ndarray
    during: np.ndarray
    behind: np.ndarray
    early: np.ndarray
    further: np.ndarray


@device
def loads_of(
    n: Numbers, p: Choice, room: tuple[int, int, int], tiles: Tiles, moved
) -> Loads:  # fmt: skip
    """Deals all loads to steps. The first kernels come before the layer begins, if two tiles of
    them have room. ``moved`` takes the bytes of maps (and residuals) and of kernels."""
    count = n.groups * tiles.steps
    late, during, behind = np.zeros((2, count)), np.zeros((2, count)), np.zeros((2, count))
    early, further = np.zeros(2), np.zeros(count)
    map_places, kernel_places, out_places = room
    map_keys, map_used = np.full(2, -1), np.full(2, -1)
    kernel_keys, kernel_used = np.full(KERNEL_PLACES, -1), np.full(KERNEL_PLACES, -1)
    turn, number = -1, 0
    opens = True
    maps, residuals = nothing_known(), nothing_known()
    for group in range(n.groups):
        map_keys[:] = kernel_keys[:] = -1
        for s in range(tiles.steps):
            at = step_at(p, s, tiles)
            row, column = at.map_row * p.r, at.map_column * p.c
            tall, wide = min(p.r, n.rows.out - row), min(p.c, n.columns.out - column)
            key = at.map_row * tiles.across + at.map_column
            if p.mode == LANE:
                key += at.tile * tiles.down * tiles.across
            used, there = held(map_keys, map_used, map_places, key, number)
            if not there:
                size, units, parts = alike_maps(
                    n, p, group, at.tile, row, tall, column, wide, maps
                )
                moved[0] += size
                _deal(number, used, units, parts, late, during, further)
            key = at.tile * tiles.depths + at.depth
            used, there = held(kernel_keys, kernel_used, kernel_places, key, number)
            if not there:
                size, units, parts = kernels_moved(n, p, at.tile, at.depth)
                moved[1] += size
                if number == 0 and kernel_places > 1:
                    early[0], early[1] = units, parts
                else:
                    _deal(number, used, units, parts, late, during, further)
            last_turn = turn
            if opens:
                turn = (turn + 1) % out_places
            opens = at.depth == tiles.depths - 1
            if n.has_residual and at.depth == 0:
                size, units, parts = alike_results(
                    n, p, group, at.tile, row, tall, column, wide, residuals
                )
                moved[0] += size
                if turn == last_turn or number == 0:
                    late[0, number] += units
                    late[1, number] += parts
                else:
                    # With two places they take that of the results that are just being stored.
                    into = behind if out_places == 2 else during
                    into[0, number - 1] += units
                    into[1, number - 1] += parts
            number += 1
    return Loads(late, during, behind, early, further)


@device
def _deal(
    number: int, used: int, units: float, count: int, late, during, further
) -> None:  # fmt: skip
    """A load of step ``number`` into a place that step ``used`` was the last to use."""
    first = max(used + 1, number - MOST_AHEAD, 0)
    steps = number - first
    if steps <= 0:
        late[0, number] += units
        late[1, number] += count
        return
    last = number - 1
    steps = max(1, steps - 1)
    for k in range(steps):
        share = (k + 1) * count // steps - k * count // steps
        during[0, first + k] += units * share / count
        during[1, first + k] += share
        if first + k < last:
            further[first + k] += units * share / count
