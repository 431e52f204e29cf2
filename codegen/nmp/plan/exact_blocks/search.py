"""The search for the fastest plan of a block, in numba.

A node is a spread, a place, a tile of the head's filters, a number of buffers, and whether rows and
IN tiles are kept. `bound_nodes` bounds all of them; `open_nodes` goes through them, the least bound
first, until no bound is below the times that it has found, and times every number of slots, round
and number of channels of an IN tile that fits, with the products first or the loads.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tvm_npu.codegen.nmp.plan.exact_blocks.axis import add_kinds
from tvm_npu.codegen.nmp.plan.exact_blocks.bound import bound, fill_sums
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import spread_of
from tvm_npu.codegen.nmp.plan.exact_blocks.places import P_OUT, Choice, fill_choice, fill_places
from tvm_npu.codegen.nmp.plan.exact_blocks.room import fits, most_channels
from tvm_npu.codegen.nmp.plan.exact_blocks.taken import taken_steps
from tvm_npu.codegen.nmp.plan.exact_blocks.time import tle_cycles
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)

SPREAD, TILE_R, TILE_C, TILE_M, KEEPS_ROWS, KEEPS_IN, BUFFERS = range(7)
TILE_N, SLOTS, PASSED, ON_CHIP, MACS_FIRST = range(7, 12)
NODE_WIDTH, FOUND_WIDTH = 7, 12
OPENED, TIMED = range(2)


class Space(NamedTuple):
    """``spreads`` (`numbers.Spread`) and, by spread, sizes of tiles of rows, of columns and of the
    head's filters, zeros behind them."""

    spreads: Any
    rows: Any
    columns: Any
    filters: Any


class Scratch(NamedTuple):
    """For numbers on the way: kinds of turns along rows, and along columns for each of their sizes
    (how many in ``numbers``), tiles of parts, places of a TLE and of another, tiles, sums."""

    row_kinds: Any
    column_kinds: Any
    numbers: Any
    seen: Any
    places: Any
    others: Any
    tiles: Any
    sums: Any


@device
def _run(total, slices, index):
    """`problem.slice_of`."""
    size = ceil_div(total, slices)
    begin = min(index * size, total)
    return begin, min(size, total - begin)


@device
def _rivals(spread):
    return float(spread.row_slices * spread.column_slices * spread.filter_slices)


@device
def _longer(block, spread):
    """(most filters of the pointwise convolution, how many filter parts of the first slice have
    so many)."""
    count = ceil_div(block.point_filters, spread.filter_slices)
    extra = count % spread.filter_parts
    return ceil_div(count, spread.filter_parts), extra if extra else spread.filter_parts


@device
def _fill(block, machine, spread, tile_r, tile_c, keeps_rows, row_index, column_index, scratch,
          places):  # fmt: skip
    """The places of the TLE with these slices: how many kinds."""
    first, count = _run(block.out_rows, spread.row_slices, row_index)
    number_u = add_kinds(
        block, machine, True, first, count, spread.row_parts, tile_r,
        block.shared if keeps_rows else 0, scratch.seen, scratch.row_kinds,
    )  # fmt: skip
    first, count = _run(block.out_columns, spread.column_slices, column_index)
    number_v = add_kinds(
        block, machine, False, first, count, spread.column_parts, tile_c, 0, scratch.seen,
        scratch.column_kinds[0],
    )  # fmt: skip
    return fill_places(scratch.row_kinds, number_u, scratch.column_kinds[0], number_v, places)


@device
def _may_take(block, spread, tile_c):
    wide = spread.column_slices * spread.column_parts == 1 and tile_c == block.out_columns
    return block.takes and wide


@device
def _least_products(block, machine, spread):
    """Cycles of a MAC unit for the pointwise convolution, and for the head where nothing is behind
    it: no tiles take less."""
    beats = ceil_div(spread.rows * spread.columns, machine.rate)
    products = spread.point_filters * block.filters * (1 + block.twin) * beats
    if not block.has_window:
        beats = ceil_div(spread.rows * spread.columns * block.kernel, machine.rate)
        products += spread.filters * block.channels * beats
    return products * machine.beat


