"""Numbers that the NMP's simulator shares: codes, places in its arrays, sizes of its buffers."""

from __future__ import annotations

from tvm_npu.sim.nmp.xnmp import CONFIG_REGISTERS

RUNNING, WAITING, QUEUE_FULL, HALTED = 0, 1, 2, 3
"""Core status."""

SEMAPHORES = 16

MB0_WINDOW, MB1_WINDOW, BIAS_WINDOW = 0x1000_0000, 0x1800_0000, 0x2000_0000
"""Where a core's scalar loads and stores see its own scratchpads."""

SPANS = 4
"""Byte ranges of a core's MB0 that are known to have the same content as another's."""

SCRATCH_ELEMENTS = 1 << 19
"""float64 elements of an im2col buffer, at most; larger tiles go in column blocks."""

COLUMN_BUFFERS = 8
"""im2col buffers of a TLE."""

LOADED, STORED, RING, FORWARDED = range(4)
"""Links, as `NmpMachine.links` orders them; the last two are there with rings only."""
LINKS = 4


class Descriptor:
    """Columns of a queued DMA descriptor; the DMA registers' snapshot starts at REGISTERS.

    LOCAL and SPAN are the bytes of MEMORY that the receivers (stores: the own TLT) use, TLTS and
    TLES their bits. A forward's ADDRESS is the byte of MB2 that its registers count from, USED and
    USED_SPAN what it reads there; its BURSTS are those of the ring, not of DRAM. EVENT is the
    number of its event, in runs that record events."""

    KIND, MEMORY, CORE, SEM, ADDRESS, LOCAL, SPAN, BURSTS, BYTES, LAYER, STREAM, PC = range(12)
    TLTS, TLES, USED, USED_SPAN, EVENT = range(12, 17)
    REGISTERS = 17
    COLUMNS = REGISTERS + CONFIG_REGISTERS


class TrapSlot:
    CODE, CORE, PC, A, B, C, MEMORY = range(7)
    COLUMNS = 7


class NmpEvent:
    """An event's own columns, from `EventColumn.OWN` on: the core that issued it; of a transfer its
    receivers as bits, as in `Descriptor`; then ACCESSES times memory (MB0, MB1, MB2, bias buffer),
    first and last byte, whether it writes (last 0: no access), then values of tile registers."""

    CORE, TLTS, TLES = range(3)
    FIRST_ACCESS = 3
    ACCESSES = 4
    TILE = FIRST_ACCESS + 4 * ACCESSES
