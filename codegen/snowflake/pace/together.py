"""All clusters of a device on their way through a program, for compiled code.

Each core goes through its items: vector instructions between which nothing else stands, transfers,
waits, changes of banks. It runs ahead until it has to wait for what is not known yet; then the
memory serves the transfer that was asked for first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.pace.block import (
    DONE,
    FREE,
    FROM_DONE,
    FROM_FREE,
    FROM_ISSUED,
    ISSUED,
    SPAN,
    VECTORS,
)
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.reductions import are_all
from tvm_npu.sim.snowflake.isa import Wait

VECTOR, LOAD, STORE, SYNC, FETCH, ENTER = range(6)
"""Kinds of items: vector instructions (``what``: their row of paces), a load or a store
(``what``: units of memory), a `sync` (``what``: for what, ``more``: how many may be incomplete),
the load of a bank of instructions (``what``: units), and its first instruction."""
KIND, LAYER, WHAT, MORE = range(4)
"""Columns of an item. Of a load ``more`` is 1 where clusters share it."""

RUNNING, WAITING, BARRIER, ENDED = range(4)
LOADS, STORES = range(2)
_NOBODY = -1

Array = Any


class Program(NamedTuple):
    """Items of all clusters, those of cluster c from ``begins[c]`` to ``ends[c]``, and ``gaps``,
    [N, 2]
    the cycles that the core takes in front of each: from when the one before was over, and from
    when it came to that; ``paces`` of vector instructions. Of the machine: ``depths`` of the queues
    of vector, load and store unit, ``latencies`` of the last two, cycles of the memory for a unit,
    and of a jump to another bank."""

    items: Array
    gaps: Array
    begins: Array
    ends: Array
    paces: Array
    depths: Array
    latencies: Array
    unit_cycles: float
    jump_cycles: float


class State(NamedTuple):
    """Of each cluster: its core's ``time``, when it ``came`` to the last item, the item it is
    ``at``, its ``status``, whether the item's gap has ``passed``; when its vector unit is ``free``
    and when the last instructions in its queue are complete (``ring``); how many vector
    instructions there were, and until when they were complete, behind each item that has some
    (``marks``, ``marked``). Of its loads and stores: how many were ``issued`` and ``served``, when
    they were asked for, which items they are and when they are complete; when each unit is free,
    and which load brings the next bank."""

    time: Array
    came: Array
    at: Array
    status: Array
    passed: Array
    free: Array
    ring: Array
    marks: Array
    marked: Array
    issued: Array
    served: Array
    asked: Array
    which: Array
    complete: Array
    unit_free: Array
    fetched: Array


@device
def _state(p: Program) -> State:
    clusters, most = len(p.begins), 1
    for c in range(clusters):
        most = max(most, p.ends[c] - p.begins[c])
    return State(
        np.zeros(clusters), np.zeros(clusters), p.begins.copy(), np.full(clusters, RUNNING),
        np.zeros(clusters, np.bool_), np.zeros(clusters), np.zeros((clusters, p.depths[0])),
        np.zeros((clusters, most + 1, 2)), np.zeros(clusters, np.int64),
        np.zeros((clusters, 2), np.int64), np.zeros((clusters, 2), np.int64),
        np.zeros((clusters, 2, most)), np.zeros((clusters, 2, most), np.int64),
        np.zeros((clusters, 2, most)), np.zeros((clusters, 2)), np.full(clusters, -1),
    )  # fmt: skip


@device
def _vector(p: Program, s: State, c: int, pace) -> float:
    """Vector instructions: moves the core and the unit on; gives when they are complete."""
    depth, ring = p.depths[0], s.ring[c]
    count, t, free = int(pace[VECTORS]), s.time[c], s.free[c]
    core = max(t + pace[ISSUED], free + pace[FROM_ISSUED])
    kept = min(count, depth)
    for k in range(kept):
        core = max(core, ring[k] + pace[ISSUED] - pace[SPAN + k])
    for k in range(depth - kept):
        ring[k] = ring[k + kept]
    for k in range(kept):
        alone = t + pace[SPAN + depth + k]
        ring[depth - kept + k] = max(alone, free + pace[SPAN + 2 * depth + k])
    s.time[c] = core
    s.free[c] = max(t + pace[FREE], free + pace[FROM_FREE])
    done = max(t + pace[DONE], free + pace[FROM_DONE])
    last = s.marked[c]
    s.marks[c, last + 1, 0] = s.marks[c, last, 0] + count
    s.marks[c, last + 1, 1] = max(s.marks[c, last, 1], done)
    s.marked[c] += 1
    return s.marks[c, last + 1, 1]


@device
def _issue(p: Program, s: State, c: int, way: int, kind: int) -> bool:
    """Puts a transfer into its queue; False where nobody knows yet when that has a place."""
    number = s.issued[c, way]
    before = number - p.depths[1 + way]
    if before >= s.served[c, way]:
        return False
    if before >= 0:
        s.time[c] = max(s.time[c], s.complete[c, way, before])
    s.time[c] += 1.0
    s.asked[c, way, number] = s.time[c]
    s.which[c, way, number] = s.at[c]
    s.issued[c, way] += 1
    if kind == FETCH:
        s.fetched[c] = number
    return True


@device
def _vectors_done(s: State, c: int, pending: int) -> float:
    """When at most ``pending`` vector instructions are incomplete."""
    k = s.marked[c]
    needed = s.marks[c, k, 0] - pending
    while k > 0 and s.marks[c, k - 1, 0] >= needed:
        k -= 1
    return s.marks[c, k, 1]


@device
def _sync(s: State, c: int, what: int, pending: int) -> bool:
    """Waits; False where nobody knows yet until when."""
    until = s.time[c] + 1.0
    for way in range(2):
        if what <= Wait.STORE and what != Wait.LOAD + way:
            continue
        last = s.issued[c, way] - 1 - (pending if what <= Wait.STORE else 0)
        if last >= s.served[c, way]:
            return False
        if last >= 0:
            until = max(until, s.complete[c, way, last])
    if what == Wait.VECTOR:
        until = max(until, _vectors_done(s, c, pending))
    elif what > Wait.STORE:
        until = max(until, _vectors_done(s, c, 0))
    s.time[c] = until
    return True


@device
def _run(p: Program, s: State, c: int, layer_ends) -> None:
    """A core runs until it waits for what is not known yet."""
    while s.status[c] == RUNNING:
        if s.at[c] >= p.ends[c]:
            s.status[c] = ENDED
            return
        item = p.items[s.at[c]]
        kind, layer, known = item[KIND], item[LAYER], True
        if not s.passed[c]:
            behind, since = p.gaps[s.at[c]]
            s.time[c] = s.came[c] = max(s.time[c] + behind, s.came[c] + since)
            s.passed[c] = True
        if kind == VECTOR:
            done = _vector(p, s, c, p.paces[item[WHAT]])
            s.came[c] = s.time[c]
            layer_ends[layer] = max(layer_ends[layer], done)
        elif kind == ENTER:
            known = s.fetched[c] < s.served[c, LOADS]
            if known:
                there = s.complete[c, LOADS, s.fetched[c]]
                s.time[c] = max(s.time[c] + p.jump_cycles, there)
        elif kind == SYNC:
            known = _sync(s, c, item[WHAT], item[MORE])
            if known:
                layer_ends[layer] = max(layer_ends[layer], s.time[c])
                if item[WHAT] == Wait.CLUSTERS and len(p.begins) > 1:
                    s.status[c] = BARRIER
        else:
            known = _issue(p, s, c, STORES if kind == STORE else LOADS, kind)
        if not known:
            s.status[c] = WAITING
            return
        s.at[c] += 1
        s.passed[c] = False


@device
def _next(p: Program, s: State) -> tuple[float, int, int, bool]:
    """(when, cluster, way, whether it is for all) of the transfer that was asked for first; cluster
    `_NOBODY`: none."""
    first, cluster, way = np.inf, _NOBODY, LOADS
    together, comes = 0.0, 0
    for c in range(len(p.begins)):
        for k in range(2):
            number = s.served[c, k]
            if number == s.issued[c, k]:
                continue
            asked = max(s.asked[c, k, number], s.unit_free[c, k])
            item = p.items[s.which[c, k, number]]
            if item[KIND] == LOAD and item[MORE] == 1 and len(p.begins) > 1:
                together, comes = max(together, asked), comes + 1
            elif asked < first:
                first, cluster, way = asked, c, k
    if comes == len(p.begins) and together < first:
        return together, 0, LOADS, True
    return first, cluster, way, False


@device
def _serve(p: Program, s: State, cluster: int, way: int, for_all: bool, end: float, layer_ends):
    """A transfer's turn at the memory is over at ``end``."""
    for c in range(len(p.begins)):
        if c != cluster and not for_all:
            continue
        number = s.served[c, way]
        s.complete[c, way, number] = end + p.latencies[way]
        s.unit_free[c, way] = end
        s.served[c, way] += 1
        layer = p.items[s.which[c, way, number], LAYER]
        layer_ends[layer] = max(layer_ends[layer], s.complete[c, way, number])
        if s.status[c] == WAITING:
            s.status[c] = RUNNING


@device
def _meet(p: Program, s: State) -> bool:
    """Clusters that are all at a barrier go on; False where they are not."""
    latest = s.time[0]
    for c in range(len(p.begins)):
        if s.status[c] != BARRIER:
            return False
        latest = max(latest, s.time[c])
    s.time[:] = latest
    s.status[:] = RUNNING
    return True


@entry
def run(program, layer_ends):
    """Writes when each layer ends; False for a program that ends for ever in a wait."""
    s, memory = _state(program), 0.0
    while True:
        for c in range(len(program.begins)):
            _run(program, s, c, layer_ends)
        first, cluster, way, for_all = _next(program, s)
        if cluster != _NOBODY:
            units = program.items[s.which[cluster, way, s.served[cluster, way]], WHAT]
            memory = max(memory, first) + units * program.unit_cycles
            _serve(program, s, cluster, way, for_all, memory, layer_ends)
        elif not _meet(program, s):
            return are_all(s.status, ENDED)
