"""Traffic, MAC time and one-buffer time of a TLE in numba: `cost.predict` from the tables.

A stream's traffic is a product of counts that depend on one extent of the tile each. With the
least of every count instead, over some set of tiles, the same functions give bounds for the set:
time grows with each of them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.nmp.plan.exact.axes import (
    IN_EXTENT,
    IN_LINES,
    IN_SINGLE,
    IN_TILES,
    IN_WHOLE,
    OUT_EXTENT,
    OUT_LINES,
    OUT_SINGLE,
    OUT_TILES,
    OUT_WHOLE,
    STEPS,
)
from tvm_npu.codegen.nmp.plan.exact.tables import (
    DENSE,
    IN_MERGED,
    LOADED,
    LOADS,
    MERGED,
    MOVES,
    OUT_MERGED,
    PARTS,
    TURNS,
    W_BURSTS,
    W_FILTERS,
    W_LOADS,
)
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

BIASES = 4
"""Of the biases of a TLE: transfers, bursts, bytes, cycles of its engine."""

WS, OS, KEEPS_IN = 0, 1, 2
"""Schedules; IS costs what OS does with all filters of a TLT in a tile."""

# Columns of a place: all tiles over the rows and columns of a TLE, for one channel, one filter.
P_TURNS = 0
P_IN, P_IN_BURSTS, P_IN_LINEAR, P_IN_AREA, P_IN_WHOLE = range(1, 6)
P_OUT, P_OUT_BURSTS, P_OUT_LINEAR, P_OUT_AREA, P_OUT_WHOLE = range(6, 11)
P_WINDOWS, P_LARGEST = 11, 12  # of the first TLT: MAC cycles, OFM positions
PLACE_WIDTH = 13


class Speeds(NamedTuple):
    """Cycles of the machine: a transfer, a burst of a 3-D one, a burst of a 1-D one, a byte, and
    what forwarding adds to a transfer, on the engine of a TLE; a burst and a byte of the DRAM; a
    byte of the ring; a MAC unit's work (the inverse of its efficiency), step and end of a tile.
    ``ringed``: whether the ring can take longer than every TLE does; the DRAM cannot, as engines
    wait for one another at it."""

    transfer: float
    burst: float
    linear_burst: float
    byte: float
    hop: float
    dram_burst: float
    dram_byte: float
    ring_byte: float
    mac: float
    mac_step: float
    mac_ahead: float
    mac_ahead_ws: float
    mac_end: float
    ringed: int


class Spread(NamedTuple):
    """A spread of the layer over TLEs and TLTs, with a schedule. The first four are rows of the
    tables' ``begin``; ``spatial`` parts of the TLTs differ in rows and columns, ``runs`` in
    filters; ``rivals`` are `traffic.rivals`."""

    rows: int
    columns: int
    items: int
    channels: int
    row_slices: int
    column_slices: int
    item_slices: int
    spatial: int
    runs: int
    flow: int
    ring_in: int
    ring_weights: int
    buffers: int
    row_parts: int
    column_parts: int
    rivals: float


@device
def engine(speeds, spread, transfers, bursts, linear, volume):
    """Cycles of the DMA engine of a TLE: all that is known of the time of transfers, with
    ``bursts`` in 3-D and ``linear`` bursts in 1-D ones (`Traffic.engine_cycles`)."""
    setup = transfers * speeds.transfer
    alone = volume * speeds.byte + bursts * speeds.burst + linear * speeds.linear_burst
    shared = (bursts + linear) * speeds.dram_burst + volume * speeds.dram_byte
    if spread.buffers == 2:
        return setup + max(alone, spread.rivals * shared)
    return max(setup + alone, spread.rivals * shared)


@device
def fill_place(rows, row, columns, column, place):
    """The products of a row of the table of rows and one of columns."""
    r, c = rows[row], columns[column]
    place[P_TURNS] = r[STEPS] * c[STEPS]
    place[P_IN] = r[IN_TILES] * c[IN_TILES]
    place[P_IN_AREA] = r[IN_EXTENT] * c[IN_EXTENT]
    place[P_IN_BURSTS] = r[IN_EXTENT] * c[IN_LINES] + r[IN_LINES] * c[IN_SINGLE]
    place[P_IN_LINEAR] = r[IN_SINGLE] * c[IN_WHOLE]
    place[P_IN_WHOLE] = r[IN_WHOLE] * c[IN_WHOLE]
    place[P_OUT] = r[OUT_TILES] * c[OUT_TILES]
    place[P_OUT_AREA] = r[OUT_EXTENT] * c[OUT_EXTENT]
    place[P_OUT_BURSTS] = r[OUT_EXTENT] * c[OUT_LINES] + r[OUT_LINES] * c[OUT_SINGLE]
    place[P_OUT_LINEAR] = r[OUT_SINGLE] * c[OUT_WHOLE]
    place[P_OUT_WHOLE] = r[OUT_WHOLE] * c[OUT_WHOLE]


@device
def windows(rows, tile_r, columns, tile_c, kernel, rate):
    """MAC cycles per channel and filter of all tiles of a TLT with ``rows`` x ``columns``."""
    full_r, rest_r = rows // tile_r, rows % tile_r
    full_c, rest_c = columns // tile_c, columns % tile_c
    total = full_r * full_c * ceil_div(tile_r * tile_c * kernel, rate)
    if rest_r:
        total += full_c * ceil_div(rest_r * tile_c * kernel, rate)
    if rest_c:
        total += full_r * ceil_div(tile_r * rest_c * kernel, rate)
        if rest_r:
            total += ceil_div(rest_r * rest_c * kernel, rate)
    return total


@device
def least_windows(area, turns, kernel, rate):
    """The least that `windows` can be for ``area`` OFM positions in so many turns."""
    return max(turns, np.ceil(area * kernel / rate))


@device
def own_run(tile, extent, sharing, index):
    """Of ``extent`` filters or channels of a shared tile what run ``index`` of ceil(tile /
    sharing) has; ``tile`` is that of the plan, ``extent`` may be a ragged rest."""
    if sharing == 1:
        return extent
    run = ceil_div(tile, sharing)
    return max(0, min(run, extent - index * run))


@device
def turn_weights(task, tile_m, long, longer, short, shorter, sharing, position, channels):
    """(loads, bursts, filters) of the W tiles of a turn with ``channels`` channels: ``longer``
    filter parts have ``long`` filters, the ``shorter`` ones after them ``short``."""
    loads, bursts, filters = 0, 0, 0
    filter_bytes = channels * task.kernel * task.element_bytes
    for is_short in range(2):
        size, parts = (short, shorter) if is_short else (long, longer)
        if size == 0 or parts == 0:
            continue
        first = longer if is_short else 0
        for index in range(min(sharing, parts)):
            number = ceil_div(parts - index, sharing)
            own = own_run(tile_m, size, sharing, (position + first + index) % sharing)
            if own:
                loads += number
                filters += number * own
                bursts += number * ceil_div(own * filter_bytes, task.burst_bytes)
    return loads, bursts, filters


@device
def channel_bursts(task, items, runs, tile_m, tile_n, sharing, position):
    """Bursts of all W tiles of a TLE over one place, of ``tile_n`` channels each."""
    base, extra = items // runs, items % runs
    turns = ceil_div(base + (extra > 0), tile_m)
    last_long = base + (extra > 0) - (turns - 1) * tile_m
    last_short = max(0, base - (turns - 1) * tile_m)
    longer = extra if extra else runs
    full, rest = task.channels // tile_n, task.channels % tile_n
    total = 0
    for is_rest in range(2):
        channels, times = (rest, 1) if is_rest else (tile_n, full)
        if channels == 0 or times == 0:
            continue
        if turns > 1:
            _, bursts, _ = turn_weights(
                task, tile_m, tile_m, runs, 0, 0, sharing, position, channels
            )
            total += times * (turns - 1) * bursts
        _, bursts, _ = turn_weights(
            task, tile_m, last_long, longer, last_short, runs - longer, sharing, position, channels
        )
        total += times * bursts
    return total


@device
def loads_of(task, spread, place, item, part, items, turns, w_places, w_bursts):
    """Of a TLE with ``items`` items: (transfers, bursts of 3-D ones, of 1-D ones, bytes) of IN,
    (transfers, bursts, bytes) of W.

    ``item`` and ``part`` are rows of the tables, ``turns`` and ``w_places`` those in which IN and
    W are loaded; ``w_bursts`` are those of a place under OS, or -1 for their least."""
    size = task.element_bytes
    if task.grouped:
        transfers = item[MOVES] * place[P_IN]
        channels = items * task.channels
        bursts = channels * place[P_IN_BURSTS]
        linear = channels * place[P_IN_LINEAR] + item[IN_MERGED] * place[P_IN_WHOLE]
        volume = channels * size * place[P_IN_AREA]
    else:
        times = 1 if spread.flow == KEEPS_IN else turns
        transfers = times * part[LOADS] * place[P_IN]
        bursts = times * part[LOADED] * place[P_IN_BURSTS]
        linear = times * (part[LOADED] * place[P_IN_LINEAR] + part[MERGED] * place[P_IN_WHOLE])
        volume = times * part[LOADED] * size * place[P_IN_AREA]
    w_transfers = item[W_LOADS]
    w_volume = item[W_FILTERS] * task.channels * task.kernel * size
    bursts_each = item[W_BURSTS]
    if spread.flow == OS:
        w_transfers *= part[PARTS]
        if w_bursts < 0:
            bursts_each = max(w_transfers, np.ceil(w_volume / task.burst_bytes))
        else:
            bursts_each = w_bursts
    if spread.flow != WS:
        w_transfers *= w_places
        bursts_each *= w_places
        w_volume *= w_places
    return transfers, bursts, linear, volume, w_transfers, bursts_each, w_volume


@device
def stores_of(task, place, item, items):
    """(transfers, bursts of 3-D ones, of 1-D ones, bytes) of OUT of a TLE."""
    filters = items * task.item_filters
    return (
        item[MOVES] * place[P_OUT],
        filters * place[P_OUT_BURSTS],
        filters * place[P_OUT_LINEAR] + item[OUT_MERGED] * place[P_OUT_WHOLE],
        filters * task.element_bytes * place[P_OUT_AREA],
    )


@device
def mac_time(task, speeds, place, item, part, longest):
    """MAC time of the TLT with ``longest`` items, which has the most of everything."""
    filters = longest * task.item_filters
    if task.dense:
        units = filters * part[DENSE] * place[P_TURNS]
    else:
        units = filters * task.channels * place[P_WINDOWS]
    return units * speeds.mac + item[TURNS] * part[PARTS] * place[P_TURNS] * speeds.mac_step


@device
def finish_time(task, speeds, place, item, longest):
    """`mac_time.all_finish_cycles` of the TLT with ``longest`` items."""
    tiles = item[TURNS] * place[P_TURNS]
    beats = np.ceil(longest * task.item_filters * place[P_LARGEST] / task.macs_per_cycle)
    return (1 + task.residual) * (max(beats, tiles) * speeds.mac + tiles * speeds.mac_end)


@device
def tle_times(task, speeds, spread, place, item, part, items, turns, w_places, w_bursts):
    """(cycles of the DMA engine of a TLE for IN, W, OUT with residual tiles; bytes over the Global
    Ringbus)."""
    in_moves, in_bursts, in_linear, in_bytes, w_moves, w_linear, w_bytes = loads_of(
        task, spread, place, item, part, items, turns, w_places, w_bursts
    )
    out_moves, out_bursts, out_linear, out_bytes = stores_of(task, place, item, items)
    inputs = engine(speeds, spread, in_moves, in_bursts, in_linear, in_bytes)
    inputs += spread.ring_in * in_moves * speeds.hop
    weights = engine(speeds, spread, w_moves, 0, w_linear, w_bytes)
    weights += spread.ring_weights * w_moves * speeds.hop
    stores = engine(speeds, spread, out_moves, out_bursts, out_linear, out_bytes)
    ring = spread.ring_in * in_bytes + spread.ring_weights * w_bytes
    return inputs, weights, (1 + task.residual) * stores, ring


@device
def in_turn(
    task, spread, place, part, items, bias, inputs, weights, biases, stores, macs, is_exact
):  # fmt: skip
    """`in_turn.in_turn_cycles` of a TLE with ``items`` filters; a lower bound of it if channel
    steps and turns over rows and columns are not what they are, but the least."""
    time = inputs + weights + biases + stores + macs
    parts, steps, turns = min(items, spread.runs), part[PARTS], place[P_TURNS]
    if spread.flow == OS:
        if spread.spatial > 1 or spread.ring_in or spread.ring_weights:
            return time
        if is_exact and steps == 1:
            return time
        return time - min(min(1.0 / parts, 1.0 - 1.0 / parts) * weights, 0.25 * macs)
    tlt_places = max(1.0, bias[0] / parts)
    by_place, by_part = 1.0 - 1.0 / tlt_places, 1.0 - 1.0 / parts
    early, late = by_place / (1.0 + spread.ring_in), by_part
    if tlt_places == 1:
        late = 0.0 if spread.ring_weights else min((1.0 + spread.ring_in) / parts, by_part)
    if spread.flow == KEEPS_IN:
        return time - min(late * weights, by_part * stores, macs)
    if steps > 1:
        return time - min(early * inputs / steps, by_place * stores, macs / steps)
    if not is_exact:
        before = early * inputs + late * weights
        return time - min(before, max(by_part, by_place) * stores, macs)
    new = 1.0 / turns
    time -= min(late * weights, new * by_part * stores, new * macs)
    old = 1.0 - new
    return time - min(old * early * inputs, old * by_place * stores, old * macs)


@device
def rounds(task, spread, place, item, items, inputs, weights, biases, stores, macs):
    """`rounds.rounds_cycles` of a TLE with ``items`` groups."""
    own = stores / (1 + task.residual)
    loads = inputs + weights + (stores - own)
    transfers = loads + biases + own
    n, k = min(items, spread.runs), item[TURNS] * place[P_TURNS]
    if n == 1:
        return transfers + macs
    load, store, mac = loads / (n * k), own / (n * k), macs / k
    if k == 1:
        return max(transfers, biases + mac + max(load + n * store, n * load + store))
    first = max(n * load, load + mac)
    middle = max(n * (load + store), load + store + mac)
    time = biases + first + n * (load + store) + (k - 2) * middle + mac + store
    return max(transfers + max(0.0, mac - (n - 1) * load), time)
