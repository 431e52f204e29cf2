"""Time of a TLE of a block in numba: `BlockWalk.cost` from its places."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.block_cost import (
    AHEAD_STEP_CYCLES,
    HIDDEN_AHEAD_CYCLES,
    HIDDEN_CHIP_SHARE,
    HIDDEN_TAKE_CYCLES,
    SHARED_STEP_CYCLES,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import engine, passed_through
from tvm_npu.codegen.nmp.plan.exact_blocks.places import (
    BEHIND,
    BESIDE,
    CHANNEL,
    CHIP,
    END,
    FINISH,
    HAS_STEP,
    HIDDEN,
    NUMBER,
    P_IN,
    P_IN_AREA,
    P_IN_BOXES,
    P_IN_LINEAR,
    P_IN_WHOLE,
    P_OUT,
    P_OUT_COLUMNS,
    P_OUT_ROWS,
    STORE,
    STORE_BOXES,
    STORE_BYTES,
    STORE_LINEAR,
    STORE_MOVES,
)
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

device = partial(compiled.device, references=False)

LOAD, LAST_LOAD, MAC, LAST_MAC, RESIDUAL, TILE_STORE, TILE_BEHIND, TILE_BESIDE = range(8)
TILE_WIDTH = 8


@device
def own_channels(spread, tile_n, extent):
    """Of a step of ``extent`` channels, those that the first TLE of a slice loads."""
    return min(ceil_div(tile_n, spread.filter_slices), extent)


@device
def weight_counts(block, machine, spread, tile_m, channels, position):
    """(transfers, bursts, bytes) of the W tiles of a step: `TleWalk.load_weights`."""
    filter_bytes = channels * block.taps * block.element_bytes
    sharing = spread.row_slices * spread.column_slices
    if sharing == 1:
        one = tile_m * filter_bytes
        parts = spread.filter_parts
        return parts, parts * ceil_div(one, machine.burst_bytes), parts * one
    run = ceil_div(tile_m, sharing)
    loads, bursts, filters = 0, 0, 0
    for part in range(spread.filter_parts):
        own = max(0, min(run, tile_m - (position + part) % sharing * run))
        if own:
            loads += 1
            bursts += ceil_div(own * filter_bytes, machine.burst_bytes)
            filters += own
    return loads, bursts, filters * filter_bytes


@device
def flat_counts(machine, elements, size, times):
    """(transfers, bursts, bytes) of 1-D transfers."""
    if elements == 0:
        return 0, 0, 0
    return times, times * ceil_div(elements * size, machine.burst_bytes), times * elements * size


@device
def _bias_counts(block, machine, spread, active, alone):
    """`TleWalk.biases`, or those of the head ``alone``."""
    planes = 1 + block.twin
    times = active * spread.filter_parts
    n, bursts, volume = flat_counts(machine, spread.filters * planes, BIAS_BYTES, times)
    if alone or not block.has_kernels:
        return n, bursts, volume
    taps = block.kernel_rows * block.kernel_columns
    kernels, kernel_bursts, kernel_bytes = flat_counts(
        machine, spread.filters * taps, block.element_bytes, times
    )
    return 2 * n + kernels, 2 * bursts + kernel_bursts, 2 * volume + kernel_bytes


@device
def _point_counts(block, machine, spread, tile_m, active, longer, shorter):
    """(biases of the pointwise convolution, its weights for a tile of the head's filters), each
    as (transfers, bursts, bytes)."""
    most = spread.point_filters
    n, bursts, volume = flat_counts(machine, most, BIAS_BYTES, longer * active)
    if shorter:
        more = flat_counts(machine, most - 1, BIAS_BYTES, shorter * active)
        n, bursts, volume = n + more[0], bursts + more[1], volume + more[2]
    crew = spread.filter_slices * spread.filter_parts
    channels = tile_m * (1 + block.twin) * crew
    weights = flat_counts(
        machine, most * channels, block.element_bytes, (longer + shorter) * active
    )
    return (n, bursts, volume), weights


@device
def taken_steps(block, spread, tile_n):
    """Steps in which TLTs find what they add (`input_residual`); 0 where a step lacks some."""
    steps, last = 0, -1
    for tle in range(spread.filter_slices):
        base, extra = block.point_filters // spread.filter_slices, tle
        more = block.point_filters % spread.filter_slices
        begin, count = tle * base + min(extra, more), base + (tle < more)
        for part in range(spread.filter_parts):
            own = count // spread.filter_parts + (part < count % spread.filter_parts)
            if begin % tile_n + own > tile_n:
                return 0
            steps += begin // tile_n != last
            last = begin // tile_n
            begin += own
    return steps


@device
def _taken_cycles(block, machine, spread, choice, steps, rows, columns):
    """`input_residual.taken_cycles`."""
    filters, carried = spread.point_filters, block.carried if choice.keeps_rows else 0
    if rows == block.out_rows:
        copies = passed_through(machine, 1, filters * rows * columns)
    else:
        copies = 0.0
        if rows > carried:
            one = passed_through(machine, 1, (rows - carried) * columns)
            copies += filters * (one + machine.row)
        if carried > 0:
            copies += filters * (passed_through(machine, 1, carried * columns) + machine.row)
    hidden = HIDDEN_TAKE_CYCLES if choice.buffers == 2 else 0.0
    if machine.ports == 2 and carried == 0:
        return max(0.0, copies - hidden)
    moved = filters * rows * columns * block.element_bytes * machine.ring_byte
    passing = choice.buffers * machine.tlts * (machine.transfer + moved)
    return max(0.0, steps * copies + passing - hidden)


@device
def tle_cycles(
    block, machine, spread, rivals, choice, tile_n, macs_first, position, longer, places, number,
    tiles,
):  # fmt: skip
    """Cycles of the first TLE of a slice, which is number ``position`` of those that share W tiles;
    ``longer`` filter parts have most filters of the pointwise convolution. ``places`` are filled
    (`places.fill_choice`), ``tiles`` is for numbers on the way."""
    shorter = spread.filter_parts - longer if spread.point_filters > 1 else 0
    turns, active = spread.filters // choice.tile_m, int(places[0, P_OUT])
    counts = (
        _bias_counts(block, machine, spread, active, False),
        _bias_counts(block, machine, spread, active, True),
        *_point_counts(block, machine, spread, choice.tile_m, active, longer, shorter),
    )
    steps = ceil_div(block.channels, tile_n)
    taken = 0
    if choice.on_chip:
        taken = taken_steps(block, spread, tile_n)
    if choice.buffers == 1:
        return _in_a_row(
            block, machine, spread, rivals, choice, tile_n, steps, turns, position, counts, taken,
            places, number,
        )  # fmt: skip
    return _overlapped(
        block, machine, spread, rivals, choice, tile_n, steps, turns, macs_first, position, counts,
        taken, places, number, tiles,
    )  # fmt: skip


@device
def _in_a_row(
    block, machine, spread, rivals, choice, tile_n, steps, turns, position, counts, taken, places,
    number,
):  # fmt: skip
    """With one buffer: all transfers, stream by stream, and all that the MAC unit does."""
    size, tile_m = block.element_bytes, choice.tile_m
    full, rest = block.channels // tile_n, block.channels % tile_n
    own = own_channels(spread, tile_n, tile_n)
    last = own_channels(spread, tile_n, rest) if rest else 0
    channels = full * own + last
    loads = full + (last > 0)
    plane = block.in_rows * block.in_columns * size
    merged = full * ceil_div(own * plane, machine.burst_bytes)
    if last:
        merged += ceil_div(last * plane, machine.burst_bytes)
    in_n, boxes, linear, area, whole, tiles = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    macs, chip = 0.0, 0.0
    moves, out_boxes, out_linear, out_bytes = 0.0, 0.0, 0.0, 0.0
    for at in range(number):
        p = places[at]
        times = p[NUMBER]
        in_n += times * p[P_IN]
        boxes += times * p[P_IN_BOXES]
        linear += times * p[P_IN_LINEAR]
        area += times * p[P_IN_AREA]
        whole += times * p[P_IN_WHOLE]
        tiles += times
        head = block.channels * p[CHANNEL] + p[HAS_STEP] * steps * (p[BESIDE] + machine.step)
        macs += times * (turns * (head + p[FINISH] + p[BEHIND] - p[HIDDEN]) + p[END])
        if choice.on_chip:
            rows, columns = int(p[P_OUT_ROWS]), int(p[P_OUT_COLUMNS])
            macs += times * _taken_cycles(block, machine, spread, choice, taken, rows, columns)
        moves += times * p[STORE_MOVES]
        out_boxes += times * p[STORE_BOXES]
        out_linear += times * p[STORE_LINEAR]
        out_bytes += times * p[STORE_BYTES]
        chip += times * turns * p[CHIP]
    walks = 1 if choice.keeps_in else turns
    inputs = engine(
        machine, rivals, False, walks * loads * in_n, walks * channels * boxes,
        walks * (channels * linear + whole * merged), walks * channels * size * area,
    )  # fmt: skip
    if spread.filter_slices > 1:
        inputs += walks * loads * in_n * machine.hop
    once = turns == 1
    if once:
        w_n, w_bursts, w_bytes = weight_counts(
            block, machine, spread, tile_m, block.channels, position
        )
        w_n, w_bursts, w_bytes = float(w_n), float(w_bursts), float(w_bytes)
    else:
        w_n, w_bursts, w_bytes = 0.0, 0.0, 0.0
        for is_rest in range(1 + (rest > 0)):
            extent, times = (rest, 1) if is_rest else (tile_n, full)
            n, bursts, volume = weight_counts(block, machine, spread, tile_m, extent, position)
            times *= tiles * turns
            w_n += times * n
            w_bursts += times * bursts
            w_bytes += times * volume
    forwards = w_n if spread.row_slices * spread.column_slices > 1 else 0.0
    biases, _, point_biases, point_weights = counts
    times = 1.0 if once else tiles * turns
    w_n += biases[0] + point_biases[0] + times * point_weights[0]
    w_bursts += biases[1] + point_biases[1] + times * point_weights[1]
    w_bytes += biases[2] + point_biases[2] + times * point_weights[2]
    weights = engine(machine, rivals, False, w_n, 0, w_bursts, w_bytes) + forwards * machine.hop
    stores = engine(machine, rivals, False, moves, out_boxes, out_linear, out_bytes)
    stores *= 1 + (block.residual and not choice.on_chip)
    if spread.filter_slices > 1:
        macs += SHARED_STEP_CYCLES * turns * tiles * steps
    chip *= 1.0 - HIDDEN_CHIP_SHARE * (1.0 - 1.0 / places[0, P_OUT])
    return inputs + weights + stores + chip + macs


@device
def _tile_cycles(machine, tile, steps, next_load, store, residual):
    """`overlap.TileTimes.cycles`."""
    if steps == 1:
        last = max(tile[LAST_MAC], next_load + store + tile[TILE_BESIDE])
        return last + tile[TILE_BEHIND]
    if steps == 2:
        second = tile[LAST_LOAD] + residual + store
        late = max(0.0, second + tile[TILE_BESIDE] - max(tile[MAC], second))
        last = max(tile[LAST_MAC], next_load + late)
        return max(tile[MAC], second) + last + tile[TILE_BEHIND]
    total = max(tile[LAST_MAC], next_load) + tile[TILE_BEHIND]
    number = min(machine.tlts, steps - 2)
    some = (store + residual) / number
    third = (tile[LOAD] if steps > 3 else tile[LAST_LOAD]) + some
    late = max(0.0, tile[LOAD] + tile[TILE_BESIDE] - max(tile[MAC], tile[LOAD]))
    total += max(tile[MAC], third + late) - max(tile[MAC], third)
    if number == steps - 2:
        total += max(tile[MAC], tile[LAST_LOAD] + some)
        number -= 1
    else:
        total += max(tile[MAC], tile[LAST_LOAD])
    total += number * max(tile[MAC], tile[LOAD] + some)
    return total + (steps - 2 - number) * max(tile[MAC], tile[LOAD])


@device
def _in_load(block, machine, spread, rivals, place, own):
    """The IN tiles of a step with ``own`` channels of the TLE."""
    moves, size = place[P_IN], block.element_bytes
    if own == 0 or moves == 0:
        return 0.0
    plane = block.in_rows * block.in_columns * size
    linear = own * place[P_IN_LINEAR]
    linear += place[P_IN_WHOLE] * ceil_div(own * plane, machine.burst_bytes)
    volume = own * size * place[P_IN_AREA]
    cycles = engine(machine, rivals, True, moves, own * place[P_IN_BOXES], linear, volume)
    return cycles + (moves * machine.hop if spread.filter_slices > 1 else 0.0)


@device
def _flat(machine, rivals, in_step, counts):
    return engine(machine, rivals, in_step, counts[0], 0, counts[1], counts[2])


@device
def _overlapped(
    block, machine, spread, rivals, choice, tile_n, steps, turns, macs_first, position, counts,
    taken, places, number, tiles,
):  # fmt: skip
    """With two buffers: `BlockWalk._overlapped`."""
    tile_m, once = choice.tile_m, turns == 1
    rest = block.channels % tile_n
    last_n = rest if rest else tile_n
    own, last_own = own_channels(spread, tile_n, tile_n), own_channels(spread, tile_n, last_n)
    hops = machine.hop if spread.row_slices * spread.column_slices > 1 else 0.0
    step = machine.ahead_ws if once else machine.ahead
    late, ahead = 0.0, 0.0
    if block.has_window and not macs_first:
        ahead = AHEAD_STEP_CYCLES
    if macs_first:
        step = machine.first
        rings = spread.row_slices * spread.column_slices * spread.filter_slices > 1
        late = machine.late_ring if rings else machine.late
    w_load, w_last, w_once = 0.0, 0.0, 0.0
    if once:
        w = weight_counts(block, machine, spread, tile_m, block.channels, position)
        w_once = _flat(machine, rivals, not block.has_window, w) + hops * w[0]
    else:
        w = weight_counts(block, machine, spread, tile_m, tile_n, position)
        w_load = _flat(machine, rivals, True, w) + hops * w[0]
        w = weight_counts(block, machine, spread, tile_m, last_n, position)
        w_last = _flat(machine, rivals, True, w) + hops * w[0]
    biases, head_biases, point_biases, point_weights = counts
    share = 1.0 / turns
    point_load = 0.0 if once else _flat(machine, rivals, True, point_weights)
    loads_residual = block.residual and not choice.on_chip
    total, count = 0.0, 0.0
    for at in range(number):
        p, tile = places[at], tiles[at]
        load, last_load = 0.0, 0.0
        if not choice.keeps_in:
            load = _in_load(block, machine, spread, rivals, p, own)
            last_load = load
            if last_own != own:
                last_load = _in_load(block, machine, spread, rivals, p, last_own)
        load += w_load
        last_load += w_last
        tile[LOAD] = load + late if load > 0 else 0.0
        tile[LAST_LOAD] = last_load + late if last_load > 0 else 0.0
        beside = p[HAS_STEP] * (p[BESIDE] + step) + ahead
        tile[MAC] = tile_n * p[CHANNEL] + beside
        tile[LAST_MAC] = last_n * p[CHANNEL] + beside + p[FINISH]
        end = p[END]
        if choice.on_chip:
            rows, columns = int(p[P_OUT_ROWS]), int(p[P_OUT_COLUMNS])
            end += _taken_cycles(block, machine, spread, choice, taken, rows, columns)
        store = p[STORE]
        tile[TILE_BEHIND] = p[CHIP] + p[BEHIND] + end * share
        if macs_first:
            tile[TILE_BEHIND] -= p[HIDDEN]
        elif once:
            tile[TILE_BEHIND] -= min(HIDDEN_AHEAD_CYCLES, p[HIDDEN])
        tile[RESIDUAL] = store if loads_residual else 0.0
        if steps < 3:
            tile[TILE_BEHIND] += tile[RESIDUAL] * share
            tile[RESIDUAL] = 0.0
        tile[TILE_STORE], tile[TILE_BESIDE] = store, point_load
        first_load = tile[LOAD]
        plain = _tile_cycles(machine, tile, steps, first_load, store, tile[RESIDUAL])
        total += p[NUMBER] * plain
        if turns > 1:
            plain = _tile_cycles(machine, tile, steps, first_load, 0.0, 0.0)
            total += p[NUMBER] * (turns - 1) * plain
        count += p[NUMBER] * turns
        if choice.keeps_in:
            kept = _in_load(block, machine, spread, rivals, p, own)
            more = p[NUMBER]
            if at == 0:
                total += kept
                more -= 1
            if more:
                with_kept = _tile_cycles(machine, tile, steps, first_load + kept, 0.0, 0.0)
                total += more * (with_kept - plain)
    first, last = tiles[0], tiles[number - 1]
    first_load, last_load = first[LOAD], last[LOAD]
    residual = first[RESIDUAL]
    if count == 1:
        total = _tile_cycles(machine, first, steps, 0.0, 0.0, residual)
    else:
        total += _tile_cycles(machine, first, steps, last_load, 0.0, residual)
        total -= _tile_cycles(machine, first, steps, first_load, first[TILE_STORE], residual)
        store = last[TILE_STORE] if turns == 1 else 0.0
        residual = last[RESIDUAL] if turns == 1 else 0.0
        total += _tile_cycles(machine, last, steps, 0.0, store, residual)
        total -= _tile_cycles(machine, last, steps, last_load, store, residual)
    total += first_load + first[TILE_STORE] + w_once
    slack = max(0.0, first[LAST_MAC] - places[0, FINISH] - first[LAST_LOAD])
    if steps > 1:
        full = steps - (rest > 0)
        one = max(0.0, first[MAC] - first[LOAD])
        slack = full * one + (slack if rest else 0.0)
    slack = max(0.0, slack - first[TILE_BESIDE])
    before = _flat(machine, rivals, False, biases) - _flat(machine, rivals, False, head_biases)
    late_loads = before + _flat(machine, rivals, False, point_biases)
    if once:
        late_loads += _flat(machine, rivals, False, point_weights)
    total += _flat(machine, rivals, not block.has_window, biases)
    return max(0.0, late_loads - slack) - before + total
