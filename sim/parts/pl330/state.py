"""What the controller's compiled code works on: its state, costs and numbers."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim import compiled

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

ACTIONS = (
    "end", "nop", "load", "store", "read_barrier", "write_barrier", "loop", "loop_end",
    "send_event", "wait_event", "add", "add_negative", "move", "illegal",
)  # fmt: skip
"""Names of the semantic actions (`Instruction.execute`) in the order of the numbers below."""
END, NOP, LOAD, STORE, READ_BARRIER, WRITE_BARRIER, LOOP, LOOP_END = range(8)
SEND_EVENT, WAIT_EVENT, ADD, ADD_NEGATIVE, MOVE, ILLEGAL = range(8, 14)

STOPPED, RUNNING, WAITS_FOR_STORES, WAITS_FOR_ROOM, WAITS_FOR_EVENT = range(5)
TIME_REACHED, SIGNALLED, IDLE, TRAPPED, PAUSED, SPENT, RAN_AWAY = range(7)

HELD, CHIP_SIDE, NEXT, BEGIN, FINISH, EVENT, COMPLETE = range(7)
"""Columns of `State.transfer`: whether a channel's program is held to one; 0 or 1 where its source
or its destination is on chip; the address of its next byte there (SENT: none comes any more); from
where to where it may touch DDR; its event; whether a write barrier is behind its last store."""
TRANSFER = 7
SENT = -1

SAR, CCR, DAR = range(3)
DDR, ON_CHIP = range(2)
INSTRUCTIONS, LOADS, STORES, LOADED, STORED, JUMPS, LINE_MISSES = range(7)
COUNTERS = 7
MOST_RUNS = 1 << 12
"""Of a program's stores to DDR, for whoever asks where it wrote."""

SIZE, MASK, MATCH, ACTION, OPERANDS = range(5)
"""Columns of the instruction table; from OPERANDS on (lowest bit, mask, bias) of a and b."""

INFINITY = np.inf
LOW32 = 0xFFFF_FFFF


class State(NamedTuple):
    """Arrays of the whole controller; the first axis is the channel where there is one."""

    table: Array  # int64 [instructions, OPERANDS + 6]
    row_of: Array  # int64 [256]: table row by an instruction's first byte, -1: none
    code: Array  # uint8 [channels, program_bytes]
    code_bytes: Array
    status: Array
    pc: Array
    line: Array  # the line that the thread reads; it keeps it when others take its slot
    ready: Array  # float64: when the thread can go on
    registers: Array  # int64 [channels, 3]: SAR, CCR, DAR
    counter: Array  # int64 [channels, 2]: rounds left behind this one
    body: Array  # int64 [channels, 2]: where the loop's body begins, -1: no loop
    nesting: Array  # int64 [channels, 3]: depth, then the open loops' counters
    fifo: Array  # uint8 [channels, fifo_bytes]
    fifo_head: Array
    fifo_count: Array
    claimed: Array  # bytes of the FIFO that waiting stores take
    data_ready: Array  # float64: when everything loaded has arrived
    stores: Array  # int64 [channels, store_queue, 3]: address, bytes, increments
    store_ready: Array  # float64 [channels, store_queue]
    store_head: Array
    store_count: Array
    store_done: Array  # float64: when the last store was complete
    next_ddr: Array  # int64 [channels, 2]: where the next sequential load and store would be
    waits_for: Array  # int64: event
    end: Array  # float64: when the program ended
    pending: Array  # uint8 [events]
    to_core: Array  # uint8 [events]: goes to the processor instead of to channels
    signal: Array  # float64 [events]
    tags: Array  # int64 [cache_lines]
    free: Array  # float64 [3]: DDR, on-chip memory, execution unit
    last: Array  # int64 [1]: channel of the last turn
    counters: Array  # int64 [channels, COUNTERS]
    runs: Array  # int64 [channels, MOST_RUNS, 2]: begin and end of what a program stored to DDR
    run_count: Array  # more than MOST_RUNS: the last ones are not in `runs`
    transfer: Array  # int64 [channels, TRANSFER]
    work: Array  # int64 [6]: see `compiled.slices`
    trap: Array  # int64 [6]: code, channel, pc, a, b, c
    ddr: Array  # uint8
    on_chip: Array  # uint8


class Costs(NamedTuple):
    """`DmacTiming` and the memories' base addresses as plain numbers."""

    instruction: float
    line: float
    burst: float
    jump: float
    latency: float
    ddr_rate: float
    on_chip_rate: float
    bus_bytes: int
    line_bytes: int
    ddr_base: int
    on_chip_base: int


device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)
"""Nothing here allocates."""


@device
def stop(s, ch, code, a, b, c):  # type: ignore[no-untyped-def]
    s.trap[0], s.trap[1], s.trap[2] = code, ch, s.pc[ch]
    s.trap[3], s.trap[4], s.trap[5] = a, b, c
