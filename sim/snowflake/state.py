"""Everything that changes while a Snowflake device runs, as flat arrays that compiled code shares.

Shapes: C clusters, U CUs of a cluster, L layers and, as the last one, what belongs to none.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.experimental import structref
from numpy.typing import NDArray

from tvm_npu.sim.compiled.slices import (
    DONE,
    INSTRUCTIONS,
    SLICE,
    begin_run,
    new_work,
    next_slice,
)
from tvm_npu.sim.event_table import grown_events
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.snowflake.columns import (
    CLOCK,
    CORE,
    EVENT_ROOM,
    HULL,
    LOG,
    MEMORY_LANE,
    MOST_HAZARDS,
    MOST_LOG,
    QUEUE,
    UNDEFINED,
    H,
    SnowflakeEvent,
    T,
    V,
)
from tvm_npu.sim.snowflake.isa import (
    BANKS,
    LANES,
    LONGEST_TRACE,
    REGISTERS,
    VMACS,
    MacMode,
    SnowflakeStream,
    Special,
)
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.traps import TrapSlot

Array = NDArray[Any]


class State(NamedTuple):
    """See the module."""

    decoded: Array  # int32 [I, 12]: operation, then the ISA's decoded columns; code after code
    layer_of: Array  # int32 [I]
    code_place: Array  # int64 [C, 2]: first row, rows
    bank_row: Array  # int64 [C, BANKS, 2]: first row and rows that a bank holds
    bank_loads: Array  # int64 [C, BANKS]: incomplete loads
    registers: Array  # int64 [C, 64]
    ready: Array  # float64 [C, 64]: scalars, then readers of specials: from when on
    core: Array  # int64 [C, len(CORE)]
    clock: Array  # float64 [C, len(CLOCK)]
    counts: Array  # int64 [C, 3, 5]
    memory: Array  # uint8 [bytes]
    memory_half: Array  # the same as int16
    segments: Array  # int64 [S, 3]: begin, end, writable
    mbuf: Array  # int16 [C * U, words]
    wbuf: Array  # int16 [C * U * VMACS, words]
    coop: Array  # int64 [3, C * U, VMACS]: sums, what the next ones start with, residuals
    indp: Array  # int64 [3, C * U, VMACS * LANES]
    active: Array  # int64 [2, C * U, VMACS * LANES]: residuals of the open sums: coop, indp
    staged: Array  # int16 [C, QUEUE, U, LONGEST_TRACE]: results that are not in MBuf yet
    vector: Array  # int64 [C, QUEUE, len(V)]
    vector_time: Array  # float64 [C, QUEUE, 2]: start, completion
    transfer: Array  # int64 [C, 2, QUEUE, len(T)]: loads, stores
    transfer_time: Array  # float64 [C, 2, QUEUE, 3]: request, words move, completion
    device: Array  # float64 [2]: when the memory is free; when a transfer goes on next
    calendar: Array  # int64 [4]: whether that is known; what happens then, cluster, unit
    work: Array  # int64 [6]: see `compiled.slices`
    moves: Array  # int64 [1]: words that transfers may move before the slice ends
    checked: Array  # int64 [3]: see `cluster_hazards`
    executed: Array  # int64 [3]: instructions, allowed, end of the slice
    trap: Array  # int64 [TrapSlot.COLUMNS]
    hull: Array  # int64 [C, 3, len(HULL)]: what vector writes, loads write, stores read
    hazards: Array  # int64 [MOST_HAZARDS, len(H)]
    hazard_count: Array  # int64 [1]
    log: Array  # int64 [C, 2, LOG, 5]: row, MEMORY, WORDS, RUNS, MEMORY_STEP since the barrier
    log_count: Array  # int64 [C, 2]
    events: Array  # see `event_table`
    event_times: Array
    event_count: Array
    layer_macs: Array  # int64 [L]
    layer_instructions: Array  # int64 [L, C]
    layer_busy: Array  # float64 [L, 6 C + 1]: cycles of each unit; not of cores, which issue
    layer_wait: Array  # float64 [L, 6 C + 1]
    layer_bytes: Array  # int64 [L, 2, streams]: loaded, stored
    layer_memory: Array  # int64 [L, 3, 2]: bytes of each kind of buffer that transfers read, wrote
    layer_units: Array  # int64 [L, 2]: 64-byte units of memory, loaded and stored
    layer_transfers: Array  # int64 [L, 2]
    layer_traces: Array  # int64 [L, modes, 2]: mac instructions and their lengths
    layer_end: Array  # float64 [L]


@structref.register
class _SharedStateType(types.StructRef):
    """Compiled code passes the state on as one pointer."""


class SharedState(structref.StructRefProxy):
    """The state inside compiled code; made from a `State` at the entry of a run."""

    def __new__(cls, *fields: Any) -> Any:
        return structref.StructRefProxy.__new__(cls, *fields)


structref.define_proxy(SharedState, _SharedStateType, list(State._fields))


class Costs(NamedTuple):
    """The machine's constants as compiled code reads them (cycles, words, bytes)."""

    clusters: int
    cus: int
    mbuf_words: int
    wbuf_words: int
    raw: float
    vector_depth: int
    vector_latency: float
    table_words: int
    load_depth: int
    load_latency: float
    store_depth: int
    store_latency: float
    memory_rate: float
    strict: bool
    records: bool


