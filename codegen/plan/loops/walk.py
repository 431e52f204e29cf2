"""When the steps of a plan of loops run on a machine whose mover and engine wait for each other
only where they meet: the clocks of such a machine, tile by tile.

Transfers and work come in the order of `plan.steps`: with two buffers the tiles of a step come in
front of the work of the step before. A transfer waits until the engine has done with the place that
it goes to or comes from, work waits for its tiles. Words that issue are left out. Compiled:
planners walk over thousands of plans, `cost.predicted` over the one that it is asked about. ``w``
is a `walked.Walked`.
"""

from __future__ import annotations

from math import inf

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.machine_parts import BIAS_BYTES

M, N, R, C = range(4)
NOTHING, RESIDENT_IN, RESIDENT_WEIGHTS = range(3)
"""Of whose tiles those of all channels stay beside each other."""


@device
def moving(w, transfers, segments, size):
    return w.start * transfers + w.segment * segments + w.byte * size


@device
def box_cycles(w, channels, rows, columns, all_rows, all_columns, size):
    """A box of a tensor: one run of rows that are whole, one of all where all rows are there."""
    if columns < all_columns:
        runs = channels * rows
    else:
        runs = 1 if rows == all_rows else channels
    return moving(w, 1, runs, channels * rows * columns * size)


@device
def inside(begin, count, stride, reach, padding, size):
    """`plan.in_extent`: the first one, and how many."""
    low = begin * stride - padding
    first = min(max(low, 0), size)
    return first, max(min(low + (count - 1) * stride + reach, size) - first, 0)


@device
def in_cycles(w, channels, rows, columns):
    """An IN tile, afresh."""
    if w.gathers:
        elements = channels * rows * columns
        return moving(w, channels, elements, elements * w.element)
    return box_cycles(w, channels, rows, columns, w.in_rows, w.in_columns, w.element)


@device
def weight_cycles(w, groups, filters, channels):
    runs = 1 if channels == w.channels else filters
    return moving(w, 1, runs, groups * filters * channels * w.taps * w.element)


@device
def out_cycles(w, filters, rows, columns, size):
    return box_cycles(w, filters, rows, columns, w.rows, w.columns, size)


@device
def multiply_cycles(w, groups, filters, channels, rows, columns, passes):
    turns = groups * ceil_div(filters, w.pes_filters) * ceil_div(channels, w.pes_channels)
    turns *= ceil_div(rows, w.pes_rows) * ceil_div(columns, w.pes_columns)
    return w.setup + w.iteration * turns * passes


IN_READY, IN_FIRST, IN_FREE, W_READY, W_FREE = range(5)
"""Of IN and W places: when the tile is there, its first channel, and when the engine has done."""
OUT_MOVED, OUT_WORKED, ADDED_READY, ADDED_FREE = range(4)
"""Of OUT and residual places."""
MULTIPLY, CLEAR, FINISH, STORE, BIAS, IN_PLACE, W_PLACE, OUT_PLACE, ADDED_PLACE = range(9)
"""The work of a step: cycles, -1 where there is none, and places."""


@device
def work(todo, held, outs, mover, engine, bias):
    """Work and stores of a step; when mover and engine are free then."""
    into, loaded, from_ = int(todo[OUT_PLACE]), int(todo[W_PLACE]), int(todo[IN_PLACE])
    if todo[BIAS] >= 0:
        mover = max(mover, bias[1]) + todo[BIAS]
        bias[0] = mover
    if todo[MULTIPLY] >= 0:
        there = max(held[IN_READY, from_], held[W_READY, loaded])
        engine = max(engine, there, outs[OUT_MOVED, into]) + todo[MULTIPLY]
        held[IN_FREE, from_] = held[W_FREE, loaded] = engine
    elif todo[CLEAR] >= 0:
        engine = max(engine, outs[OUT_MOVED, into]) + todo[CLEAR]
    if todo[FINISH] >= 0:
        start = max(engine, bias[0], outs[OUT_MOVED, into])
        added = int(todo[ADDED_PLACE])
        if added >= 0:
            start = max(start, outs[ADDED_READY, added])
        engine = start + todo[FINISH]
        bias[1] = engine
        if added >= 0:
            outs[ADDED_FREE, added] = engine
    outs[OUT_WORKED, into] = engine
    if todo[STORE] >= 0:
        mover = max(mover, engine) + todo[STORE]
        outs[OUT_MOVED, into] = mover
    return mover, engine


