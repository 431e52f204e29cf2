"""How long the vector unit takes for the sums of a tile, for compiled code.

A sum takes the cycles of its traces; or what its `vmov`s take, since those of the next sum begin
when it opens; or what its results take to leave; or what the core takes to issue its instructions,
one a cycle. Rows of results begin with instructions of their own, which the queue hides where the
row's traces take longer.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    INDP,
    LANE,
    Along,
    alike_tiles,
    common,
    end_tap,
    first_tap,
    tap_step,
)
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.room import spreads_columns
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.compiled.reductions import total
from tvm_npu.sim.snowflake.isa import LANES, LONGEST_TRACE

MOST_HELD, BUSY_CYCLES, MOST_UNROLLED = 6, 12, 16
MOST_COPIES, LEAST_COPIES, LOOP_ISSUED = 8, 4, 3
"""`steps.sums` says what they are."""
LOOP = 2
"""Instructions that count a loop and branch; its delay slots hold others."""
LEAST_TURN = 10
"""Cycles of the shortest loop: it counts, the branch waits for that, four delay slots follow."""
CYCLES_OF, ISSUED, VECTORS = range(3)
"""Of sums: cycles of the vector unit, instructions that the core issues, vector instructions."""
ROW, GROUP = 8, 8
"""Instructions around rows of results and groups of filters in a loop, waits for registers
included."""


@device
def alike(axis: Along, begin: int, count: int, cus: int, kinds) -> None:
    """Results that ``cus`` parts of an axis compute at the same time, by kind: kind t has t taps,
    in all parts the same; kind kernel + t has t taps where the parts differ."""
    kinds[:] = 0
    each = ceil_div(count, cus)
    if first_tap(axis, begin) == 0 and end_tap(axis, begin + count - 1) == axis.kernel:
        kinds[axis.kernel] = each
        return
    for local in range(each):
        low, high = axis.kernel, 0
        inner_low, inner_high = 0, axis.kernel
        apart = 0
        for part in range(cus):
            at = part * each + local
            if at >= count:
                break
            first, end = first_tap(axis, begin + at), end_tap(axis, begin + at)
            apart += end - first
            low, high = min(low, first), max(high, end)
            inner_low, inner_high = max(inner_low, first), min(inner_high, end)
        if inner_low == low and inner_high == high:
            kinds[high - low] += 1
        elif inner_low < inner_high:
            kinds[axis.kernel + high - low] += 1
        else:  # one sum after the other, about
            kinds[axis.kernel + min(apart, axis.kernel)] += 1


@device
def row_kinds(n: Numbers, mode: int, begin: int, count: int, kinds) -> None:
    dealt = mode != COOP and not spreads_columns(n, mode)
    alike(n.rows, begin, count, n.cus if dealt else 1, kinds)


@device
def column_kinds(n: Numbers, mode: int, begin: int, count: int, kinds) -> None:
    alike(n.columns, begin, count, n.cus if spreads_columns(n, mode) else 1, kinds)


@device
def lie_together(n: Numbers, columns) -> int:
    """1 if the taps of a row lie side by side in a tile with these columns of results (kinds)."""
    return 1 if tap_step(n.columns, total(columns)) == 1 else 0


@device
def trace_row(n: Numbers, mode: int, taps: int, outputs: int, together: int) -> float:
    """Cycles of a row of a window with ``taps`` taps."""
    if mode == COOP:
        return n.coop_lines[together, min(taps, n.columns.kernel)]
    if mode == INDP:
        return float(taps * n.planes)
    return float(taps * ceil_div(outputs, LANES))


@device
def out_lines(outputs: int, step: int) -> float:
    """Lines that results of a sum touch, on average over where they begin."""
    fine = common(step, LANES)
    total = 0
    for place in range(0, LANES, fine):
        total += ceil_div(place + outputs, LANES)
    return total * fine / LANES


@device
def _copies(count: int, addresses: int, issued: int, cycles: float) -> int:
    """Sums in a turn of the loop (`steps.sums`), of ``issued`` instructions each."""
    if cycles >= BUSY_CYCLES:
        return 1
    most = max(1, min(count, MOST_UNROLLED // addresses, MOST_COPIES))
    if cycles <= issued:
        return most
    return min(most, max(LEAST_COPIES, int(np.ceil(LOOP_ISSUED / (cycles - issued)))))


@device
def _run_issued(count: int, traces: int, preloads: int, addresses: int, cycles: float) -> int:
    """Instructions of ``count`` sums that are alike, in a row."""
    each = traces + preloads + addresses
    copies = _copies(count, addresses, each, cycles)
    turns = count // copies
    if turns <= 1:
        return traces + count * each
    turn = max(LEAST_TURN, copies * each + LOOP)
    return traces + copies * addresses + 1 + turns * turn + count % copies * each


@device
def add_group(
    n: Numbers, mode: int, groups: int, outputs: int, step: int, rows, columns, work
) -> None:  # fmt: skip
    """Adds to ``work`` (`CYCLES_OF`, `ISSUED`, `VECTORS`) so many groups of filters for the results
    of ``rows`` x ``columns`` (kinds); ``step`` words lie between results."""
    lines = out_lines(outputs, step)
    vmov = 1.0 if mode == COOP else float(ceil_div(2 * min(LANES, outputs), LANES))
    least = max(vmov + (lines if n.has_residual else 0.0), lines)
    preloads = 1 + (1 if n.has_residual else 0)
    moved = 1 if n.has_residual else 0
    together = lie_together(n, columns)
    for t in range(1, 2 * n.rows.kernel + 1):
        if rows[t] == 0:
            continue
        simple = t <= n.rows.kernel
        down = t if simple else t - n.rows.kernel
        cycles, issued, vectors = 0.0, float(ROW if rows[t] > 1 else 0), 0
        for u in range(1, 2 * n.columns.kernel + 1):
            count = columns[u]
            if count == 0:
                continue
            each = down * trace_row(n, mode, u, outputs, together)
            traces = down
            if mode != LANE:
                words = u * n.planes
                if not together:
                    traces, words = down * u, n.planes
                traces *= ceil_div(words, LONGEST_TRACE)
            cycles += count * max(each, least)
            vectors += count * (traces + preloads)
            if not simple or traces > MOST_HELD:
                turn = 3 * traces + preloads + moved + LOOP + 2 + (2 if not simple else 0)
                issued += count * turn
                continue
            runs = 1 if u == n.columns.kernel else min(count, 2)
            issued += runs * _run_issued(
                max(1, count // runs), traces, preloads, traces + moved, each
            )
        if groups > 1:
            issued += GROUP / rows[t]
        repeated = groups * rows[t]
        work[CYCLES_OF] += repeated * max(cycles, issued)
        work[ISSUED] += repeated * issued
        work[VECTORS] += repeated * vectors


@device
def least_rows(n: Numbers, mode: int, r: int, kinds) -> float:
    """Rows of taps of all tiles of ``r`` rows."""
    total, begin = 0.0, 0
    while begin < n.rows.out:
        tiles = alike_tiles(n.rows, begin, r)
        row_kinds(n, mode, begin, min(r, n.rows.out - begin), kinds)
        for t in range(1, 2 * n.rows.kernel + 1):
            total += tiles * kinds[t] * (t if t <= n.rows.kernel else t - n.rows.kernel)
        begin += tiles * r
    return total


@device
def least_columns(n: Numbers, mode: int, c: int, outputs: int, kinds) -> float:
    """Cycles of one row of taps for all columns, in tiles of ``c``."""
    total, begin = 0.0, 0
    while begin < n.columns.out:
        tiles = alike_tiles(n.columns, begin, c)
        column_kinds(n, mode, begin, min(c, n.columns.out - begin), kinds)
        together = lie_together(n, kinds)
        for u in range(1, 2 * n.columns.kernel + 1):
            total += tiles * kinds[u] * trace_row(n, mode, u, outputs, together)
        begin += tiles * c
    return total