def make_costs(machine: SnowflakeMachine, strict: bool, records: bool = False) -> Costs:
    """``strict``: a hazard stops the run. ``records``: the run's events are recorded."""
    return Costs(
        clusters=machine.clusters.count,
        cus=machine.clusters.cus,
        mbuf_words=machine.mbuf_words,
        wbuf_words=machine.wbuf_words,
        raw=float(machine.control.raw_cycles),
        vector_depth=machine.vector.queue_depth,
        vector_latency=float(machine.vector.latency_cycles),
        table_words=machine.vector.table_words_per_cycle,
        load_depth=machine.load.queue_depth,
        load_latency=float(machine.load.latency_cycles),
        store_depth=machine.store.queue_depth,
        store_latency=float(machine.store.latency_cycles),
        memory_rate=machine.memory_bytes_per_cycle,
        strict=strict,
        records=records,
    )


def _staged_shape(machine: SnowflakeMachine) -> tuple[int, int, int, int]:
    return machine.clusters.count, QUEUE, machine.clusters.cus, LONGEST_TRACE


def staged_bytes(machine: SnowflakeMachine) -> int:
    """Of `State.staged`."""
    return np.dtype(np.int16).itemsize * math.prod(_staged_shape(machine))


def make_state(
    machine: SnowflakeMachine,
    decoded: Array,
    code_place: Array,
    layer_of: Array,
    layers: int,
    memory_bytes: int,
    segments: Array,
) -> State:
    """``code_place``: see `State`; ``segments``: int64 [S, 3], offsets in memory; ``layer_of`` is
    -1 for rows of no layer."""
    clusters, cus = machine.clusters.count, machine.clusters.cus
    units, rows = clusters * cus, layers + 1
    memory = np.zeros(memory_bytes + memory_bytes % 2, np.uint8)
    results, lanes = VMACS * LANES, MEMORY_LANE * clusters + 1
    return State(
        decoded=decoded,
        layer_of=np.where(layer_of < 0, layers, layer_of).astype(np.int32),
        code_place=code_place,
        bank_row=np.zeros((clusters, BANKS, 2), np.int64),
        bank_loads=np.zeros((clusters, BANKS), np.int64),
        registers=np.zeros((clusters, REGISTERS), np.int64),
        ready=np.zeros((clusters, REGISTERS)),
        core=np.zeros((clusters, len(CORE)), np.int64),
        clock=np.zeros((clusters, len(CLOCK))),
        counts=np.zeros((clusters, 3, 5), np.int64),
        memory=memory,
        memory_half=memory.view(np.int16),
        segments=segments,
        mbuf=np.zeros((units, machine.mbuf_words), np.int16),
        wbuf=np.zeros((units * VMACS, machine.wbuf_words), np.int16),
        coop=np.zeros((3, units, VMACS), np.int64),
        indp=np.zeros((3, units, results), np.int64),
        active=np.zeros((2, units, results), np.int64),
        staged=np.zeros(_staged_shape(machine), np.int16),
        vector=np.zeros((clusters, QUEUE, len(V)), np.int64),
        vector_time=np.zeros((clusters, QUEUE, 2)),
        transfer=np.zeros((clusters, 2, QUEUE, len(T)), np.int64),
        transfer_time=np.zeros((clusters, 2, QUEUE, 3)),
        device=np.zeros(2),
        calendar=np.zeros(4, np.int64),
        work=new_work(),
        moves=np.zeros(1, np.int64),
        checked=np.zeros(3, np.int64),
        executed=np.zeros(3, np.int64),
        trap=np.zeros(TrapSlot.COLUMNS, np.int64),
        hull=np.zeros((clusters, 3, len(HULL)), np.int64),
        hazards=np.zeros((MOST_HAZARDS, len(H)), np.int64),
        hazard_count=np.zeros(1, np.int64),
        log=np.zeros((clusters, 2, LOG if clusters > 1 else 1, 5), np.int64),
        log_count=np.zeros((clusters, 2), np.int64),
        events=np.zeros((0, EventColumn.OWN + len(SnowflakeEvent)), np.int64),
        event_times=np.zeros((0, 2)),
        event_count=np.zeros(1, np.int64),
        layer_macs=np.zeros(rows, np.int64),
        layer_instructions=np.zeros((rows, clusters), np.int64),
        layer_busy=np.zeros((rows, lanes)),
        layer_wait=np.zeros((rows, lanes)),
        layer_bytes=np.zeros((rows, 2, len(SnowflakeStream)), np.int64),
        layer_memory=np.zeros((rows, 3, 2), np.int64),
        layer_units=np.zeros((rows, 2), np.int64),
        layer_transfers=np.zeros((rows, 2), np.int64),
        layer_traces=np.zeros((rows, len(MacMode), 2), np.int64),
        layer_end=np.zeros(rows),
    )


