"""The table of events inside compiled code.

A simulator's state that records events has the fields ``events`` (int64 [capacity, columns], the
first ones `EventColumn`s), ``event_times`` (float64 [capacity, 2]: begin, end) and ``event_count``
(int64 [1]). `add_event` lets the table grow when it is full, so whoever enters compiled code
takes ``events`` and ``event_times`` back from it. Code that cannot do that makes room first
(`grown_events`) and uses `write_event`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arrays import copy_into
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.events import EventColumn

FIRST_CAPACITY = 1 << 12
MOST_EVENTS = 1 << 20
"""Of a run, about. Whole networks have some hundred thousand."""
MOST_EVENT_BYTES = 3 << 27
"""Of a run's table, whose rows have 180 bytes on a Snowflake and 520 on an NMP."""


class EventsError(SimError):
    """A run of more events than are kept."""


def most_events(columns: int) -> int:
    """How many a table of so many columns, and of times, keeps."""
    return min(MOST_EVENTS, MOST_EVENT_BYTES // (8 * (columns + 2)))


def check_events(count: int, columns: int) -> None:
    """EventsError where a run has ``count`` events or more."""
    most = most_events(columns)
    if count >= most:
        raise EventsError(
            f"the run has {count:,} events or more; at most {most:,} are recorded: run it "
            "without recording, or on a machine with larger memories, whose tiles are fewer"
        )


def event_room(columns: int) -> dict[str, NDArray[Any]]:
    """The state's fields that make room for the first events."""
    return {
        "events": np.zeros((FIRST_CAPACITY, columns), np.int64),
        "event_times": np.zeros((FIRST_CAPACITY, 2)),
    }


def grown_events(
    events: NDArray[np.int64], times: NDArray[np.float64], more: int
) -> dict[str, NDArray[Any]]:
    """The state's fields for a table of up to twice the size and room for ``more`` events. Raises
    EventsError."""
    columns = events.shape[1]
    check_events(len(events), columns)
    count = max(min(2 * len(events), most_events(columns)), len(events)) + more
    # Memory that nothing was written to costs nothing.
    wider, later = np.zeros((count, columns), np.int64), np.zeros((count, 2))
    wider[: len(events)], later[: len(times)] = events, times
    return {"events": wider, "event_times": later}


@device
def add_event(s: Any, unit: int, row: int, begin: float, end: float) -> int:
    """A new event of the instruction at ``row``, its other columns zero; returns its number. Look
    into ``events`` only after this call: it may have been replaced."""
    k = s.event_count[0]
    if k == len(s.events):
        events = np.zeros((2 * k, s.events.shape[1]), np.int64)
        times = np.zeros((2 * k, 2))
        for i in range(k):
            copy_into(events[i], s.events[i])
            copy_into(times[i], s.event_times[i])
        s.events = events
        s.event_times = times
    write_event(s, unit, row, begin, end)
    return k


@device
def note_store(
    event: Any, maker: int, begin: int, run_bytes: int, runs: int, run_step: int, groups: int,
    group_step: int,
) -> None:  # fmt: skip
    """Which bytes outside of the chip the event writes: see `EventColumn`."""
    event[EventColumn.MAKER], event[EventColumn.BEGIN] = maker, begin
    event[EventColumn.RUN_BYTES], event[EventColumn.RUNS] = run_bytes, runs
    event[EventColumn.RUN_STEP] = run_step
    event[EventColumn.GROUPS], event[EventColumn.GROUP_STEP] = groups, group_step


@device
def write_event(s: Any, unit: int, row: int, begin: float, end: float) -> int:
    """As `add_event`, where the caller has made sure that the table is not full."""
    k = s.event_count[0]
    s.event_count[0] = k + 1
    event = s.events[k]
    for column in range(len(event)):
        event[column] = 0
    event[EventColumn.UNIT], event[EventColumn.ROW] = unit, row
    event[EventColumn.LAYER] = s.layer_of[row]
    s.event_times[k, 0], s.event_times[k, 1] = begin, end
    return k
