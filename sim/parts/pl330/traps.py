"""Why a DMA channel stops against its will."""

from __future__ import annotations

from enum import IntEnum

from tvm_npu.sim.errors import SimError


class DmacError(SimError, ValueError):
    """A request to the controller that it cannot take: channel, event, program or time."""


class DmacTrapCode(IntEnum):
    NONE = 0
    UNDEFINED_INSTRUCTION = 1
    OUTSIDE_PROGRAM = 2
    OUTSIDE_MEMORY = 3
    UNALIGNED_BURST = 4
    BAD_CONTROL = 5
    LOOP_NESTING = 6
    EVENT_NUMBER = 7
    FIFO_OVERFLOW = 8
    FIFO_UNDERFLOW = 9
    DEADLOCK = 10
    OUTSIDE_TRANSFER = 11
    TRANSFER_EVENT = 12
    BUDGET = 13
    RUNAWAY = 14


DETAIL_FORMATS: dict[DmacTrapCode, str] = {
    DmacTrapCode.UNDEFINED_INSTRUCTION: "byte {a:#04x} begins no instruction of a channel",
    DmacTrapCode.OUTSIDE_PROGRAM: "the program has {a} bytes and no DMAEND on this way",
    DmacTrapCode.OUTSIDE_MEMORY: "burst of {b} bytes at {a:#x} lies in neither memory",
    DmacTrapCode.UNALIGNED_BURST: "burst at {a:#x} is not aligned to its beats of {b} bytes",
    DmacTrapCode.BAD_CONTROL: (
        "CCR {a:#010x}: beats are at most the bus's {b} bytes, without an endian swap"
    ),
    DmacTrapCode.LOOP_NESTING: (
        "loop counter {a}: loops nest, use both counters once, and end where they began"
    ),
    DmacTrapCode.EVENT_NUMBER: "event {a}; the controller has events 0 to {b}",
    DmacTrapCode.FIFO_OVERFLOW: (
        "burst of {a} bytes does not fit beside the {b} in the FIFO of {c}, and no store waits"
    ),
    DmacTrapCode.FIFO_UNDERFLOW: "store of {a} bytes; {b} are loaded and not yet stored",
    DmacTrapCode.OUTSIDE_TRANSFER: (
        "burst of {b} bytes at {a:#x} is none of this transfer's: on chip they follow each other, "
        "in DDR they lie within it, and none comes behind its event"
    ),
    DmacTrapCode.TRANSFER_EVENT: (
        "event {a}; this transfer sends event {b}, once, behind DMAWMB and its last store"
    ),
    DmacTrapCode.BUDGET: "the run has done {a} units of work; the limit is {b}",
    DmacTrapCode.RUNAWAY: "more than {a} instructions in a run",
}
