"""The search of `exact` where a walk over its steps says what a plan takes (`loops.walk`).

Every tiling, every order and number of buffers is looked at as in `search`. Plans whose estimate in
closed form is the least so far, or near to it, are walked at once; others wait until all are seen,
and are walked where their lower bound is still below the best time. A walk ends as soon as it
cannot be the best. So of all plans whose sizes are in the tables none is faster, unless
`MOST_STEPS` were walked before; and none that differs from the one that is found in the size of a
tile along one loop.
"""

from __future__ import annotations

from math import inf

import numpy as np

from tvm_npu.codegen.plan.loops import walk
from tvm_npu.codegen.plan.loops.exact import search
from tvm_npu.codegen.plan.loops.exact.search import (
    IN_USES,
    KEEPING,
    OUT,
    OUT_USES,
    RESIDENT_IN,
    RESIDENT_WEIGHTS,
    SIZE,
    TRIPS,
    WEIGHT_USES,
    C,
    M,
    N,
    R,
)
from tvm_npu.codegen.plan.loops.walked import MOST_WALKED
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div

MOST_STEPS = 1 << 24
"""That are walked in a search; behind them the best plan up to there is taken."""
NEAR = 1.02
"""Times the least estimate."""
ROOM = 1 << 13
"""Plans that wait."""
ROWS, BUFFERS, GROUPS, ORDER, MOVES, WORKS, LEAST = 0, 4, 5, 6, 7, 8, 9
"""Columns of a plan that waits: rows of the tables of M, N, R, C, what it is, least cycles of all
transfers, of all work, and of both together."""


@device
def least_cycles(w, sizes, trips, runs, together, passes, buffers, inner, moves, works, copies):
    """A lower bound of `walk.walk_steps`: ``moves`` is what all transfers take, ``works`` all work
    but ``copies`` of rows. In front of the first work come its tiles, behind the last its store;
    behind the last tile's arrival comes the last work, but for a store of the step before."""
    _, rows = walk.inside(
        0, min(sizes[R], w.rows), w.stride_rows, w.reach_rows, w.padding_rows, w.in_rows
    )
    _, columns = walk.inside(
        0, min(sizes[C], w.columns), w.stride_columns, w.reach_columns, w.padding_columns,
        w.in_columns,
    )  # fmt: skip
    inputs = walk.in_cycles(w, together * min(sizes[N], w.channels), rows, columns)
    weights = walk.weight_cycles(
        w, together, min(sizes[M], w.filters), min(sizes[N], w.channels)
    )
    groups = w.groups - (runs - 1) * together
    filters = w.filters - (trips[M] - 1) * sizes[M]
    channels = w.channels - (trips[N] - 1) * sizes[N]
    last_rows = w.rows - (trips[R] - 1) * sizes[R]
    last_columns = w.columns - (trips[C] - 1) * sizes[C]
    store = walk.out_cycles(w, groups * filters, last_rows, last_columns, w.element)
    # Copies of rows may run beside the first weights.
    working = inputs + works + max(weights, copies) + store
    tail = float(ceil_div(groups * filters * last_rows * last_columns, w.pes))
    one_tile = runs * trips[M] * trips[R] * trips[C] == 1
    if not (w.has_residual or one_tile or not w.biases_stay):
        tail += walk.multiply_cycles(
            w, groups, filters, channels, last_rows, last_columns, passes
        )
    if buffers == 2 and inner != N:
        before = walk.out_cycles(
            w, together * min(sizes[M], w.filters), min(sizes[R], w.rows),
            min(sizes[C], w.columns), w.element if trips[N] == 1 else w.accumulator,
        )  # fmt: skip
        tail = max(0.0, tail - before)
    return max(working, moves + tail)


@device
def weighed(layer, w, sizes, trips, order, groups, buffers, passes, parts, work):
    """(least cycles of a plan, of its transfers, of its work); ``parts`` are those of
    `search.once`, ``work`` that of `search.engine`."""
    runs, inner = ceil_div(layer.groups, groups), -1
    for position in range(4):
        if trips[order[position]] > 1:
            inner = order[position]
    in_visits = search.tile_visits(order, trips, IN_USES, layer.resident == RESIDENT_IN)
    w_visits = search.tile_visits(order, trips, WEIGHT_USES, layer.resident == RESIDENT_WEIGHTS)
    again = search.visits(order, trips, OUT_USES) - 1
    moves = parts[0] * in_visits + parts[1] * w_visits + parts[OUT] + 2 * again * parts[3]
    moves += search.biases(layer, runs, order, trips)
    if layer.has_residual:
        moves += parts[OUT]
    copies = parts[KEEPING] * in_visits
    least = least_cycles(
        w, sizes, trips, runs, groups, passes, buffers, inner, moves, work, copies
    )
    return least, moves, work + copies


