"""The machine's main loop, compiled: cores run until they wait, then the earliest event happens.

A core that waits goes on no earlier than the event it waits for, so everything that is still to be
issued comes behind the earliest event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.compiled import borrowed, device, entry, uncounted
from tvm_npu.sim.snowflake.checks import GO, GROW, STOP, trap
from tvm_npu.sim.snowflake.cluster_hazards import check_clusters
from tvm_npu.sim.snowflake.columns import (
    BARRIER,
    CAUSE,
    CLOCK,
    CORE,
    DONE,
    ENDED,
    ISSUED,
    KNOWN_NEXT,
    LOAD,
    MOVED,
    NEXT_CLUSTER,
    NEXT_KIND,
    NEXT_UNIT,
    QUEUE,
    RUNNING,
    STARTED,
    STORE,
    VECTOR,
)
from tvm_npu.sim.snowflake.control import go_on, resume, run_core
from tvm_npu.sim.snowflake.isa import BANK_INSTRUCTIONS
from tvm_npu.sim.snowflake.recording import events_fit
from tvm_npu.sim.snowflake.state import Costs, SharedState, State
from tvm_npu.sim.snowflake.transfers import NOBODY, move_words, next_service, serve
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.vector import complete_vector, start_vector

FINISHED, TRAPPED, FULL = 0, 1, 2
"""What `run_device` returns; FULL: the log of transfers or the table of events has to grow, or
a slice is over."""

_START, _COMPLETE, _SERVE, _MOVE, _DONE = range(5)


@entry
def run_device(state: Any, m: Any) -> int:
    """Runs all clusters of a device to their ends."""
    owner = SharedState(*borrowed(state))  # type: ignore[call-arg]
    outcome = _run(uncounted(owner), m)  # type: ignore[call-arg]
    if outcome == TRAPPED:
        return TRAPPED if owner.trap[0] else FINISHED  # the owner has to live until here
    return outcome


@device
def _run(s: State, m: Costs) -> int:
    if s.executed[0] == 0:
        _begin(s, m)
    while True:
        ended = 0
        for c in range(m.clusters):
            if s.core[c, CORE.STATUS] == RUNNING:
                outcome = run_core(s, m, c)
                if outcome == GROW:
                    return FULL
                if outcome == STOP:
                    return TRAPPED
            if s.core[c, CORE.STATUS] == ENDED:
                ended += 1
        if ended == m.clusters:
            outcome = check_clusters(s, m)
            if outcome == GO:
                return FINISHED
            return TRAPPED if outcome == STOP else FULL
        if not events_fit(s, m):
            return FULL
        outcome = _next_event(s, m)
        if outcome != GO:
            return TRAPPED if outcome == STOP else FULL


@device
def _begin(s: State, m: Costs) -> None:
    """The first bank of every cluster is there."""
    for c in range(m.clusters):
        s.bank_row[c, 0, 0] = s.code_place[c, 0]
        s.bank_row[c, 0, 1] = min(s.code_place[c, 1], BANK_INSTRUCTIONS)


@device
def _next_event(s: State, m: Costs) -> int:
    """Finds and does what happens first; equal times go to transfers that are complete, then to
    vector instructions, then to the memory."""
    if s.calendar[KNOWN_NEXT] == 0:
        _plan_transfers(s, m)
    time, kind = s.device[1], s.calendar[NEXT_KIND]
    c, unit = s.calendar[NEXT_CLUSTER], s.calendar[NEXT_UNIT]
    for k in range(m.clusters):
        started, done = s.counts[k, VECTOR, STARTED], s.counts[k, VECTOR, DONE]
        if done < started:
            completes = s.vector_time[k, done % QUEUE, 1]
            if completes < time or (completes == time and kind == _SERVE):
                time, kind, c, unit = completes, _COMPLETE, k, VECTOR
        if started < s.counts[k, VECTOR, ISSUED]:
            begins = s.vector_time[k, started % QUEUE, 0]
            if begins < time or (begins == time and kind == _SERVE):
                time, kind, c, unit = begins, _START, k, VECTOR
    if c == NOBODY:
        return _meet(s, m)
    if kind == _START:
        outcome = start_vector(s, m, c, s.counts[c, VECTOR, STARTED])
        s.counts[c, VECTOR, STARTED] += 1
        return outcome
    if kind == _COMPLETE:
        complete_vector(s, m, c, s.counts[c, VECTOR, DONE])
    else:
        s.calendar[KNOWN_NEXT] = 0
        if kind == _SERVE:
            return serve(s, m, c, unit, time)
        if kind == _MOVE:
            return move_words(s, m, c, unit)
    s.counts[c, unit, DONE] += 1
    resume(s, m, c, unit, time)
    return GO


@device
def _plan_transfers(s: State, m: Costs) -> None:
    """Notes in the calendar what happens next to a transfer; cluster NOBODY: nothing. That holds
    until it has happened or one more is issued."""
    time, kind, c, unit = np.inf, _SERVE, NOBODY, LOAD
    for k in range(m.clusters):
        for way in (LOAD, STORE):
            number = s.counts[k, way, MOVED]
            if number < s.counts[k, way, STARTED]:
                moves = s.transfer_time[k, way - LOAD, number % QUEUE, 1]
                if moves < time:
                    time, kind, c, unit = moves, _MOVE, k, way
            number = s.counts[k, way, DONE]
            if number < s.counts[k, way, MOVED]:
                done = s.transfer_time[k, way - LOAD, number % QUEUE, 2]
                if done < time:
                    time, kind, c, unit = done, _DONE, k, way
    served, server, way = next_service(s, m)
    if server != NOBODY and served < time:
        time, kind, c, unit = served, _SERVE, server, way
    s.device[1] = time
    s.calendar[KNOWN_NEXT], s.calendar[NEXT_KIND] = 1, kind
    s.calendar[NEXT_CLUSTER], s.calendar[NEXT_UNIT] = c, unit


@device
def _meet(s: State, m: Costs) -> int:
    """Nothing happens any more: all clusters are at the barrier, or one waits in vain."""
    latest, waits, missing = 0.0, NOBODY, NOBODY
    for c in range(m.clusters):
        if s.core[c, CORE.STATUS] == BARRIER:
            latest = max(latest, s.clock[c, CLOCK.ISSUE])
        else:
            missing = c
        if s.core[c, CORE.STATUS] != ENDED:
            waits = c if waits == NOBODY else waits
    if missing != NOBODY:
        if waits == missing:
            for c in range(m.clusters):
                missing = c if c != waits else missing
        return trap(s, waits, s.core[waits, CORE.ROW], Code.NO_PARTNER, missing, 0, 0)
    outcome = check_clusters(s, m)
    if outcome != GO:
        return outcome
    for c in range(m.clusters):
        go_on(s, m, c, latest, CAUSE.CLUSTERS)
    return GO
