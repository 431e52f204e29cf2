"""The inner loops of TSO in numba: Algorithm 3 over the closed-form time of Equations 3-9.

The closed form rounds ragged edges up, as the paper does: every tile counts as a whole one. It is
a sum of integer totals (transfers, bursts, bytes, MAC steps) times the machine's rates, so the
no-burst model is the same sum with the rates of transfers and bursts at zero.

Time and loops live in one module because numba's cache looks at this file alone.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

IS, OS, WS = 0, 1, 2


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
    """Cycles per transfer, burst, byte and MAC step; ``later`` breaks ties for the last one."""

    transfer: float
    burst: float
    linear: float
    byte: float
    dram_burst: float
    dram_byte: float
    mac: float
    mac_step: float
    burst_bytes: int
    macs_per_cycle: int
    later: int


class Slice(NamedTuple):
    """What a TLE works on: OFM rows and filters (or groups), TLTs in it, TLEs with work."""

    rows: int
    items: int
    tlts: int
    tles: int


@njit(cache=True, error_model="numpy")
def ceil_div(total, part):
    return (total + part - 1) // part


@njit(cache=True, error_model="numpy")
def _next_count(total, part, last):
    """The smallest larger part size (or last + 1) that cuts ``total`` into fewer pieces."""
    pieces = ceil_div(total, part)
    return last + 1 if pieces <= 1 else ceil_div(total, pieces - 1)


@njit(cache=True, error_model="numpy")
def _map_bursts(channels, rows, columns, width, flat, element_bytes, burst_bytes):
    if flat:
        return ceil_div(channels * element_bytes, burst_bytes)
    if columns == width:
        return channels * ceil_div(rows * columns * element_bytes, burst_bytes)
    return channels * rows * ceil_div(columns * element_bytes, burst_bytes)


@njit(cache=True, error_model="numpy")
def tile_time(layer, rates, part, grouped, schedule, tile_m, tile_n, tile_r, tile_c):
    """Cycles of the whole layer with this tile. Multicast: ``tile_m`` filters x ``tile_n``
    channels, IN loaded once a TLE. Grouped: ``tile_m`` groups, every TLT loads its own IN."""
    per_tlt = ceil_div(part.items, part.tlts)
    active = min(part.items, part.tlts)
    tiles_m = ceil_div(per_tlt, tile_m)
    places = ceil_div(part.rows, tile_r) * ceil_div(layer.columns, tile_c)
    if grouped:
        filters_each = layer.filters // layer.groups
        channels_each = layer.channels // layer.groups
        filters = tile_m * filters_each
        in_channels = tile_m * channels_each
        mac_channels = channels_each
        w_channels = channels_each
        biases = per_tlt * filters_each
        steps = tiles_m * places
        in_loads = active * steps
        w_loads = active * (tiles_m if schedule == WS else steps)
    else:
        channels_each = layer.channels
        filters = tile_m
        in_channels = tile_n
        mac_channels = tile_n
        w_channels = layer.channels if schedule == WS else tile_n
        biases = per_tlt
        steps = tiles_m * places * ceil_div(layer.channels, tile_n)
        in_loads = steps
        w_loads = active * (tiles_m if schedule == WS else steps)
    out_moves = active * tiles_m * places * (1 + layer.residual)

    size = layer.element_bytes
    burst = rates.burst_bytes
    in_rows = (tile_r - 1) * layer.stride_rows + layer.span_rows
    in_columns = (tile_c - 1) * layer.stride_columns + layer.span_columns
    flat_out = layer.rows * layer.columns == 1
    flat_in = flat_out and in_rows * in_columns * layer.in_rows * layer.in_columns == 1
    in_rows = min(in_rows, layer.in_rows)
    in_columns = min(in_columns, layer.in_columns)
    in_bytes = in_channels * in_rows * in_columns * size
    in_bursts = _map_bursts(
        in_channels, in_rows, in_columns, layer.in_columns, flat_in, size, burst
    )
    filter_bytes = w_channels * layer.kernel * size
    if w_channels == channels_each:
        w_bursts = ceil_div(filters * filter_bytes, burst)
    else:
        w_bursts = filters * ceil_div(filter_bytes, burst)
    out_bytes = filters * tile_r * tile_c * size
    out_bursts = _map_bursts(filters, tile_r, tile_c, layer.columns, flat_out, size, burst)
    if layer.dense:
        units = filters * ceil_div(mac_channels, rates.macs_per_cycle)
    else:
        window = tile_r * tile_c * layer.kernel
        units = filters * mac_channels * ceil_div(window, rates.macs_per_cycle)

    transfers = in_loads + w_loads + out_moves + active
    in_bursts *= in_loads
    out_bursts *= out_moves
    linear = w_loads * w_bursts + active * ceil_div(biases * 4, burst)
    linear += in_bursts * flat_in + out_bursts * flat_out
    bursts = in_bursts * (not flat_in) + out_bursts * (not flat_out)
    volume = (
        in_loads * in_bytes
        + w_loads * filters * filter_bytes
        + out_moves * out_bytes
        + active * biases * 4
    )
    own = (
        transfers * rates.transfer
        + bursts * rates.burst
        + linear * rates.linear
        + volume * rates.byte
        + steps * units * rates.mac
        + steps * rates.mac_step
    )
    shared = part.tles * ((bursts + linear) * rates.dram_burst + volume * rates.dram_byte)
    return max(own, shared)


@njit(cache=True, error_model="numpy")
def best_tile(layer, bounds, rates, part, schedule):
    """Algorithm 3 for one TLE slice and one schedule, multicast mode: the best over all T_R,
    T_C, T_N, with T_M by GetFilters (IS: all filters of the TLT; OS, WS: the most that fit).

    A candidate is passed over without being timed when the one before it along an axis has the
    same tile counts, the same T_M and the same kind of segments: that one is smaller, hence
    never slower (and, by volume alone, always faster), and comes first.
    """
    best_time, best_m, best_n, best_r, best_c = float("inf"), 0, 0, 0, 0
    size = layer.element_bytes
    per_tlt = ceil_div(part.items, part.tlts)
    most = min(per_tlt, bounds.tile_m)
    if schedule == WS:
        most = min(most, bounds.mb1 // (layer.channels * layer.kernel * size))
    if most == 0 or (schedule == IS and most < per_tlt):
        return best_time, best_m, best_n, best_r, best_c
    least = per_tlt if schedule == IS else 1
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
            widest = min(layer.channels, bounds.tile_n)
            widest = min(widest, bounds.mb0 // (in_rows * in_columns * size))
            tile_n = 1
            while tile_n <= widest:
                tile_m = cap
                if schedule != WS:
                    tile_m = min(cap, bounds.mb1 // (tile_n * layer.kernel * size))
                    if tile_m < least:
                        break
                time = tile_time(
                    layer, rates, part, False, schedule, tile_m, tile_n, tile_r, tile_c
                )
                if time < best_time or (rates.later and time == best_time):
                    best_time, best_m, best_n = time, tile_m, tile_n
                    best_r, best_c = tile_r, tile_c
                following = _next_count(layer.channels, tile_n, widest)
                if schedule != WS:
                    last = bounds.mb1 // (tile_m * layer.kernel * size)
                    following = min(following, last + 1)
                tile_n = following
    return best_time, best_m, best_n, best_r, best_c


@njit(cache=True, error_model="numpy")
def best_grouped_tile(layer, bounds, rates, part, schedule):
    """As `best_tile` for TLTs that own whole groups: over all T_R, T_C and groups a tile."""
    best_time, best_m, best_r, best_c = float("inf"), 0, 0, 0
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
                time = tile_time(layer, rates, part, True, schedule, tile_m, 0, tile_r, tile_c)
                if time < best_time or (rates.later and time == best_time):
                    best_time, best_m, best_r, best_c = time, tile_m, tile_r, tile_c
                tile_m = _next_count(per_tlt, tile_m, widest)
    return best_time, best_m, channels_each, best_r, best_c
