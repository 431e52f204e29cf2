"""Places in the arrays of `state.State`: columns, lanes, and what their numbers mean."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

UNDEFINED = 0x5A5A
"""What buffers hold before anything is written to them in a run."""

QUEUE = 64
"""Places in the rings of operations: the deepest queue of a machine."""

VECTOR, LOAD, STORE = 0, 1, 2
"""Units of a cluster."""

ISSUED, STARTED, MOVED, DONE, KNOWN = range(5)
"""Counts of a unit's operations. MOVED: transfers whose words have been moved; KNOWN: those that
the program can know to be complete."""

KNOWN_NEXT, NEXT_KIND, NEXT_CLUSTER, NEXT_UNIT = range(4)
"""Places of `State.calendar`."""

CORE_LANE, MAC_LANE, MAX_LANE, VMOV_LANE, LOAD_LANE, STORE_LANE, MEMORY_LANE = range(7)
"""Groups of `SnowflakeMachine.units` in their order: one a cluster each, and one memory."""

RUNNING, QUEUE_FULL, WAITING, FETCHING, BARRIER, ENDED = range(6)
"""What a core does. QUEUE_FULL: waits for a place in the queue of unit UNIT; WAITING: a sync."""


class CoreColumns(NamedTuple):
    """Columns of `State.core`. SLOTS: delay slots to come before the core goes to TARGET; OPEN_*:
    CUs whose sums are open; ROW: of the last instruction."""

    PC: int = 0
    STATUS: int = 1
    UNIT: int = 2
    PENDING: int = 3
    SLOTS: int = 4
    TARGET: int = 5
    OPEN_COOP: int = 6
    OPEN_INDP: int = 7
    ROW: int = 8


CORE = CoreColumns()


class ClockColumns(NamedTuple):
    """Columns of `State.clock`: when the next instruction issues; the start of the last vector
    operation, when the traces' datapath is free, when the port of vmov is free, when the last sums
    opened, when what vmov brought is there, when the write port is free, when the last vector
    operation is complete; when load and store unit are free; when the core began to wait."""

    ISSUE: int = 0
    V_START: int = 1
    V_FREE: int = 2
    PORT_FREE: int = 3
    OPENED: int = 4
    PRELOADED: int = 5
    WRITE_FREE: int = 6
    V_DONE: int = 7
    L_FREE: int = 8
    S_FREE: int = 9
    WAIT_BEGIN: int = 10


CLOCK = ClockColumns()


class VectorFields(NamedTuple):
    """Fields of a vector operation: operands; special registers as latched, in their order; CUs
    whose sums it opens; then what it touches: words, and masks of CUs, READ_WBUFS of vMACs, those
    of CU 0 lowest."""

    ROW: int = 0
    KIND: int = 1
    MODE: int = 2
    FINISH: int = 3
    A: int = 4
    B: int = 5
    LENGTH: int = 6
    OUT: int = 7
    OUT_STEP: int = 8
    OUTPUTS: int = 9
    TARGET: int = 10
    CUS: int = 11
    SHIFT: int = 12
    LOW: int = 13
    HIGH: int = 14
    DIVISOR: int = 15
    SUM_SHIFT: int = 16
    RESIDUAL_SHIFT: int = 17
    SHIFT_A: int = 18
    SHIFT_B: int = 19
    LANE_STEP: int = 20
    TABLE_SHIFT: int = 21
    TABLE_BITS: int = 22
    OPENS: int = 23
    READ_A: int = 24
    READ_A_END: int = 25
    READ_B: int = 26
    READ_B_END: int = 27
    READ_W: int = 28
    READ_W_END: int = 29
    READ_MASK: int = 30
    READ_WBUFS: int = 31
    WRITE: int = 32
    WRITE_END: int = 33
    WRITE_MASK: int = 34


V = VectorFields()


class TransferFields(NamedTuple):
    """Fields of a transfer: runs of WORDS words, MEMORY_STEP bytes and BUFFER_STEP words apart.
    WBUFS: vMACs whose WBufs it loads, those of CU 0 lowest. MOVED_RUNS: runs that were moved so
    far, each once for every buffer."""

    ROW: int = 0
    BUFFER: int = 1
    SHARED: int = 2
    VMACS: int = 3
    CUS: int = 4
    STREAM: int = 5
    MEMORY: int = 6
    WORDS: int = 7
    RUNS: int = 8
    MEMORY_STEP: int = 9
    PLACE: int = 10
    BUFFER_STEP: int = 11
    UNITS: int = 12
    WBUFS: int = 13
    MOVED_RUNS: int = 14


T = TransferFields()


class CauseNumbers(NamedTuple):
    """What units wait for. The core: a register, a place in a queue, an instruction that a `sync`
    names and that ended last, instructions, other clusters. mac and max: vmov, the port for
    results. load and store: other clusters (a shared load), the memory."""

    REGISTER: int = 1
    VECTOR_QUEUE: int = 2
    LOAD_QUEUE: int = 3
    STORE_QUEUE: int = 4
    VECTOR: int = 5
    LOAD: int = 6
    STORE: int = 7
    INSTRUCTIONS: int = 8
    CLUSTERS: int = 9
    VMOV: int = 10
    WRITE_PORT: int = 11
    MEMORY: int = 12


CAUSE = CauseNumbers()


class SnowflakeEvent(IntEnum):
    """An event's own columns, from `EventColumn.OWN` on. MASKS: CUs whose MBufs are read (4 bits),
    written (4), vMACs whose WBufs are touched (16), whether it loads instructions. Then ranges,
    begin + 2**32 * end: words of MBuf read (two), of WBuf (instructions: bytes), of MBuf written;
    bytes of memory."""

    MASKS = 0
    A = 1
    B = 2
    W = 3
    OUT = 4
    MEMORY = 5


class HullFields(NamedTuple):
    """Of what a unit's operations touch since number KNOWN: words of MBufs, words of WBufs; nothing
    where the end is not behind the begin."""

    MBUF: int = 0
    MBUF_END: int = 1
    WBUF: int = 2
    WBUF_END: int = 3
    KNOWN: int = 4


HULL = HullFields()


class HazardFields(NamedTuple):
    """Fields of a hazard: row and cluster of the earlier and the later instruction, memory, begin
    and end of the words (in memory: bytes) among which both touch some, the CUs."""

    EARLIER: int = 0
    EARLIER_CLUSTER: int = 1
    LATER: int = 2
    LATER_CLUSTER: int = 3
    MEMORY: int = 4
    BEGIN: int = 5
    END: int = 6
    CUS: int = 7


H = HazardFields()

MOST_HAZARDS = 64
"""Hazards that a run records; further ones are counted."""

LOG = 1 << 12
"""Loads or stores of a cluster between two barriers that the log holds at first; it grows."""
MOST_LOG = 1 << 19
"""That it ever holds: a program with more of them traps. Whole networks have some thousands."""

EVENT_ROOM = 32
"""Events that one instruction or one step of the device can bring, at most."""
