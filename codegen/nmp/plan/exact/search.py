"""The search of `exact` in numba: branch and bound over spreads, classes of tiles, and tiles.

A spread says who works on what, in which schedule, with which streams on the ring and how many
buffers (`cost.Spread`). `bounds` bounds it, or some of its tiles. `best_first` takes what can hold
something faster than what is known, the least bound first (`waiting`): it halves regions of tiles
down to classes, and opens these. Each place of a class, which is one (tile_r, tile_c), is bounded
from its own counts, then each tile_n with it, then each tile_m.

What is left out, because something in the space is at least as fast (one buffer):
  OS with a tile that WS can hold, if W comes for several turns over the rows and columns, or all
    TLTs wait for it: WS loads W once, in no more pieces; with all channels in a tile WS can hold
    it, and grouped tiles always have all channels;
  tile_m and tile_n that a smaller one equals or betters in all counts, but under OS, where the
    bursts of W depend on both together.
With two buffers, where steps hide each other, nothing but the bounds leaves anything out: no less
than all transfers of a TLE, and no less than all its MACs and the ends of its tiles.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tvm_npu.codegen.nmp.plan.exact.axes import OUT_EXTENT, STEPS
from tvm_npu.codegen.nmp.plan.exact.bounds import (
    critical_of,
    fill_bias,
    fits,
    least_of,
    least_time,
    most_at,
    most_better_kept,
    most_items,
    most_kept,
    spread_of,
)
from tvm_npu.codegen.nmp.plan.exact.cost import (
    KEEPS_IN,
    OS,
    P_LARGEST,
    P_TURNS,
    P_WINDOWS,
    channel_bursts,
    fill_place,
    finish_time,
    in_turn,
    mac_time,
    rounds,
    tle_times,
    windows,
)
from tvm_npu.codegen.nmp.plan.exact.overlap import overlapped
from tvm_npu.codegen.nmp.plan.exact.tables import CHANNEL_WIDTH, TURNS
from tvm_npu.codegen.nmp.plan.exact.waiting import COLUMNS, ROWS, drop_first, push
from tvm_npu.codegen.nmp.plan.exact.waiting import FAMILY as NUMBER
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)
"""Nothing here allocates: whoever asks brings a `scratch.Scratch`."""

SCHEDULE, TILE_M, TILE_N, TILE_R, TILE_C, FAMILY = range(6)
"""What a search has chosen; tile_m counts items."""
CLASSES, OPENED, EVALUATED = range(3)


@device
def _tile_time(
    task, speeds, spread, scratch, row_kinds, column_kinds, item_table, item_begins, item_counts,
    longest, part_table, part_begins, tile_m, tile_n, best,
):  # fmt: skip
    """Cycles of the layer with this tile; when they are no less than ``best``, anything that is
    no less either.

    The TLEs of the first filter slice are the slowest, as it is the longest, and its run of IN is,
    or those of the last, if that is shorter. The ring needs all TLEs, and so do two buffers where
    TLEs share IN."""
    places = scratch.places
    w_places = places[0, P_TURNS]  # the first slices are the longest
    most_turns = int(item_table[item_begins[0, 0] + tile_m, TURNS])
    sharing = spread.row_slices * spread.column_slices if spread.ring_weights else 1
    wants_all = speeds.ringed or (spread.buffers == 2 and spread.ring_in)
    last = spread.item_slices - 1
    slowest, ring = 0.0, 0.0
    for item_slice in range(spread.item_slices):
        kind = int(item_slice == last and item_counts[1] > 0)
        if item_slice and not kind and not wants_all:
            continue
        in_position = item_slice if spread.ring_in else 0
        part = part_table[part_begins[in_position] + tile_n]
        w_bursts = -1.0
        for index in range(spread.row_slices * spread.column_slices - 1, -1, -1):
            w_position = index if spread.ring_weights else 0
            item, place = item_table[item_begins[kind, w_position] + tile_m], places[index]
            bias = scratch.biases[index, kind]
            biases, inputs, weights, stores = bias[3], 0.0, 0.0, 0.0
            turns = most_turns if spread.ring_in else int(item[TURNS])
            if spread.buffers == 1 or speeds.ringed:
                if spread.flow == OS and (w_bursts < 0 or spread.ring_weights):
                    w_bursts = channel_bursts(
                        task, item_counts[kind], spread.runs, tile_m, tile_n, sharing, w_position
                    )
                own_w_places = w_places if spread.ring_weights else place[P_TURNS]
                inputs, weights, stores, own_ring = tle_times(
                    task, speeds, spread, place, item, part, item_counts[kind], turns,
                    own_w_places, w_bursts,
                )  # fmt: skip
                ring += own_ring
            if spread.buffers == 2:
                if item_slice == 0 or kind or spread.ring_in:
                    time = overlapped(
                        task, speeds, spread, row_kinds, column_kinds, scratch.spots[index],
                        item_counts[kind], turns, tile_m, tile_n, item_slice, w_position,
                        biases, scratch.kinds, scratch.weights, scratch.place, scratch.tile,
                    )  # fmt: skip
                    slowest = max(slowest, time * task.repeats)
            elif item_slice == 0 or kind:
                run = longest if item_slice == 0 else ceil_div(item_counts[1], spread.runs)
                macs = mac_time(task, speeds, place, item, part, run)
                macs += finish_time(task, speeds, place, item, run)
                if task.grouped:
                    time = rounds(
                        task, spread, place, item, item_counts[kind], inputs, weights, biases,
                        stores, macs,
                    )  # fmt: skip
                else:
                    time = in_turn(
                        task, spread, place, part, item_counts[kind], bias, inputs, weights,
                        biases, stores, macs, True,
                    )  # fmt: skip
                slowest = max(slowest, time * task.repeats)
            if slowest >= best:
                return slowest
    return max(slowest, ring * speeds.ring_byte * task.repeats)


@device
def _fill_tle(
    task, speeds, spread, scratch, rows, columns, bias_table, index, tile_r, tile_c, row_turns,
    column_turns,
):  # fmt: skip
    """Counts of the TLE at spatial slice ``index`` for places of tile_r x tile_c."""
    row = rows.begin[spread.rows, index // spread.column_slices] + tile_r
    column = columns.begin[spread.columns, index % spread.column_slices] + tile_c
    here, spot = scratch.places[index], scratch.spots[index]
    fill_place(rows.table, row, columns.table, column, here)
    all_rows = rows.table[row, OUT_EXTENT]
    all_columns = columns.table[column, OUT_EXTENT]
    own_rows = ceil_div(int(all_rows), spread.row_parts)
    own_columns = ceil_div(int(all_columns), spread.column_parts)
    here[P_LARGEST] = own_rows * own_columns
    here[P_WINDOWS] = windows(
        own_rows, tile_r, own_columns, tile_c, task.kernel, task.macs_per_cycle
    )
    for kind in range(2):
        table, own = bias_table[spread.items, kind], scratch.biases[index, kind]
        fill_bias(speeds, spread, all_rows, all_columns, table, own)
    spot[0], spot[1] = rows.kind_begin[row], rows.kind_count[row]
    spot[2] = spot[3] = int(rows.table[row, STEPS])
    spot[4], spot[5] = columns.kind_begin[column], columns.kind_count[column]
    spot[6] = spot[7] = int(columns.table[column, STEPS])
    if spread.ring_weights:
        spot[3], spot[7] = row_turns, column_turns


@device
def _differ(spread, part_rows, part_begins, tile_n, other):
    """Whether two tile_n have other rows, at any position of those that share IN."""
    for position in range(spread.item_slices if spread.ring_in else 1):
        begin = part_begins[position]
        for column in range(CHANNEL_WIDTH):
            if part_rows[begin + tile_n, column] != part_rows[begin + other, column]:
                return True
    return False


@device
def _search_place(
    task, room, speeds, spread, scratch, rows, columns, items, channels, critical, ws_m, most_m,
    most_n, turns, family, tile_r, tile_c, best, chosen, counts,
):  # fmt: skip
    """The fastest tile_n and tile_m of one place whose TLEs are filled in, if it takes less than
    ``best``: (its cycles or ``best``, the least bound of what was left out)."""
    least_bound = np.inf
    place, bias = scratch.places[critical], scratch.biases[critical, 0]
    longest, item_counts = items.longest[spread.items], items.count[spread.items]
    item_begins, part_begins = items.begin[spread.items], channels.begin[spread.channels]
    item_begin = item_begins[0, critical if spread.ring_weights else 0]
    part_begin = part_begins[0]
    kept_m = items.kept[items.kept_begin[spread.items] : items.kept_begin[spread.items + 1]]
    kept_n = channels.kept[
        channels.kept_begin[spread.channels] : channels.kept_begin[spread.channels + 1]
    ]
    tries_all = spread.flow == OS or spread.buffers == 2
    bounded_n, bound_n = 0, np.inf
    for index_n in range((most_n if tries_all else kept_n.size) - 1, -1, -1):
        tile_n = index_n + 1
        if spread.flow == KEEPS_IN or task.grouped:
            tile_n = task.channels
        elif not tries_all:
            tile_n = kept_n[index_n]
            if tile_n > most_n:
                continue
        part = channels.table[part_begin + tile_n]
        if bounded_n == 0 or _differ(spread, channels.lowest, part_begins, tile_n, bounded_n):
            bounded_n = tile_n
            bound_n = least_time(
                task, speeds, spread, place, items.lowest[item_begin + most_m],
                channels.lowest[part_begin + tile_n], item_counts[0], longest, bias, False,
            )  # fmt: skip
        if bound_n >= best:
            least_bound = min(least_bound, bound_n)
            break
        top_m = most_items(task, room, spread, most_m, tile_n, longest, turns)
        bottom_m = 1
        if spread.flow == OS:
            bottom_m += most_better_kept(spread, ws_m, turns)
        if top_m >= bottom_m:
            bound = least_time(
                task, speeds, spread, place, items.lowest[item_begin + top_m], part,
                item_counts[0], longest, bias, True,
            )  # fmt: skip
            if bound >= best:
                least_bound = min(least_bound, bound)
                top_m = 0
        last_m = min(top_m, kept_m.size)
        for index_m in range((top_m if tries_all else last_m) - 1, -1, -1):
            tile_m = index_m + 1 if tries_all else kept_m[index_m]
            if tile_m > top_m:
                continue
            if tile_m < bottom_m:
                break
            bound = least_time(
                task, speeds, spread, place, items.lowest[item_begin + tile_m], part,
                item_counts[0], longest, bias, True,
            )  # fmt: skip
            if bound >= best:
                least_bound = min(least_bound, bound)
                break
            m_turns = ceil_div(longest, tile_m)
            if not fits(task, room, spread, tile_m, tile_n, tile_r, tile_c, m_turns, turns):
                continue
            counts[EVALUATED] += 1
            time = _tile_time(
                task, speeds, spread, scratch, rows.kinds, columns.kinds,
                items.table, item_begins, item_counts, longest, channels.table,
                part_begins, tile_m, tile_n, best,
            )  # fmt: skip
            if time < best:
                best = time
                chosen[SCHEDULE], chosen[FAMILY] = spread.flow, family
                chosen[TILE_M], chosen[TILE_N] = tile_m, tile_n
                chosen[TILE_R], chosen[TILE_C] = tile_r, tile_c
        if spread.flow == KEEPS_IN or task.grouped:
            break
    return best, least_bound


@device
def _open_class(
    task, room, speeds, spread, rows, columns, items, channels, family, row_class, column_class,
    best, scratch, chosen, counts,
):  # fmt: skip
    """The fastest plan of one class, if it takes less than ``best``: (its cycles or ``best``, the
    least bound of what was left out)."""
    least_bound, bound = np.inf, np.inf
    longest, item_counts = items.longest[spread.items], items.count[spread.items]
    item_begins, part_begins = items.begin[spread.items], channels.begin[spread.channels]
    i, j = critical_of(spread)
    critical = i * spread.column_slices + j
    item_begin = item_begins[0, critical if spread.ring_weights else 0]
    place, bias = scratch.places[critical], scratch.biases[critical, 0]
    ws_m = most_kept(task, room, spread, items)
    ws_m = min(ws_m, room.tile_m // task.item_filters)
    row = rows.region_begin[spread.rows, 0] + row_class
    column = columns.region_begin[spread.columns, 0] + column_class
    spatial = spread.row_slices * spread.column_slices
    for tile_r in range(rows.smallest[row], min(rows.largest[row], room.tile_r) + 1):
        for tile_c in range(
            columns.smallest[column], min(columns.largest[column], room.tile_c) + 1
        ):
            row_turns = ceil_div(rows.longest[spread.rows], tile_r)
            column_turns = ceil_div(columns.longest[spread.columns], tile_c)
            turns = row_turns * column_turns
            most_m, most_n = most_at(task, room, spread, tile_r, tile_c, longest, turns, ws_m)
            if most_m == 0 or most_n == 0:
                break
            # First the critical TLE, for a bound, then the others.
            for turn in range(spatial):
                index = (critical + turn) % spatial
                _fill_tle(
                    task, speeds, spread, scratch, rows, columns, items.bias, index, tile_r,
                    tile_c, row_turns, column_turns,
                )  # fmt: skip
                if turn == 0:
                    bound = least_time(
                        task, speeds, spread, place, items.lowest[item_begin + most_m],
                        channels.lowest[part_begins[0] + most_n], item_counts[0], longest, bias,
                        False,
                    )  # fmt: skip
                    if bound >= best:
                        break
            if bound < best:
                best, bound = _search_place(
                    task, room, speeds, spread, scratch, rows, columns, items, channels, critical,
                    ws_m, most_m, most_n, turns, family, tile_r, tile_c, best, chosen, counts,
                )  # fmt: skip
            least_bound = min(least_bound, bound)
    return best, least_bound


@device
def _halve(
    task, room, speeds, spread, rows, columns, items, channels, family, row_region, column_region,
    best, scratch, waiting, counts,
):  # fmt: skip
    """Puts the halves of a region that may hold something faster than ``best`` into ``waiting``:
    the least bound of the others. That of the rows is halved, or that of the columns, whose tiles
    differ more in extent."""
    row = rows.region_begin[spread.rows, 0] + row_region
    column = columns.region_begin[spread.columns, 0] + column_region
    least_bound = np.inf
    ws_m = most_kept(task, room, spread, items)
    of_rows = column_region < columns.classes[spread.columns] or (
        row_region >= rows.classes[spread.rows]
        and rows.largest[row] * columns.smallest[column]
        >= columns.largest[column] * rows.smallest[row]
    )
    for half in range(2):
        a, b = row_region, column_region
        if of_rows:
            a = rows.halves[row, half]
        else:
            b = columns.halves[column, half]
        if a < 0 or b < 0:
            continue
        bound = least_of(
            task, room, speeds, spread, rows, columns, items, channels, a, b, ws_m, scratch.place,
            scratch.bias,
        )  # fmt: skip
        is_class = a < rows.classes[spread.rows] and b < columns.classes[spread.columns]
        counts[CLASSES] += is_class and bound < np.inf
        if bound < best:
            push(waiting, bound, is_class, family, a, b)
        least_bound = min(least_bound, bound if bound >= best else np.inf)
    return least_bound


@entry
def best_first(
    task, room, speeds, rows, columns, items, channels, families, waiting, best, scratch, chosen,
    counts,
):  # fmt: skip
    """The fastest plan of less than ``best`` cycles in what is ``waiting``. That is empty then;
    else it is full, and the search wants more room to go on.

    Returns (its cycles or ``best``, the least bound of what was not opened). Fills ``chosen``
    (schedule, tile_m in items, tile_n, tile_r, tile_c, family; all 0 without a plan) and
    ``counts`` (classes bounded, classes opened, tiles timed)."""
    least_bound = np.inf
    while 0 < waiting.count[0] < waiting.bounds.shape[0]:
        bound = waiting.bounds[0]
        if bound >= best:
            waiting.count[0] = 0
            return best, min(least_bound, bound)
        family, a, b = waiting.keys[0, NUMBER], waiting.keys[0, ROWS], waiting.keys[0, COLUMNS]
        drop_first(waiting)
        spread = spread_of(families[family])
        if a < rows.classes[spread.rows] and b < columns.classes[spread.columns]:
            counts[OPENED] += 1
            best, bound = _open_class(
                task, room, speeds, spread, rows, columns, items, channels, family, a, b, best,
                scratch, chosen, counts,
            )  # fmt: skip
        else:
            bound = _halve(
                task, room, speeds, spread, rows, columns, items, channels, family, a, b, best,
                scratch, waiting, counts,
            )  # fmt: skip
        least_bound = min(least_bound, bound)
    return best, least_bound