@device
def passes_of(w, channels):
    """Of all taps, as many at once as ``channels`` leave room for."""
    most = max(1, min(w.taps_at_once, w.pes_channels // channels, w.taps))
    return ceil_div(w.taps, most)


@device
def walked(w, tables, orders, plan, sizes, most):
    """What a plan that waits takes, if less than ``most``."""
    for loop in range(4):
        sizes[loop] = tables[loop, int(plan[ROWS + loop]), SIZE]
    return walk.walk_steps(
        w, sizes, orders[int(plan[ORDER])], int(plan[GROUPS]), passes_of(w, sizes[N]),
        int(plan[BUFFERS]), most + 1e-6, plan[MOVES], plan[WORKS],
    )  # fmt: skip


@device
def better(w, tables, orders, waiting, count, sizes, best, steps, found):
    """The best of ``best`` and of those that wait; steps walked with these."""
    for at in range(count):
        plan = waiting[at]
        if plan[LEAST] >= best or steps[0] > MOST_STEPS:
            continue
        time = walked(w, tables, orders, plan, sizes, best)
        steps[0] += steps_of(tables, plan)
        steps[1] += 1
        if time < best:
            best = time
            take(found, tables, plan)
    return best


@device
def steps_of(tables, plan):
    count = 1
    for loop in range(4):
        count *= tables[loop, int(plan[ROWS + loop]), TRIPS]
    return count


@device
def take(found, tables, plan):
    for loop in range(4):
        found[loop] = tables[loop, int(plan[ROWS + loop]), SIZE]
    found[4], found[5], found[6] = plan[GROUPS], plan[ORDER], plan[BUFFERS]


@device
def polished(layer, w, every, lengths, orders, best, steps, found):
    """The time of ``found``, a plan that takes ``best``, or of one with any other sizes, loop by
    loop, as long as one is faster: a larger tile may leave a smaller last one."""
    order, groups, buffers = orders[found[5]], found[4], found[6]
    trips, sizes = np.ones(4, np.int64), np.ones(4, np.int64)
    for _ in range(4):
        before = best
        for loop in range(4 if groups == 1 else 0):
            for size in range(1, lengths[loop] + 1):
                for other in range(4):
                    sizes[other] = size if other == loop else found[other]
                    trips[other] = every[other, sizes[other] - 1, TRIPS]
                if layer.resident and trips[N] == 1:
                    continue
                m, n = every[M, sizes[M] - 1], every[N, sizes[N] - 1]
                r, c = every[R, sizes[R] - 1], every[C, sizes[C] - 1]
                work = search.engine(layer, layer.groups, m, n, r, c)
                if work >= best or not search.fits(layer, 1, m, n, r, c, buffers):
                    continue
                parts = search.once(layer, layer.groups, m, n, r, c)
                passes = passes_of(w, sizes[N])
                least, moves, works = weighed(
                    layer, w, sizes, trips, order, 1, buffers, passes, parts, work
                )
                count = layer.groups * trips[M] * trips[N] * trips[R] * trips[C]
                if least >= best or count > MOST_WALKED or steps[0] > MOST_STEPS:
                    continue
                time = walk.walk_steps(
                    w, sizes, order, 1, passes, buffers, best + 1e-6, moves, works
                )
                steps[0] += count
                steps[1] += 1
                if time < best:
                    best = time
                    found[loop] = size
        if best == before:
            break
    return best


@entry
def search_clocked(
    layer, w, tables, lengths, every, every_lengths, group_sizes, orders, most_buffers, best, found
):
    """As `search.search`: (time, tilings, plans walked); ``found`` takes sizes in the place of rows
    of ``tables``. ``every`` are tables of all sizes, ascending."""
    below = best
    trips, sizes = np.ones(4, np.int64), np.ones(4, np.int64)
    waiting, plan = np.empty((ROOM, 10)), np.empty(10)
    steps = np.zeros(2, np.int64)
    seen = count = 0
    estimate = inf
    few_m = search.fewest(tables[M], lengths[M])
    few_n = search.fewest(tables[N], lengths[N])
    if layer.resident:
        few_n[TRIPS] = 2
    for i in range(lengths[R]):
        r = tables[R, i]
        trips[R], sizes[R] = r[TRIPS], r[SIZE]
        for j in range(lengths[C]):
            c = tables[C, j]
            trips[C], sizes[C] = c[TRIPS], c[SIZE]
            if search.engine(layer, 1, few_m, few_n, r, c) >= best:
                continue
            for k in range(lengths[N]):
                n = tables[N, k]
                trips[N], sizes[N] = n[TRIPS], n[SIZE]
                if layer.resident and trips[N] == 1:
                    continue
                if search.engine(layer, 1, few_m, n, r, c) >= best:
                    continue
                passes = passes_of(w, n[SIZE])
                for h in range(lengths[M]):
                    m = tables[M, h]
                    trips[M], sizes[M] = m[TRIPS], m[SIZE]
                    whole = trips[M] == 1 and trips[N] == 1
                    for g in range(len(group_sizes) if whole else 1):
                        groups = group_sizes[g]
                        if not search.fits(layer, groups, m, n, r, c, 1):
                            break
                        seen += 1
                        runs = ceil_div(layer.groups, groups)
                        parts = search.once(layer, runs, m, n, r, c)
                        work = search.engine(layer, runs, m, n, r, c)
                        moved = search.least_moved(layer, parts, trips)
                        residual = parts[OUT] if layer.has_residual else 0.0
                        if max(moved + residual, work + parts[KEEPING]) >= best:
                            continue
                        # Whatever the order, and however many buffers.
                        least = least_cycles(
                            w, sizes, trips, runs, groups, passes, 2, R, moved + residual,
                            work, parts[KEEPING],
                        )  # fmt: skip
                        if least >= best:
                            continue
                        for buffers in range(1, most_buffers + 1):
                            # Residual tiles, resident ones, and rows that are kept may come beside
                            # products.
                            if buffers == 1 and not layer.resident:
                                if moved + max(work, residual) >= best and not w.keeps_rows:
                                    continue
                            if buffers == 2 and not search.fits(layer, groups, m, n, r, c, 2):
                                break
                            for o in range(len(orders)):
                                order = orders[o]
                                if not search.is_canonical(order, trips):
                                    continue
                                least, moves, works = weighed(
                                    layer, w, sizes, trips, order, groups, buffers, passes,
                                    parts, work,
                                )  # fmt: skip
                                if least >= best:
                                    continue
                                time = search.cycles(
                                    layer, runs, m, n, r, c, trips, order, buffers, parts, work
                                )
                                plan[ROWS + M], plan[ROWS + N] = h, k
                                plan[ROWS + R], plan[ROWS + C] = i, j
                                plan[BUFFERS], plan[GROUPS], plan[ORDER] = buffers, groups, o
                                plan[MOVES], plan[WORKS] = moves, works
                                plan[LEAST] = least
                                is_long = runs * steps_of(tables, plan) > MOST_WALKED
                                if not is_long and time >= NEAR * estimate:
                                    if count == ROOM:
                                        best = better(
                                            w, tables, orders, waiting, count, sizes, best,
                                            steps, found,
                                        )  # fmt: skip
                                        count = 0
                                        sizes[0], sizes[1] = m[SIZE], n[SIZE]
                                        sizes[2], sizes[3] = r[SIZE], c[SIZE]
                                    waiting[count] = plan
                                    count += 1
                                    continue
                                estimate = min(estimate, time)
                                if not is_long:
                                    time = walked(w, tables, orders, plan, sizes, best)
                                    steps[0] += steps_of(tables, plan)
                                    steps[1] += 1
                                if time < best:
                                    best = time
                                    take(found, tables, plan)
    best = better(w, tables, orders, waiting, count, sizes, best, steps, found)
    if best < below:
        best = polished(layer, w, every, every_lengths, orders, best, steps, found)
    return best, seen, steps[1]
