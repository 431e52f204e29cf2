"""How fast a block of code runs where nothing stops it from outside, for compiled code.

The core issues an instruction a cycle, later where a register was just written or the vector unit's
queue is full. The vector unit takes instructions in order: a trace behind the last one's reads, a
`vmov` beside it, results behind their trace. Once the turns of a loop take equally long, those that
are left are added up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.snowflake.isa import DELAY_SLOTS
from tvm_npu.sim.snowflake.registers import READERS

SCALAR, TRACE, VMOV, TRANSFER, BRANCH, WAIT = range(6)
"""Kinds of instructions. A `sync` in front of a block's vector instructions counts as a transfer:
both keep their place in the order; one behind waits for these to be complete."""
KIND, DEST, FIRST, SECOND, THIRD, READER, WRITTEN, SUM, ENDS, TURNS, TARGET = range(11)
"""Columns of an instruction: kind, register that it writes, up to three that it reads (-1: none),
which reader of special registers it is (-1: none), a bit for each reader of the special register
that it writes; of a trace whether it adds to a sum and whether that ends; of a branch the turns of
its loop and where that begins."""
COLUMNS = 11
_READERS = READERS.shape[1]
ISSUED, FREE, DONE, VECTORS, FROM_ISSUED, FROM_FREE, FROM_DONE, SPAN = range(8)
"""What `pace` gives of a block behind its last transfer or `sync` in front of vector instructions,
cycles from there if the vector unit is idle: until the core is through, until the unit takes
another trace, until all results are complete; vector instructions. The same three from where the
unit takes another trace, if the core is far ahead. Behind them, for as many instructions as the
queue holds: when the first ones issue; when the last ones are complete, in both cases."""
BEHIND, SINCE = range(2)
"""Columns of `pace`'s gaps: the cycles that the core takes in front of a transfer or `sync` from
when the one before was over, however long that waited, and, for what was written before it, from
when the one before issued."""

_ISSUE, _START, _FREE, _PORT, _OPENED, _PRELOADED, _WRITE, _DONE, _IS_OPEN = range(9)
_CLOCKS = 9
"""When the core issues next; when the last trace or `vmov` started, the unit is free, the port of
`vmov` is free, the last sums opened, what `vmov` brought is there, results have left, all is
complete; whether (1) sums are open."""
_BUSY = float(1 << 30)
"""Cycles that the unit is busy for in front of a block, to see what it takes alone."""
_NEAR = 1e-6
_BEFORE = 4.0
"""Cycles before a trace ends from which on the `vmov` of the next sum can run, about."""


@device
def _same(delta, before) -> bool:
    """All clocks have moved on as in the turn before, and as the core or not at all."""
    for k in range(_CLOCKS):
        if abs(delta[k] - before[k]) > _NEAR:
            return False
        if delta[k] != 0.0 and abs(delta[k] - delta[_ISSUE]) > _NEAR:
            return False
    return True


@device
def _vector(op, lasting: float, leaving: float, latency: float, now: float, clocks) -> float:
    """A vector instruction that issues ``now``: moves the unit's clocks on; gives when it is
    complete."""
    start = max(now + 1.0, clocks[_START])
    if op[KIND] == VMOV:
        start = max(start, max(clocks[_PORT], clocks[_OPENED]))
        done = start + lasting
        clocks[_PORT] = clocks[_PRELOADED] = done
    else:
        start = max(start, clocks[_FREE])
        if op[SUM] == 1 and clocks[_IS_OPEN] == 0.0:
            start = max(start, clocks[_PRELOADED])
            clocks[_OPENED] = start
        clocks[_IS_OPEN] = 1.0 if op[SUM] == 1 and op[ENDS] == 0 else 0.0
        end = done = start + lasting
        if op[ENDS] == 1:
            end = max(end, clocks[_WRITE])
            clocks[_WRITE] = end + leaving
            done = end + leaving + latency
        clocks[_FREE] = end
    clocks[_START] = start
    clocks[_DONE] = max(clocks[_DONE], done)
    return clocks[_DONE]


class _Core(NamedTuple):
    """When scalar registers can be read, and special ones by each reader; when the vector
    instructions in the queue are complete. By branch: turns so far, the clocks, how they moved in
    the turn before, vector instructions by then, and from which one on all turns were alike."""

    ready: Any
    readable: Any
    ends: Any
    turn: Any
    last: Any
    moved: Any
    vectors: Any
    alike: Any


@device
def _issues(core: _Core, op, now: float) -> float:
    """When an instruction issues whose turn is ``now``: behind those that write what it reads."""
    for k in range(FIRST, THIRD + 1):
        if op[k] >= 0:
            now = max(now, core.ready[op[k]])
    return max(now, core.readable[op[READER]]) if op[READER] >= 0 else now


@device
def _writes(core: _Core, op, there: float) -> None:
    """What an instruction writes can be read without a wait at time ``there``."""
    if op[DEST] >= 0:
        core.ready[op[DEST]] = there
    for k in range(_READERS):
        if op[WRITTEN] >> k & 1:
            core.readable[k] = there


@device
def _turned(core: _Core, at: int, left: int, clocks, vectors: int, issued: int) -> int:
    """A turn of a loop is over, ``left`` are to come. Where they are all alike all but the last are
    added up; gives how many were."""
    delta, skipped = clocks - core.last[at], 0
    if core.turn[at] > 1:
        alike = core.turn[at] > 2 and _same(delta, core.moved[at])
        core.alike[at] = core.alike[at] if alike else issued
        each = vectors - core.vectors[at]
        full = min(len(core.ends), 2 * each)
        if alike and left > 1 and issued - core.alike[at] >= full:
            skipped = left - 1
            core.ready[:] += skipped * delta[_ISSUE]
            core.readable[:] += skipped * delta[_ISSUE]
            core.ends[:] += skipped * delta[_ISSUE]
            clocks += skipped * delta
            vectors += skipped * each
            core.turn[at] += skipped
    core.moved[at] = delta
    core.last[at] = clocks
    core.vectors[at] = vectors
    return skipped


@device
def _core(ops, registers, ends) -> _Core:
    count = len(ops)
    return _Core(
        np.zeros(registers), np.zeros(_READERS), ends, np.zeros(count, np.int64),
        np.zeros((count, _CLOCKS)), np.zeros((count, _CLOCKS)), np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )  # fmt: skip


@device
def _gaps(ops, registers, raw: float, gaps) -> int:
    """Writes the gaps in front of the transfers that stand before loops and vector instructions,
    and behind them one more: `SINCE` has the cycles that what comes there, up to a loop, waits for
    what was written before, if the last transfer did not wait. Gives the place behind that."""
    none = np.zeros(0)
    core, fresh = _core(ops, registers, none), _core(ops, registers, none)
    now = behind = 0.0
    number = place = 0
    for at in range(len(ops)):
        op = ops[at]
        kind = op[KIND]
        now, behind = _issues(core, op, now), _issues(fresh, op, behind)
        if kind == BRANCH or kind == WAIT:
            break
        if kind == TRANSFER:
            gaps[number, BEHIND], gaps[number, SINCE] = behind, now
            number += 1
            place = at + 1
            core.ready[:] -= now
            core.readable[:] -= now
            fresh.ready[:] = fresh.readable[:] = 0.0
            now, behind = 1.0, 0.0
            continue
        _writes(core, op, now + 1.0 + raw)
        _writes(fresh, op, behind + 1.0 + raw)
        now += 1.0
        behind += 1.0
    gaps[number, BEHIND], gaps[number, SINCE] = behind, now
    return place


@device
def _runs(
    ops, begin: int, lasting, leaving, registers, raw: float, latency: float, busy: float, clocks,
    starts, ends, comes,
) -> int:  # fmt: skip
    """Runs a block from place ``begin`` on, whose vector unit is ``busy`` until then; writes the
    clocks, when the first vector instructions issue, when the last are complete, and when the core
    comes to each place for the first time. Gives the number of vector instructions."""
    count, depth = len(ops), len(ends)
    core = _core(ops, registers, ends)
    clocks[:] = 0.0
    if busy > 0:
        clocks[_START], clocks[_FREE] = busy - _BEFORE, busy
    ends[:] = -np.inf
    comes[:] = np.inf
    vectors = issued = 0
    at, slots, target = begin, 0, 0
    while at < count:
        op = ops[at]
        kind, is_vector = op[KIND], op[KIND] == TRACE or op[KIND] == VMOV
        now = clocks[_ISSUE]
        comes[at] = min(comes[at], now)
        if is_vector and issued >= depth:
            now = max(now, ends[issued % depth])
        now = _issues(core, op, now)
        clocks[_ISSUE] = now + 1.0
        _writes(core, op, now + 1.0 + raw)
        if kind == WAIT:
            clocks[_ISSUE] = max(clocks[_ISSUE], clocks[_DONE])
        elif is_vector:
            if issued < depth:
                starts[issued] = now
            ends[issued % depth] = _vector(op, lasting[at], leaving[at], latency, now, clocks)
            issued += 1
            vectors += 1
        elif kind == BRANCH:
            core.turn[at] += 1
            left = op[TURNS] - core.turn[at]
            each = vectors - core.vectors[at]
            skipped = _turned(core, at, left, clocks, vectors, issued)
            vectors += skipped * each
            slots, target = DELAY_SLOTS + 1, op[TARGET]
            if left == 0:
                core.turn[at], target = 0, at + 1 + DELAY_SLOTS
        at += 1
        if slots > 0:
            slots -= 1
            if slots == 0:
                at = target
    if issued > depth:  # oldest first
        ends[:] = np.concatenate((ends[issued % depth :], ends[: issued % depth]))
    return vectors


@entry
def pace(ops, lasting, leaving, registers, raw, latency, depth, found, gaps, comes):
    """Writes what a block takes, the gaps in front of its transfers and behind them, and when the
    core comes to each place behind them. ``lasting`` are the cycles of vector instructions,
    ``leaving`` those in which their results leave."""
    clocks = np.zeros(_CLOCKS)
    starts, ends = np.full(depth, np.inf), np.zeros(depth)
    begin = _gaps(ops, registers, raw, gaps)
    count = _runs(
        ops, begin, lasting, leaving, registers, raw, latency, 0.0, clocks, starts, ends, comes
    )
    found[ISSUED], found[FREE], found[DONE] = clocks[_ISSUE], clocks[_FREE], clocks[_DONE]
    found[VECTORS] = count
    found[SPAN : SPAN + depth] = starts
    found[SPAN + depth : SPAN + 2 * depth] = ends
    if count == 0:
        return
    _runs(
        ops, begin, lasting, leaving, registers, raw, latency, _BUSY, clocks, starts, ends,
        comes.copy(),
    )  # fmt: skip
    found[FROM_ISSUED] = clocks[_ISSUE] - _BUSY
    found[FROM_FREE], found[FROM_DONE] = clocks[_FREE] - _BUSY, clocks[_DONE] - _BUSY
    found[SPAN + 2 * depth : SPAN + 3 * depth] = ends - _BUSY
