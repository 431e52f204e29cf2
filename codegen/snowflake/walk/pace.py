"""How fast a block of code runs where nothing stops it from outside, for compiled code.

The core issues an instruction a cycle, later where a register was just written or the vector unit's
queue is full. The vector unit takes instructions in order: a trace behind the last one's reads, a
`vmov` beside it, results behind their trace. Once the turns of a loop take equally long, those that
are left are added up.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.snowflake.isa import DELAY_SLOTS

SCALAR, TRACE, VMOV, TRANSFER, BRANCH, WAIT = range(6)
"""Kinds of instructions. A `sync` in front of a block's vector instructions counts as a transfer:
both keep their place in the order; one behind waits for these to be complete."""
KIND, DEST, FIRST, SECOND, THIRD, READER, WRITTEN, SUM, ENDS, TURNS, TARGET = range(11)
"""Columns of an instruction: kind, register that it writes, up to three that it reads (-1: none),
which reader of special registers it is (-1: none), a bit for each reader of the special register
that it writes; of a trace whether it adds to a sum and whether that ends; of a branch the turns of
its loop and where that begins."""
COLUMNS = 11
READERS = 5
ISSUED, FREE, DONE, VECTORS, FROM_ISSUED, FROM_FREE, FROM_DONE, SPAN = range(8)
"""What `pace` gives, cycles from the begin of the block if the vector unit is idle: until the core
is through, until the unit takes another trace, until all results are complete; vector
instructions. The same three from where the unit takes another trace, if the core is far ahead.
Behind them, for as many instructions as the queue holds: when the first ones issue; when the last
ones are complete, in both cases."""

_ISSUE, _START, _FREE, _PORT, _OPENED, _PRELOADED, _WRITE, _DONE = range(8)
_CLOCKS = 8
_BUSY = float(1 << 30)
"""Cycles that the unit is busy for in front of a block, to see what it takes alone."""
_NEAR = 1e-6
_BEFORE = 4.0
"""Cycles before a trace ends from which on the `vmov` of the next sum can run, about."""


@device
def _same(now, last, delta, before, first: bool) -> bool:
    """All clocks have moved on as in the turn before, and as the core or not at all."""
    same = not first
    for k in range(_CLOCKS):
        moved = now[k] - last[k]
        same = same and abs(moved - before[k]) < _NEAR
        before[k] = moved
        delta[k] = moved
    for k in range(_CLOCKS):
        same = same and (abs(delta[k] - delta[_ISSUE]) < _NEAR or delta[k] == 0.0)
    return same


@device
def _runs(
    ops, lasting, leaving, registers, raw: float, latency: float, depth: int, busy: float, clocks,
    starts, ends, issues,
) -> int:  # fmt: skip
    """Runs a block whose vector unit is ``busy`` until then; writes the clocks, when the first
    vector instructions issue, when the last are complete, and when transfers issue. Gives the
    number of vector instructions."""
    ready, readable = np.zeros(registers), np.zeros(READERS)
    count = len(ops)
    turn = np.zeros(count, np.int64)
    last, before = np.zeros((count, _CLOCKS)), np.zeros((count, _CLOCKS))
    vectors_at, alike_since = np.zeros(count, np.int64), np.zeros(count, np.int64)
    delta = np.zeros(_CLOCKS)
    clocks[:] = 0.0
    if busy > 0:
        clocks[_START], clocks[_FREE] = busy - _BEFORE, busy
    ends[:] = -np.inf
    vectors = issued = transfers = 0
    opened = False
    at, slots, target = 0, -1, 0
    while at < count:
        op = ops[at]
        kind = op[KIND]
        now = clocks[_ISSUE]
        is_vector = kind == TRACE or kind == VMOV
        if is_vector and issued >= depth:
            now = max(now, ends[issued % depth])
        for k in range(FIRST, THIRD + 1):
            if op[k] >= 0:
                now = max(now, ready[op[k]])
        if op[READER] >= 0:
            now = max(now, readable[op[READER]])
        clocks[_ISSUE] = now + 1.0
        if op[DEST] >= 0:
            ready[op[DEST]] = now + 1.0 + raw
        for k in range(READERS):
            if op[WRITTEN] >> k & 1:
                readable[k] = now + 1.0 + raw
        if kind == TRANSFER:
            issues[transfers] = now
            transfers += 1
        if kind == WAIT:
            clocks[_ISSUE] = max(clocks[_ISSUE], clocks[_DONE])
        if is_vector:
            if issued < depth:
                starts[issued] = now
            start = max(now + 1.0, clocks[_START])
            if kind == VMOV:
                start = max(start, max(clocks[_PORT], clocks[_OPENED]))
                done = start + lasting[at]
                clocks[_PORT] = clocks[_PRELOADED] = done
            else:
                start = max(start, clocks[_FREE])
                if op[SUM] and not opened:
                    start = max(start, clocks[_PRELOADED])
                    clocks[_OPENED] = start
                opened = op[SUM] == 1 and op[ENDS] == 0
                end = done = start + lasting[at]
                if op[ENDS]:
                    end = max(end, clocks[_WRITE])
                    clocks[_WRITE] = end + leaving[at]
                    done = end + leaving[at] + latency
                clocks[_FREE] = end
            clocks[_START] = start
            clocks[_DONE] = max(clocks[_DONE], done)
            ends[issued % depth] = clocks[_DONE]
            issued += 1
            vectors += 1
        if kind == BRANCH:
            turn[at] += 1
            left = op[TURNS] - turn[at]
            if turn[at] > 1:
                alike = _same(clocks, last[at], delta, before[at], turn[at] == 2)
                alike_since[at] = alike_since[at] if alike else issued
                each = vectors - vectors_at[at]
                if alike and left > 1 and issued - alike_since[at] >= min(depth, 2 * each):
                    further = float(left - 1)
                    ready += further * delta[_ISSUE]
                    readable += further * delta[_ISSUE]
                    ends += further * delta[_ISSUE]
                    clocks += further * delta
                    vectors += (left - 1) * each
                    turn[at] += left - 1
                    left = 1
            last[at] = clocks
            vectors_at[at] = vectors
            slots = DELAY_SLOTS + 1
            target = at + 1 + DELAY_SLOTS
            if left > 0:
                target = op[TARGET]
            else:
                turn[at] = 0
        at += 1
        if slots > 0:
            slots -= 1
            if slots == 0:
                at = target
    if issued > depth:  # oldest first
        ends[:] = np.concatenate((ends[issued % depth :], ends[: issued % depth]))
    return vectors


@entry
def pace(ops, lasting, leaving, registers, raw, latency, depth, found, issues):
    """Writes what a block takes, and when its transfers issue. ``lasting`` are the cycles of vector
    instructions, ``leaving`` those in which their results leave."""
    clocks = np.zeros(_CLOCKS)
    starts, ends = np.full(depth, np.inf), np.zeros(depth)
    count = _runs(
        ops, lasting, leaving, registers, raw, latency, depth, 0.0, clocks, starts, ends, issues
    )
    found[ISSUED], found[FREE], found[DONE] = clocks[_ISSUE], clocks[_FREE], clocks[_DONE]
    found[VECTORS] = count
    found[SPAN : SPAN + depth] = starts
    found[SPAN + depth : SPAN + 2 * depth] = ends
    if count == 0:
        return
    _runs(
        ops, lasting, leaving, registers, raw, latency, depth, _BUSY, clocks, starts, ends, issues
    )
    found[FROM_ISSUED] = clocks[_ISSUE] - _BUSY
    found[FROM_FREE], found[FROM_DONE] = clocks[_FREE] - _BUSY, clocks[_DONE] - _BUSY
    found[SPAN + 2 * depth : SPAN + 3 * depth] = ends - _BUSY