@device
def slide(w, held, mover, engine, channels, copy, load, is_alone, grows, before, place):
    """An IN tile of which rows come from the place ``before``, a ``copy`` a channel, the last
    channel first where the tile grows, and others from outside, a ``load`` a channel (0: none).
    Where the place ``is_alone``, rows come behind the copies of their channel."""
    first, last = held[IN_FIRST, before], held[IN_READY, before]
    free = held[IN_FREE, place]
    copied_first = max(engine, last if grows else first) + copy
    engine = max(engine, last if grows else first) + channels * copy
    if not grows:
        engine = max(engine, last + copy)
    held[IN_FREE, before] = engine
    held[IN_FREE, place] = engine
    if load > 0:
        mover = max(mover, free)
        if is_alone:
            mover = max(mover, engine if grows else copied_first)
        mover += channels * load
        if is_alone:
            mover = max(mover, engine + load)
        held[IN_READY, place] = mover
        held[IN_FIRST, place] = mover - (channels - 1) * load
    return mover, engine


@device
def walk_steps(w, sizes, order, together, passes, buffers, most, moves, works):
    """The time of a plan: tile ``sizes`` of M, N, R, C, groups ``together``, array ``passes`` for
    the taps of a kernel. Infinite as soon as it is certain to reach ``most``, as ``moves`` and
    ``works`` are the least that all transfers and all work take."""
    totals = (w.filters, w.channels, w.rows, w.columns)
    trips = np.empty(4, np.int64)
    at = np.zeros(4, np.int64)
    count, inner = 1, -1
    for loop in range(4):
        trips[loop] = ceil_div(totals[loop], sizes[loop])
        count *= trips[loop]
    for position in range(4):
        if trips[order[position]] > 1:
            inner = order[position]
    places = trips[N] if w.resident else 1
    held, outs = np.zeros((5, 2 * places)), np.zeros((4, 2))
    bias, todo = np.zeros(2), np.full(9, -1.0)
    mover = engine = moved = worked = 0.0
    in_turn = w_turn = out_turn = added_turn = -1
    in_place = w_place = 0
    biases_of = -1
    before_first = before_rows = 0
    before_key = -1
    begun = False
    for run in range(ceil_div(w.groups, together)):
        groups = min(together, w.groups - run * together)
        in_of = in_seen = w_of = w_seen = out_of = -1
        for number in range(count):
            left = number
            for position in range(3, -1, -1):
                loop = order[position]
                at[loop] = left % trips[loop]
                left //= trips[loop]
            m, n, r, c = at[M], at[N], at[R], at[C]
            filters = min(sizes[M], w.filters - m * sizes[M])
            channels = min(sizes[N], w.channels - n * sizes[N])
            rows = min(sizes[R], w.rows - r * sizes[R])
            columns = min(sizes[C], w.columns - c * sizes[C])
            first, in_rows = inside(
                r * sizes[R], rows, w.stride_rows, w.reach_rows, w.padding_rows, w.in_rows
            )
            _, in_columns = inside(
                c * sizes[C], columns, w.stride_columns, w.reach_columns, w.padding_columns,
                w.in_columns,
            )  # fmt: skip
            is_filled = in_rows * in_columns > 0
            is_last = n == trips[N] - 1
            # What comes, by `plan.steps`.
            place = r * trips[C] + c
            if place != in_of:
                in_of, in_seen = place, -1
                if w.resident == RESIDENT_IN:
                    in_turn = (in_turn + 1) % buffers
            comes = n > in_seen if w.resident == RESIDENT_IN else n != in_seen
            in_seen = max(in_seen, n) if w.resident == RESIDENT_IN else n
            if m != w_of:
                w_of, w_seen = m, -1
                if w.resident == RESIDENT_WEIGHTS:
                    w_turn = (w_turn + 1) % buffers
            weights_come = n > w_seen if w.resident == RESIDENT_WEIGHTS else n != w_seen
            w_seen = max(w_seen, n) if w.resident == RESIDENT_WEIGHTS else n
            out_key = (m * trips[R] + r) * trips[C] + c
            enters = out_key != out_of
            out_of = out_key
            # Transfers in front of the work.
            weights = 0.0
            if weights_come:
                weights = weight_cycles(w, groups, filters, channels)
                moved += weights
                if w.resident != RESIDENT_WEIGHTS:
                    w_turn = (w_turn + 1) % buffers
            if w.resident == RESIDENT_WEIGHTS:
                w_place = w_turn * places + n
            else:
                w_place = w_turn * places
            if weights_come and w.resident == RESIDENT_WEIGHTS:
                mover = max(mover, held[W_FREE, w_place]) + weights
                held[W_READY, w_place] = mover
            if comes and is_filled:
                old = in_place
                if w.resident != RESIDENT_IN:
                    in_turn = (in_turn + 1) % buffers
                    in_place = in_turn * places
                else:
                    in_place = in_turn * places + n
                key = (run * trips[N] + n) * trips[C] + c
                kept = 0
                if w.keeps_rows and key == before_key and first > before_first:
                    kept = max(0, min(before_first + before_rows, first + in_rows) - first)
                if kept:
                    all_channels, load = groups * channels, 0.0
                    copy = float(ceil_div(kept * in_columns, w.pes))
                    if in_rows > kept:
                        coming = in_rows - kept
                        runs = 1 if in_columns == w.in_columns else coming
                        load = moving(w, 1, runs, coming * in_columns * w.element)
                    moved += all_channels * load
                    worked += all_channels * copy
                    mover, engine = slide(
                        w, held, mover, engine, all_channels, copy, load, buffers == 1,
                        in_rows > before_rows, old, in_place,
                    )  # fmt: skip
                else:
                    load = in_cycles(w, groups * channels, in_rows, in_columns)
                    moved += load
                    mover = max(mover, held[IN_FREE, in_place]) + load
                    held[IN_READY, in_place] = held[IN_FIRST, in_place] = mover
                before_key, before_first, before_rows = key, first, in_rows
            elif w.resident == RESIDENT_IN:
                in_place = in_turn * places + n
            if weights_come and w.resident != RESIDENT_WEIGHTS:
                mover = max(mover, held[W_FREE, w_place]) + weights
                held[W_READY, w_place] = mover
            if enters:
                out_turn = (out_turn + 1) % buffers
                if n > 0:
                    load = out_cycles(w, groups * filters, rows, columns, w.accumulator)
                    moved += load
                    mover = max(mover, outs[OUT_WORKED, out_turn]) + load
                    outs[OUT_MOVED, out_turn] = mover
            added = -1
            out = out_cycles(w, groups * filters, rows, columns, w.element)
            if is_last and w.has_residual:
                added_turn = (added_turn + 1) % buffers
                added = added_turn
                moved += out
                mover = max(mover, outs[ADDED_FREE, added]) + out
                outs[ADDED_READY, added] = mover
            late_bias = -1.0
            if is_last:
                key = 0 if w.biases_stay else run * trips[M] + m
                if key != biases_of:
                    biases_of = key
                    items = w.groups * w.filters if w.biases_stay else groups * filters
                    load = moving(w, 1, 1, items * BIAS_BYTES)
                    moved += load
                    if w.biases_stay:
                        mover = max(mover, bias[1]) + load
                        bias[0] = mover
                    else:
                        late_bias = load
            # The work of the step before, or of this one.
            if buffers == 2 and begun:
                mover, engine = work(todo, held, outs, mover, engine, bias)
            begun = True
            todo[IN_PLACE], todo[W_PLACE], todo[OUT_PLACE] = in_place, w_place, out_turn
            todo[ADDED_PLACE], todo[BIAS] = added, late_bias
            elements = groups * filters * rows * columns
            todo[MULTIPLY] = todo[CLEAR] = todo[FINISH] = todo[STORE] = -1.0
            if is_filled:
                todo[MULTIPLY] = multiply_cycles(
                    w, groups, filters, channels, rows, columns, passes
                )
                worked += todo[MULTIPLY]
            elif n == 0:
                words = w.accumulator // w.element
                todo[CLEAR] = float(ceil_div(words * elements, w.pes))
            if is_last:
                todo[FINISH] = float(ceil_div(elements, w.pes))
                todo[STORE] = out
                worked += todo[FINISH]
                moved += out
            elif inner != N:
                todo[STORE] = out_cycles(w, groups * filters, rows, columns, w.accumulator)
                moved += todo[STORE]
            if buffers == 1:
                mover, engine = work(todo, held, outs, mover, engine, bias)
            if max(mover + moves - moved, engine + works - worked) >= most:
                return np.inf
    if buffers == 2:
        mover, engine = work(todo, held, outs, mover, engine, bias)
    return max(mover, engine)


@entry
def walk_alone(w, sizes, order, together, passes, buffers):
    """`walk_steps` to the end."""
    return walk_steps(w, sizes, order, together, passes, buffers, inf, 0.0, 0.0)