@entry
def bound_nodes(block, machine, space, scratch, first_spread, end, limit, nodes, bounds):
    """Fills ``nodes`` and their lower bounds, of spreads ``first_spread`` to ``end``: how many
    there are. Those of spreads that take ``limit`` cycles or more are left out."""
    found = 0
    for index in range(first_spread, end):
        spread = spread_of(space.spreads[index])
        if _least_products(block, machine, spread) >= limit:
            continue
        rivals = _rivals(spread)
        most, longer = _longer(block, spread)
        first, count = _run(block.out_columns, spread.column_slices, 0)
        for at_c in range(space.columns.shape[1]):
            tile_c = space.columns[index, at_c]
            if tile_c == 0:
                break
            scratch.numbers[at_c] = add_kinds(
                block, machine, False, first, count, spread.column_parts, tile_c, 0, scratch.seen,
                scratch.column_kinds[at_c],
            )  # fmt: skip
        first, count = _run(block.out_rows, spread.row_slices, 0)
        for at_r in range(space.rows.shape[1]):
            tile_r = space.rows[index, at_r]
            if tile_r == 0:
                break
            may_keep = block.shared > 0 and block.least_rows <= tile_r < spread.rows
            for keeps_rows in range(1 + may_keep):
                number_u = add_kinds(
                    block, machine, True, first, count, spread.row_parts, tile_r,
                    block.shared if keeps_rows else 0, scratch.seen, scratch.row_kinds,
                )  # fmt: skip
                for at_c in range(space.columns.shape[1]):
                    tile_c = space.columns[index, at_c]
                    if tile_c == 0:
                        break
                    may_take = _may_take(block, spread, tile_c)
                    number = 0
                    for at_m in range(space.filters.shape[1]):
                        tile_m = space.filters[index, at_m]
                        if tile_m == 0:
                            break
                        is_whole = tile_m == spread.filters
                        if keeps_rows and not is_whole:
                            continue
                        for buffers in range(1, machine.ports + 1):
                            for keeps_in in range(2 - is_whole):
                                choice = Choice(
                                    tile_m, keeps_in, buffers, 1, 1, keeps_rows, 0
                                )
                                whole = fits(
                                    block, machine, spread, tile_r, tile_c, choice,
                                    block.channels,
                                ) and block.channels <= machine.most_n  # fmt: skip
                                most_n = block.channels
                                if not whole:
                                    most_n = most_channels(
                                        block, machine, spread, tile_r, tile_c, choice
                                    )
                                if most_n == 0 or (keeps_in and not whole):
                                    continue
                                if number == 0:
                                    number = fill_places(
                                        scratch.row_kinds, number_u, scratch.column_kinds[at_c],
                                        scratch.numbers[at_c], scratch.places,
                                    )  # fmt: skip
                                fill_choice(
                                    block, machine, spread, rivals, choice, most, longer, number,
                                    scratch.places,
                                )  # fmt: skip
                                fill_sums(
                                    block, machine, spread, choice, scratch.places, number, True,
                                    scratch.sums,
                                )  # fmt: skip
                                bounds[found] = bound(
                                    block, machine, spread, rivals, choice,
                                    ceil_div(block.channels, most_n), may_take,
                                    scratch.places[0, P_OUT], scratch.sums,
                                )  # fmt: skip
                                node = nodes[found]
                                node[SPREAD], node[TILE_R], node[TILE_C] = index, tile_r, tile_c
                                node[TILE_M], node[KEEPS_ROWS] = tile_m, keeps_rows
                                node[KEEPS_IN], node[BUFFERS] = keeps_in, buffers
                                found += 1
    return found


@device
def _slowest(block, machine, spread, rivals, node, choice, tile_n, macs_first, longer, most,
             limit, scratch):  # fmt: skip
    """Cycles of the slowest TLE but for the first, of those with as many turns as it has; at once
    when it is no less than ``limit``."""
    slowest, position = 0.0, 0
    turns_r = ceil_div(ceil_div(_run(block.out_rows, spread.row_slices, 0)[1], spread.row_parts),
                       node[TILE_R])  # fmt: skip
    turns_c = ceil_div(
        ceil_div(_run(block.out_columns, spread.column_slices, 0)[1], spread.column_parts),
        node[TILE_C],
    )
    for i in range(spread.row_slices):
        own_r = ceil_div(_run(block.out_rows, spread.row_slices, i)[1], spread.row_parts)
        for j in range(spread.column_slices):
            own_c = ceil_div(
                _run(block.out_columns, spread.column_slices, j)[1], spread.column_parts
            )
            is_other = position > 0
            is_long = ceil_div(own_r, node[TILE_R]) == turns_r
            is_long = is_long and ceil_div(own_c, node[TILE_C]) == turns_c
            if is_other and is_long:
                number = _fill(
                    block, machine, spread, node[TILE_R], node[TILE_C], node[KEEPS_ROWS], i, j,
                    scratch, scratch.others,
                )  # fmt: skip
                fill_choice(
                    block, machine, spread, rivals, choice, most, longer, number, scratch.others
                )
                cycles = tle_cycles(
                    block, machine, spread, rivals, choice, tile_n, macs_first, position, longer,
                    scratch.others, number, scratch.tiles,
                )  # fmt: skip
                slowest = max(slowest, cycles)
                if slowest >= limit:
                    return slowest
            position += 1
    return slowest