KEPT = frozenset({
    "decoded", "layer_of", "code_place", "memory", "memory_half", "segments", "mbuf", "wbuf",
    "staged", "log", "events", "event_times",
})  # fmt: skip
"""Arrays that a new run does not set to zero."""


def reset_for_run(state: State, machine: SnowflakeMachine, instructions: int, work: int) -> None:
    """Back to the moment before the first instruction; memory stays as it is. ``instructions`` and
    ``work`` are what a run may do."""
    for name, array in state._asdict().items():
        if name not in KEPT:
            array[...] = 0
    state.mbuf[...] = UNDEFINED
    state.wbuf[...] = UNDEFINED
    begin_run(state.work, work)
    state.moves[0] = state.work[SLICE]
    state.executed[1] = instructions
    state.executed[SLICE] = state.work[INSTRUCTIONS]
    everywhere = (1 << machine.clusters.cus) - 1
    for special, value in {
        Special.OUTPUTS: VMACS * LANES, Special.TARGET: 1, Special.CUS: everywhere,
        Special.LOW: -(1 << 15), Special.HIGH: (1 << 15) - 1, Special.DIVISOR: 1,
        Special.LD_RUNS: 1, Special.ST_RUNS: 1,
    }.items():  # fmt: skip
        state.registers[:, special] = value


def resumed(state: State) -> State:
    """The same state with another slice, and with room for twice as many transfers between
    barriers, or more events, where there was none."""
    next_slice(state.work)
    state.moves[0] = state.work[SLICE] - state.work[DONE]
    state.executed[SLICE] = state.executed[0] + state.work[INSTRUCTIONS]
    if state.log_count.max() >= state.log.shape[2] < MOST_LOG:
        state = state._replace(log=np.concatenate([state.log, np.zeros_like(state.log)], axis=2))
    if len(state.events) and state.event_count[0] + EVENT_ROOM > len(state.events):
        state = state._replace(**grown_events(state.events, state.event_times, EVENT_ROOM))
    return state
