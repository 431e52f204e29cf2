"""The inner loops of TSO in numba: Algorithm 3 over the paper's own estimate, Equations 3-9.

The estimate is what the paper prints, not what a machine does; `cost` counts that. It takes

- IN tiles once a TLE, which is what a multicast does.
- W tiles as often as Equation 3 has it, alpha_w = alpha_in: once a TLE, one TLT's tile. That each
  TLT loads its own is left out, under WS (once a tile of filters) as well.
- OUT tiles for every TLT: once for every T_M filters, Equations 4 and 5.
- Every transfer after another: a setup, CAS a burst and bytes / BW (Algorithm 4), BW being what one
  engine moves; MACs of whole tiles (Equations 7 and 8) at the reachable rate; for each step (T_SW)
  the start of a MAC instruction.

Tiles at the edges count as whole ones, but for the last channels: IN and W tiles bring no channel
that is not there. TSO-noburst is the same sum without CAS.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div

IS, OS, WS = 0, 1, 2
NEVER = np.inf


class Layer(NamedTuple):
    """A convolution (one group's, or a grouped one) in integers; spans include dilation."""

    filters: int
    channels: int
    groups: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: int
    stride_rows: int
    stride_columns: int
    span_rows: int
    span_columns: int
    element_bytes: int
    residual: int
    dense: int


class Bounds(NamedTuple):
    """Scratchpad sizes in bytes (``mb2`` already includes the residual's bound) and tile limits."""

    mb0: int
    mb1: int
    mb2: int
    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int


class Rates(NamedTuple):
    """Cycles per transfer, burst, byte, use of the datapath and step."""

    transfer: float
    burst: float
    byte: float
    mac: float
    step: float
    burst_bytes: int
    macs_per_cycle: int


class Slice(NamedTuple):
    """What a TLE works on: OFM rows and filters (or groups); TLTs in it."""

    rows: int
    items: int
    tlts: int


@device
def _next_count(total, part, last):
    """The smallest larger part size (or last + 1) that cuts ``total`` into fewer pieces."""
    pieces = ceil_div(total, part)
    return last + 1 if pieces <= 1 else ceil_div(total, pieces - 1)


@device
def _is_flat_out(layer):
    return layer.rows * layer.columns == 1


@device
def _is_flat_in(layer):
    spans = layer.span_rows * layer.span_columns
    return _is_flat_out(layer) and layer.in_rows * layer.in_columns * spans == 1


@device
def _map_bursts(channels, rows, columns, width, flat, element_bytes, burst_bytes):
    """CalBurstCount (Algorithm 4): a run a row, or a run a channel at full width."""
    if flat:
        return ceil_div(channels * element_bytes, burst_bytes)
    if columns == width:
        return channels * ceil_div(rows * columns * element_bytes, burst_bytes)
    return channels * rows * ceil_div(columns * element_bytes, burst_bytes)


@device
def _w_bursts(layer, rates, filters, tile_n):
    """Bursts of all W tiles of ``filters`` filters: a run a filter, or one in all when the tile
    has all channels."""
    channel_bytes = layer.kernel * layer.element_bytes
    if tile_n == layer.channels:
        return ceil_div(filters * tile_n * channel_bytes, rates.burst_bytes)
    full, rest = layer.channels // tile_n, layer.channels % tile_n
    bursts = full * ceil_div(tile_n * channel_bytes, rates.burst_bytes)
    return filters * (bursts + ceil_div(rest * channel_bytes, rates.burst_bytes))


@device
def _time(rates, transfers, bursts, volume, units, steps):
    return (
        transfers * rates.transfer
        + bursts * rates.burst
        + volume * rates.byte
        + units * rates.mac
        + steps * rates.step
    )


@device
def multicast_time(layer, rates, part, schedule, tile_m, tile_n, tile_r, tile_c):
    """The estimate for a TLE: ``tile_m`` filters a TLT, ``tile_n`` channels, IN by multicast."""
    size, burst = layer.element_bytes, rates.burst_bytes
    active = min(part.items, part.tlts)
    tiles_m = ceil_div(ceil_div(part.items, part.tlts), tile_m)
    places = ceil_div(part.rows, tile_r) * ceil_div(layer.columns, tile_c)
    tiles_n = ceil_div(layer.channels, tile_n)
    full, rest = layer.channels // tile_n, layer.channels % tile_n
    walks = tiles_m * places
    steps = walks * tiles_n

    in_rows = min((tile_r - 1) * layer.stride_rows + layer.span_rows, layer.in_rows)
    in_columns = min((tile_c - 1) * layer.stride_columns + layer.span_columns, layer.in_columns)
    flat, width = _is_flat_in(layer), layer.in_columns
    in_bursts = full * _map_bursts(tile_n, in_rows, in_columns, width, flat, size, burst)
    if rest:
        in_bursts += _map_bursts(rest, in_rows, in_columns, width, flat, size, burst)
    w_walks, w_depth = walks, tile_n
    if schedule == WS:
        w_walks, w_depth = tiles_m, layer.channels
    out_moves = active * walks * (1 + layer.residual)
    out_bursts = _map_bursts(
        tile_m, tile_r, tile_c, layer.columns, _is_flat_out(layer), size, burst
    )

    transfers = walks * tiles_n + w_walks * ceil_div(layer.channels, w_depth) + out_moves
    bursts = walks * in_bursts + w_walks * _w_bursts(layer, rates, tile_m, w_depth)
    bursts += out_moves * out_bursts
    volume = walks * layer.channels * in_rows * in_columns
    volume += w_walks * tile_m * layer.channels * layer.kernel
    volume += out_moves * tile_m * tile_r * tile_c
    rate = rates.macs_per_cycle
    if layer.dense:
        units = full * ceil_div(tile_n, rate) + ceil_div(rest, rate)
    else:
        units = layer.channels * ceil_div(tile_r * tile_c * layer.kernel, rate)
    units *= walks * tile_m
    return _time(rates, transfers, bursts, volume * size, units, steps)


@device
def grouped_time(layer, rates, part, schedule, tile_m, tile_r, tile_c):
    """The estimate for TLTs that own whole groups, ``tile_m`` of them a tile: nothing is shared,
    every tile counts for itself."""
    size, burst = layer.element_bytes, rates.burst_bytes
    active = min(part.items, part.tlts)
    tiles_m = ceil_div(ceil_div(part.items, part.tlts), tile_m)
    places = ceil_div(part.rows, tile_r) * ceil_div(layer.columns, tile_c)
    filters = tile_m * (layer.filters // layer.groups)
    depth = layer.channels // layer.groups
    in_rows = min((tile_r - 1) * layer.stride_rows + layer.span_rows, layer.in_rows)
    in_columns = min((tile_c - 1) * layer.stride_columns + layer.span_columns, layer.in_columns)
    channels = tile_m * depth

    in_loads = active * tiles_m * places
    w_loads = active * tiles_m * (1 if schedule == WS else places)
    out_moves = in_loads * (1 + layer.residual)
    bursts = in_loads * _map_bursts(
        channels, in_rows, in_columns, layer.in_columns, _is_flat_in(layer), size, burst
    )
    bursts += w_loads * ceil_div(filters * depth * layer.kernel * size, burst)
    bursts += out_moves * _map_bursts(
        filters, tile_r, tile_c, layer.columns, _is_flat_out(layer), size, burst
    )
    volume = in_loads * channels * in_rows * in_columns
    volume += w_loads * filters * depth * layer.kernel + out_moves * filters * tile_r * tile_c
    units = filters * depth * ceil_div(tile_r * tile_c * layer.kernel, rates.macs_per_cycle)
    steps = tiles_m * places
    return _time(rates, in_loads + w_loads + out_moves, bursts, volume * size, steps * units, steps)


@entry
def multicast_cycles(layer, rates, part, schedule, tile_m, tile_n, tile_r, tile_c):
    """`multicast_time` for Python."""
    return multicast_time(layer, rates, part, schedule, tile_m, tile_n, tile_r, tile_c)


@entry
def grouped_cycles(layer, rates, part, schedule, tile_m, tile_r, tile_c):
    """`grouped_time` for Python."""
    return grouped_time(layer, rates, part, schedule, tile_m, tile_r, tile_c)


@device
def most_filters(part, schedule):
    """T_M by GetFilters before memories: all filters of the TLT. An OS tile has half of them at
    most, where there are two: with all of them it would reload nothing, which is what IS is."""
    per_tlt = ceil_div(part.items, part.tlts)
    return ceil_div(per_tlt, 2) if schedule == OS else per_tlt


@device
def _best_channels(layer, rates, filters, widest):
    """Under IS, where T_N changes no more than the loads and the bursts of W: the best T_N of
    those up to n, for every n up to ``widest``."""
    best = np.empty(widest + 1, np.int64)
    least, best[0] = NEVER, 0
    for tile_n in range(1, widest + 1):
        tiles_n = ceil_div(layer.channels, tile_n)
        time = 2 * tiles_n * rates.transfer + tiles_n * rates.step
        time += _w_bursts(layer, rates, filters, tile_n) * rates.burst
        best[tile_n] = best[tile_n - 1]
        if time < least:
            least, best[tile_n] = time, tile_n
    return best


@device
def _least_time(layer, rates, part, tile_m, tile_r, tile_c):
    """What no OS tile of these rows and columns and up to ``tile_m`` filters is below."""
    size = layer.element_bytes
    per_tlt, active = ceil_div(part.items, part.tlts), min(part.items, part.tlts)
    places = ceil_div(part.rows, tile_r) * ceil_div(layer.columns, tile_c)
    in_rows = min((tile_r - 1) * layer.stride_rows + layer.span_rows, layer.in_rows)
    in_columns = min((tile_c - 1) * layer.stride_columns + layer.span_columns, layer.in_columns)
    volume = ceil_div(per_tlt, tile_m) * places * layer.channels * in_rows * in_columns
    volume += places * per_tlt * layer.channels * layer.kernel
    volume += active * places * (1 + layer.residual) * per_tlt * tile_r * tile_c
    if layer.dense:
        units = ceil_div(layer.channels, rates.macs_per_cycle)
    else:
        units = layer.channels * ceil_div(tile_r * tile_c * layer.kernel, rates.macs_per_cycle)
    return volume * size * rates.byte + places * per_tlt * units * rates.mac


@entry
def best_tile(layer, bounds, rates, part, schedule, best_time):
    """Algorithm 3 for one TLE slice and one schedule, multicast mode: the first best over all
    T_R, T_C, T_N with less than ``best_time``; T_M by GetFilters (IS: all filters of the TLT; OS,
    WS: the most that fit). T_M is 0 when there is none.

    A candidate is passed over without being timed when the one before it along an axis has the
    same tile counts, the same T_M and the same kind of segments: that one is smaller, hence
    never slower, and comes first.
    """
    best_m, best_n, best_r, best_c = 0, 0, 0, 0
    size, tap_bytes = layer.element_bytes, layer.kernel * layer.element_bytes
    per_tlt = ceil_div(part.items, part.tlts)
    most = min(most_filters(part, schedule), bounds.tile_m)
    if schedule == WS:
        most = min(most, bounds.mb1 // (layer.channels * tap_bytes))
    if most == 0 or (schedule == IS and most < per_tlt):
        return best_time, best_m, best_n, best_r, best_c
    least = per_tlt if schedule == IS else 1
    deepest = min(layer.channels, bounds.tile_n)
    if schedule != WS:
        deepest = min(deepest, bounds.mb1 // (least * tap_bytes))
    # T_N matters to more than loads and W: to the bursts of IN vectors, to rounded MACs.
    by_hand = schedule == OS or layer.dense or _is_flat_in(layer)
    by_hand = by_hand or rates.transfer + rates.step == 0.0
    channels = _best_channels(layer, rates, per_tlt, 0 if by_hand else deepest)
    for tile_r in range(1, min(part.rows, bounds.tile_r) + 1):
        in_rows = (tile_r - 1) * layer.stride_rows + layer.span_rows
        if in_rows * layer.span_columns * size > bounds.mb0:
            break
        if least * tile_r * size > bounds.mb2:
            break
        tiles_r = ceil_div(part.rows, tile_r)
        same_r = tile_r > 1 and tiles_r == ceil_div(part.rows, tile_r - 1)
        tiles_c, cap_c, full_c = 0, 0, False
        for tile_c in range(1, min(layer.columns, bounds.tile_c) + 1):
            in_columns = (tile_c - 1) * layer.stride_columns + layer.span_columns
            if in_rows * in_columns * size > bounds.mb0:
                break
            cap = min(most, bounds.mb2 // (tile_r * tile_c * size))
            if cap < least:
                break
            if same_r and cap == min(most, bounds.mb2 // ((tile_r - 1) * tile_c * size)):
                continue
            full = in_columns >= layer.in_columns
            if ceil_div(layer.columns, tile_c) == tiles_c and cap == cap_c and full == full_c:
                continue
            tiles_c, cap_c, full_c = ceil_div(layer.columns, tile_c), cap, full
            widest = min(deepest, bounds.mb0 // (in_rows * in_columns * size))
            if widest == 0:
                continue
            if not by_hand:
                if schedule == IS:
                    tile_n = channels[widest]
                else:  # the first that needs the fewest loads
                    tile_n = ceil_div(layer.channels, ceil_div(layer.channels, widest))
                time = multicast_time(layer, rates, part, schedule, cap, tile_n, tile_r, tile_c)
                if time < best_time:
                    best_time, best_m, best_n = time, cap, tile_n
                    best_r, best_c = tile_r, tile_c
                continue
            if schedule == OS:
                bound = _least_time(layer, rates, part, cap, tile_r, tile_c)
                if bound * (1.0 - 1e-9) >= best_time:
                    continue
            for tile_n in range(1, widest + 1):
                tile_m = cap
                if schedule != WS:
                    tile_m = min(cap, bounds.mb1 // (tile_n * tap_bytes))
                time = multicast_time(layer, rates, part, schedule, tile_m, tile_n, tile_r, tile_c)
                if time < best_time:
                    best_time, best_m, best_n = time, tile_m, tile_n
                    best_r, best_c = tile_r, tile_c
    return best_time, best_m, best_n, best_r, best_c


@entry
def best_grouped_tile(layer, bounds, rates, part, schedule, best_time):
    """As `best_tile` for TLTs that own whole groups: over all T_R, T_C and groups a tile."""
    best_m, best_r, best_c = 0, 0, 0
    size = layer.element_bytes
    filters_each = layer.filters // layer.groups
    channels_each = layer.channels // layer.groups
    per_tlt = ceil_div(part.items, part.tlts)
    most = min(per_tlt, bounds.tile_m // filters_each)
    most = min(most, bounds.mb1 // (filters_each * channels_each * layer.kernel * size))
    if bounds.tile_n < channels_each or most == 0:
        return best_time, best_m, channels_each, best_r, best_c
    for tile_r in range(1, min(part.rows, bounds.tile_r) + 1):
        in_rows = (tile_r - 1) * layer.stride_rows + layer.span_rows
        if channels_each * in_rows * layer.span_columns * size > bounds.mb0:
            break
        if filters_each * tile_r * size > bounds.mb2:
            break
        if tile_r > 1 and ceil_div(part.rows, tile_r) == ceil_div(part.rows, tile_r - 1):
            continue
        tiles_c, full_c = 0, False
        for tile_c in range(1, min(layer.columns, bounds.tile_c) + 1):
            in_columns = (tile_c - 1) * layer.stride_columns + layer.span_columns
            widest = min(most, bounds.mb0 // (channels_each * in_rows * in_columns * size))
            widest = min(widest, bounds.mb2 // (filters_each * tile_r * tile_c * size))
            if widest == 0:
                break
            full = in_columns >= layer.in_columns
            if ceil_div(layer.columns, tile_c) == tiles_c and full == full_c:
                continue
            tiles_c, full_c = ceil_div(layer.columns, tile_c), full
            tile_m = 1
            while tile_m <= widest:
                time = grouped_time(layer, rates, part, schedule, tile_m, tile_r, tile_c)
                if time < best_time:
                    best_time, best_m, best_r, best_c = time, tile_m, tile_r, tile_c
                tile_m = _next_count(per_tlt, tile_m, widest)
    return best_time, best_m, channels_each, best_r, best_c
