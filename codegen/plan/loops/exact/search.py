"""The search of `exact`, compiled: every tiling, every order of its loops, one buffer or two.

The time of a plan is `cost.predicted`, written out for arrays of numbers; what it says is held
equal to that function by a test. A tiling is skipped when no order can beat the best plan so far:
its least transfers (`least_moved`, residual tiles) and its engine time, together (one buffer, but
for residual tiles) or the longer of both (two), are a lower bound. For all tilings with some rows,
columns and channels the engine time with the fewest trips and passes of the others is one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.plan.loops.room import ALIGNMENT_BYTES, part_bytes
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import aligned, ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

M, N, R, C = range(4)
SIZE, TRIPS, PASSES, LARGEST, INSIDE, FULL, FILLED, AFRESH, BRINGING, KEPT = range(10)
"""Columns of a table of tile sizes (`tables.loop_table`)."""
NOTHING, RESIDENT_IN, RESIDENT_WEIGHTS = range(3)
"""Of whose tiles those of all channels stay beside each other."""


class Layer(NamedTuple):
    """A layer and a machine in numbers."""

    filters: int
    channels: int
    groups: int
    rows: int
    columns: int
    taps: int
    element: int
    accumulator: int
    has_residual: int
    biases_stay: int
    input_room: int
    weight_room: int
    output_room: int
    bias_room: int
    is_shared: int
    """All tiles together in ``input_room``."""
    waits: int
    """`LoopMachine.waits_between`."""
    gathers: int
    """IN tiles have only what windows touch, an element a segment, a channel a transfer."""
    resident: int
    """`NOTHING`, `RESIDENT_IN` or `RESIDENT_WEIGHTS`."""
    start: float
    segment: float
    byte: float
    iteration: float
    setup: float
    output: float
    total: float
    finish: float
    touched: float


_part = device(part_bytes)


@device
def _tile(size):
    return aligned(size, ALIGNMENT_BYTES)


@device
def fits(layer, groups, m, n, r, c, buffers):
    """`room.check_loop_plan` for rows of the tables."""
    filters = groups * m[SIZE]
    outputs = filters * r[SIZE] * c[SIZE]
    inputs = _tile(groups * n[SIZE] * r[LARGEST] * c[LARGEST] * layer.element)
    inputs *= n[TRIPS] if layer.resident == RESIDENT_IN else 1
    if layer.has_residual:
        inputs += _tile(outputs * layer.element)
    weights = _tile(filters * n[SIZE] * layer.taps * layer.element)
    weights *= n[TRIPS] if layer.resident == RESIDENT_WEIGHTS else 1
    sums = _tile(outputs * layer.accumulator)
    if filters * BIAS_BYTES > layer.bias_room:
        return False
    if layer.is_shared:
        return inputs + weights + sums <= _part(layer.input_room, buffers)
    return (
        inputs <= _part(layer.input_room, buffers)
        and weights <= _part(layer.weight_room, buffers)
        and sums <= _part(layer.output_room, buffers)
    )


@device
def visits(order, trips, uses):
    """`plan.visits`; ``uses`` says of each loop whether the tile depends on it."""
    result, pending = 1, True
    for at in range(3, -1, -1):
        loop = order[at]
        if uses[loop]:
            if trips[loop] > 1:
                pending = False
        elif not pending:
            result *= trips[loop]
    return result


@device
def tile_visits(order, trips, uses, is_resident):
    """`visits` of IN or W tiles."""
    if not is_resident:
        return visits(order, trips, uses)
    whole = trips.copy()
    whole[N] = 1
    return visits(order, whole, uses)


@device
def bringing(order, trips, uses, depth, steps):
    """`cost._bringing`."""
    place = -1
    for at in range(4):
        if trips[order[at]] > 1 and uses[order[at]] and order[at] != N:
            place = at
    for at in range(place + 1, 4):
        loop = order[at]
        if trips[loop] > 1 and not uses[loop]:
            if at == depth - 1:
                return 0
            if at < depth:
                steps //= trips[loop]
    return steps


@device
def bringing_alone(order, trips, uses, steps):
    """How many of all ``steps`` bring a resident tile while the OUT tile stays: those at which the
    loop over channels moves on, inside of all others."""
    for at in range(3, -1, -1):
        if trips[order[at]] > 1:
            if order[at] != N:
                return 0
            return bringing(order, trips, uses, at + 1, steps - steps // trips[N])
    return 0


OUT, KEEPING = 2, 7
"""Of what `once` gives: OUT tiles, moves of rows on chip."""
IN_USES = np.array([False, True, True, True])
WEIGHT_USES = np.array([True, True, False, False])
OUT_USES = np.array([True, False, True, True])
BIAS_USES = np.array([True, False, False, False])


@device
def once(layer, runs, m, n, r, c):
    """Cycles of all IN, W and OUT tiles, each moved once, and of OUT tiles at accumulator width:
    (in, weights, out, sums), how many tiles of each kind come or go, what the engine takes to move
    rows that IN tiles keep, and for how long of all IN tiles the core waits."""
    stacks = runs * n[TRIPS]
    wide = r[FULL] * stacks + (r[AFRESH] - r[FULL] + r[BRINGING]) * layer.channels
    narrow = r[INSIDE] * layer.channels
    in_transfers = c[FILLED] * (r[AFRESH] * stacks + r[BRINGING] * layer.channels)
    in_segments = c[FULL] * wide + (c[FILLED] - c[FULL]) * narrow
    if layer.gathers:
        in_transfers = r[TRIPS] * c[TRIPS] * layer.channels
        in_segments = layer.rows * layer.columns * layer.channels
    in_bytes = r[INSIDE] * c[INSIDE] * layer.channels * layer.element
    inputs = layer.start * in_transfers + layer.segment * in_segments + layer.byte * in_bytes
    w_tiles = runs * m[TRIPS] * n[TRIPS]
    w_segments = w_tiles if n[TRIPS] == 1 else layer.filters * n[TRIPS]
    w_bytes = layer.filters * (layer.channels // layer.groups) * layer.taps * layer.element
    weights = layer.start * w_tiles + layer.segment * w_segments + layer.byte * w_bytes
    out_tiles = runs * m[TRIPS] * r[TRIPS] * c[TRIPS]
    if c[TRIPS] > 1:
        out_segments = layer.filters * layer.rows * c[TRIPS]
    elif r[TRIPS] > 1:
        out_segments = layer.filters * r[TRIPS]
    else:
        out_segments = runs * m[TRIPS]
    moves = layer.start * out_tiles + layer.segment * out_segments
    elements = layer.filters * layer.rows * layer.columns * layer.byte
    out, sums = moves + elements * layer.element, moves + elements * layer.accumulator
    in_tiles = r[FILLED] * c[FILLED] * stacks
    keeping = layer.finish * (r[FILLED] - r[AFRESH]) * c[FILLED]
    keeping += (layer.output + 2 * layer.element * layer.touched) * r[KEPT] * c[INSIDE]
    waited = 0.0
    if layer.waits and in_tiles:
        loads = (r[AFRESH] + r[BRINGING]) * c[FILLED] * stacks
        waited = inputs * (1 - loads / in_transfers)
    keeping *= layer.channels
    return inputs, weights, out, sums, in_tiles, w_tiles, out_tiles, keeping, waited


@device
def engine(layer, runs, m, n, r, c):
    steps = runs * m[TRIPS] * n[TRIPS] * r[TRIPS] * c[TRIPS]
    passes = layer.groups * m[PASSES] * n[PASSES] * r[PASSES] * c[PASSES]
    outputs = layer.filters * layer.rows * layer.columns
    spread = r[TRIPS] * c[TRIPS]
    depth = layer.channels // layer.groups * layer.taps
    read = r[INSIDE] * c[INSIDE] * layer.channels * m[TRIPS] + layer.filters * depth * spread
    size = layer.element * (read + outputs) + layer.accumulator * outputs * n[TRIPS]
    result = layer.iteration * passes + layer.setup * steps + layer.output * outputs
    result += layer.total * outputs * n[TRIPS] + layer.finish * runs * m[TRIPS] * spread
    return result + layer.touched * size


@device
def biases(layer, runs, order, trips):
    size = layer.byte * layer.filters * BIAS_BYTES
    if layer.biases_stay:
        return layer.start + layer.segment + size
    finishing = trips.copy()
    finishing[N] = 1
    times = visits(order, finishing, BIAS_USES)
    return (runs * trips[M] * (layer.start + layer.segment) + size) * times


@device
def cycles(layer, runs, m, n, r, c, trips, order, buffers, parts, work):
    """`cost.predicted` of one plan; ``parts`` are those of `once`, ``work`` that of `engine`."""
    inputs, weights, out, sums, in_tiles, w_tiles, out_tiles, keeping, waited = parts
    in_visits = tile_visits(order, trips, IN_USES, layer.resident == RESIDENT_IN)
    work += keeping * in_visits
    w_visits = tile_visits(order, trips, WEIGHT_USES, layer.resident == RESIDENT_WEIGHTS)
    out_visits = visits(order, trips, OUT_USES)
    bias = biases(layer, runs, order, trips)
    changing = out + 2 * (out_visits - 1) * sums + (out if layer.has_residual else 0.0)
    steps = runs * trips[M] * trips[N] * trips[R] * trips[C]
    if buffers == 1:
        outputs = layer.filters * layer.rows * layer.columns
        products = (work - layer.output * outputs) / steps
        late = bias + (out if layer.has_residual else 0.0)
        hidden = min(late, products * out_tiles)
        if layer.resident == RESIDENT_IN and in_tiles:
            beside = bringing_alone(order, trips, IN_USES, steps)
            hidden += beside * min(inputs / in_tiles, products)
        elif layer.resident == RESIDENT_WEIGHTS:
            beside = bringing_alone(order, trips, WEIGHT_USES, steps)
            hidden += beside * min(weights / w_tiles, products)
        return inputs * in_visits + weights * w_visits + bias + changing + work - hidden
    change = changing / (out_tiles * out_visits)
    each_in = (inputs - waited) / in_tiles if in_tiles else 0.0
    each_wait = waited / in_tiles if in_tiles else 0.0
    each_weights = weights / w_tiles
    each = work / steps
    total, before, outer = 0.0, 0, runs
    for depth in range(5):
        if depth:
            outer *= trips[order[depth - 1]]
        if outer == before:
            continue
        comes_in = comes_w = changes = depth == 0
        for at in range(max(depth - 1, 0), 4):
            loop = order[at]
            if trips[loop] > 1:
                comes_in = comes_in or IN_USES[loop]
                comes_w = comes_w or WEIGHT_USES[loop]
                changes = changes or OUT_USES[loop]
        count = outer - before
        inputs_come = count if comes_in else 0
        weights_come = count if comes_w else 0
        if layer.resident == RESIDENT_IN:
            inputs_come = bringing(order, trips, IN_USES, depth, inputs_come)
        elif layer.resident == RESIDENT_WEIGHTS:
            weights_come = bringing(order, trips, WEIGHT_USES, depth, weights_come)
        total += each_wait * inputs_come
        leaving = change if changes else 0.0
        both, some = min(inputs_come, weights_come), max(inputs_come, weights_come)
        one = each_in if inputs_come > weights_come else each_weights
        total += (some - both) * max(one + leaving, each)
        total += (count - some) * max(leaving, each)
        arrive = each_in + each_weights
        if before == 0:
            total += arrive + max(each, bias) + change
            both -= 1
        total += both * max(arrive + leaving, each)
        before = outer
    return total


@device
def least_moved(layer, parts, trips):
    """A lower bound on the cycles of all transfers but those of residual tiles, over the orders of
    a tiling: by the innermost loop of several trips, over which tiles stay that do not depend on
    it. IN then comes once for every M, W for every R and C, and OUT leaves for every N, unless that
    loop is innermost. What is resident may come once."""
    inputs, weights, out, sums = parts[0], parts[1], parts[2], parts[3]
    again = 2 * (trips[N] - 1) * sums
    spread = trips[R] * trips[C]
    inputs_again = inputs if layer.resident == RESIDENT_IN else inputs * trips[M]
    weights_again = weights if layer.resident == RESIDENT_WEIGHTS else weights * spread
    least = np.inf
    if trips[M] > 1:
        least = min(least, inputs + weights_again + again)
    if trips[N] > 1:
        least = min(least, inputs_again + weights_again)
    if spread > 1:
        least = min(least, inputs_again + weights + again)
    if least == np.inf:
        least = inputs + weights
    return least + out


@device
def fewest(table, length):
    """A row with the fewest trips and passes of all."""
    row = table[0].copy()
    for at in range(1, length):
        row[TRIPS] = min(row[TRIPS], table[at, TRIPS])
        row[PASSES] = min(row[PASSES], table[at, PASSES])
    return row


@device
def is_canonical(order, trips):
    """Loops of one trip stand first, in the order of M, N, R, C: each way to run a tiling is seen
    once."""
    last, open_loop = -1, False
    for at in range(4):
        loop = order[at]
        if trips[loop] > 1:
            open_loop = True
        else:
            if open_loop or loop < last:
                return False
            last = loop
    return True


@entry
def search(layer, tables, lengths, group_sizes, orders, most_buffers, best, found):
    """The least time below ``best``; ``found`` takes (m, n, r, c as rows of their tables, groups,
    order, buffers) of the first plan that has it. Returns (time, tilings, plans timed)."""
    trips = np.ones(4, np.int64)
    seen = timed = 0
    few_m, few_n = fewest(tables[M], lengths[M]), fewest(tables[N], lengths[N])
    if layer.resident:
        few_n[TRIPS] = 2
    for i in range(lengths[R]):
        r = tables[R, i]
        trips[R] = r[TRIPS]
        for j in range(lengths[C]):
            c = tables[C, j]
            trips[C] = c[TRIPS]
            if engine(layer, 1, few_m, few_n, r, c) >= best:
                continue
            for k in range(lengths[N]):
                n = tables[N, k]
                trips[N] = n[TRIPS]
                if layer.resident and trips[N] == 1:
                    continue
                if engine(layer, 1, few_m, n, r, c) >= best:
                    continue
                for h in range(lengths[M]):
                    m = tables[M, h]
                    trips[M] = m[TRIPS]
                    whole = trips[M] == 1 and trips[N] == 1
                    for g in range(len(group_sizes) if whole else 1):
                        groups = group_sizes[g]
                        if not fits(layer, groups, m, n, r, c, 1):
                            break
                        seen += 1
                        runs = ceil_div(layer.groups, groups)
                        parts = once(layer, runs, m, n, r, c)
                        work = engine(layer, runs, m, n, r, c)
                        moved, least = least_moved(layer, parts, trips), work + parts[KEEPING]
                        residual = parts[OUT] if layer.has_residual else 0.0
                        if max(moved + residual, least) >= best:
                            continue
                        for buffers in range(1, most_buffers + 1):
                            # Residual tiles, and resident ones, may come beside products.
                            alone = buffers == 1 and not layer.resident
                            if alone and moved + max(least, residual) >= best:
                                continue
                            if buffers == 2 and not fits(layer, groups, m, n, r, c, 2):
                                break
                            for o in range(len(orders)):
                                order = orders[o]
                                if not is_canonical(order, trips):
                                    continue
                                timed += 1
                                time = cycles(
                                    layer, runs, m, n, r, c, trips, order, buffers, parts, work
                                )
                                if time < best:
                                    best = time
                                    found[0], found[1], found[2], found[3] = h, k, i, j
                                    found[4], found[5], found[6] = groups, o, buffers
    return best, seen, timed