@device
def _insert(found, cycles, node, choice, tile_n, macs_first, time):
    """Among the best, in their order, in place of the last."""
    last = found.shape[0] - 1
    at = last
    while at > 0 and cycles[at - 1] > time:
        cycles[at] = cycles[at - 1]
        for column in range(FOUND_WIDTH):
            found[at, column] = found[at - 1, column]
        at -= 1
    cycles[at] = time
    for column in range(NODE_WIDTH):
        found[at, column] = node[column]
    found[at, TILE_N], found[at, SLOTS], found[at, PASSED] = tile_n, choice.slots, choice.passed
    found[at, ON_CHIP], found[at, MACS_FIRST] = choice.on_chip, macs_first


@entry
def open_nodes(block, machine, space, scratch, nodes, bounds, found, cycles, counts):
    """Opens ``nodes`` in the order of their bounds; ``found`` and ``cycles`` are the fastest, whose
    times are infinite where there are fewer."""
    last = found.shape[0] - 1
    for number_of in range(nodes.shape[0]):
        if bounds[number_of] >= cycles[last]:
            break
        counts[OPENED] += 1
        node = nodes[number_of]
        spread = spread_of(space.spreads[node[SPREAD]])
        rivals = _rivals(spread)
        most, longer = _longer(block, spread)
        number = _fill(
            block, machine, spread, node[TILE_R], node[TILE_C], node[KEEPS_ROWS], 0, 0, scratch,
            scratch.places,
        )  # fmt: skip
        made = node[TILE_M] * (1 + block.twin)
        for on_chip in range(1 + _may_take(block, spread, node[TILE_C])):
            for slots in range(1, machine.ports + 1):
                for rounds in range(slots, made + 1):
                    if made % rounds:
                        continue
                    choice = Choice(
                        node[TILE_M], node[KEEPS_IN], node[BUFFERS], slots, made // rounds,
                        node[KEEPS_ROWS], on_chip,
                    )  # fmt: skip
                    _time_channels(
                        block, machine, spread, rivals, node, choice, most, longer, number,
                        scratch, found, cycles, counts,
                    )  # fmt: skip


@device
def _time_channels(
    block, machine, spread, rivals, node, choice, most, longer, number, scratch, found, cycles,
    counts,
):  # fmt: skip
    """Every number of channels of an IN tile, from the largest that fits on down, until steps alone
    take too long."""
    last, tile_r, tile_c = found.shape[0] - 1, node[TILE_R], node[TILE_C]
    tile_n = block.channels
    if tile_n > machine.most_n or not fits(
        block, machine, spread, tile_r, tile_c, choice, tile_n
    ):
        if choice.keeps_in:
            return
        tile_n = most_channels(block, machine, spread, tile_r, tile_c, choice)
        if tile_n == 0:
            return
    fill_choice(block, machine, spread, rivals, choice, most, longer, number, scratch.places)
    fill_sums(block, machine, spread, choice, scratch.places, number, False, scratch.sums)
    is_first = True
    while tile_n > 0:
        least = bound(
            block, machine, spread, rivals, choice, ceil_div(block.channels, tile_n),
            choice.on_chip, scratch.places[0, P_OUT], scratch.sums,
        )  # fmt: skip
        if least >= cycles[last]:
            return
        if not choice.on_chip or taken_steps(block, spread, tile_n):
            for macs_first in range(1 + (choice.buffers == 2)):
                counts[TIMED] += 1
                time = tle_cycles(
                    block, machine, spread, rivals, choice, tile_n, macs_first, 0, longer,
                    scratch.places, number, scratch.tiles,
                )  # fmt: skip
                if time < cycles[last]:
                    time = max(
                        time,
                        _slowest(
                            block, machine, spread, rivals, node, choice, tile_n, macs_first,
                            longer, most, cycles[last], scratch,
                        ),
                    )  # fmt: skip
                if time < cycles[last]:
                    _insert(found, cycles, node, choice, tile_n, macs_first, time)
        if choice.keeps_in:
            return
        tile_n -= 1
        if is_first:
            tile_n = min(
                tile_n, most_channels(block, machine, spread, tile_r, tile_c, choice)
            )
        is_first = False
