"""Why a Snowflake machine stops against its program's will: codes, and the texts that belong to
them."""

from __future__ import annotations

from enum import IntEnum


class SnowflakeTrapCode(IntEnum):
    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    OUTSIDE_BUFFER = 2
    OUTSIDE_MEMORY = 3
    READ_ONLY = 4
    BAD_OPERAND = 5
    UNALIGNED = 6
    SUM_OVERFLOW = 7
    BRANCH_IN_SLOT = 8
    BANK = 9
    NO_PARTNER = 10
    SHARED_DIFFERS = 11
    BUDGET = 12
    HAZARD = 13
    RUNAWAY = 14
    NO_BARRIER = 15


MEANINGS: dict[SnowflakeTrapCode, str] = {
    SnowflakeTrapCode.ILLEGAL_INSTRUCTION: (
        "a word that is no instruction, or a place of the instruction buffer that holds none"
    ),
    SnowflakeTrapCode.OUTSIDE_BUFFER: "words outside of a MBuf or WBuf",
    SnowflakeTrapCode.OUTSIDE_MEMORY: "bytes that lie in no one segment of the image",
    SnowflakeTrapCode.READ_ONLY: "a store to a segment of constants",
    SnowflakeTrapCode.BAD_OPERAND: "an operand or a special register that cannot be used",
    SnowflakeTrapCode.UNALIGNED: "an address, a step or a place that is no multiple of its unit",
    SnowflakeTrapCode.SUM_OVERFLOW: (
        "a sum, or what the next sum starts with, that does not fit 48 bits; with DIVISOR above 1, "
        "s that does not fit 62 bits before it is divided"
    ),
    SnowflakeTrapCode.BRANCH_IN_SLOT: "a branch in a delay slot of another, taken or not",
    SnowflakeTrapCode.BANK: "a load of instructions to the bank that it comes from",
    SnowflakeTrapCode.NO_PARTNER: (
        "a barrier or a shared load to which another cluster does not come: where one that waits "
        "has come to when all have ended or wait"
    ),
    SnowflakeTrapCode.SHARED_DIFFERS: "a shared load that differs from another cluster's",
    SnowflakeTrapCode.BUDGET: "more products and moved words than a run may have",
    SnowflakeTrapCode.HAZARD: (
        "without timing, an instruction that touches what one that may be incomplete touches"
    ),
    SnowflakeTrapCode.RUNAWAY: "more instructions than a run may have",
    SnowflakeTrapCode.NO_BARRIER: "more transfers of a cluster without a barrier than are checked",
}
"""What the document says of each."""

DETAIL_FORMATS: dict[SnowflakeTrapCode, str] = {
    SnowflakeTrapCode.ILLEGAL_INSTRUCTION: (
        "no instruction at place {a} of the instruction buffer: {text}"
    ),
    SnowflakeTrapCode.OUTSIDE_BUFFER: "touches words {a}..{b} of {memory}, which has {c}",
    SnowflakeTrapCode.OUTSIDE_MEMORY: (
        "touches bytes {a}..{b} of memory, which lie in no one segment of the image"
    ),
    SnowflakeTrapCode.READ_ONLY: "stores to bytes {a}..{b} of memory, a segment of constants",
    SnowflakeTrapCode.BAD_OPERAND: "{operand} is {a}; allowed here are {b} to {c}",
    SnowflakeTrapCode.UNALIGNED: "{operand} is {a}; it has to be a multiple of {b}",
    SnowflakeTrapCode.SUM_OVERFLOW: "a sum of CU {a} does not fit {b} bits",
    SnowflakeTrapCode.BRANCH_IN_SLOT: "a branch in a delay slot of another one",
    SnowflakeTrapCode.BANK: (
        "loads instructions to bank {a}; it comes from bank {b}, and only the other can be loaded"
    ),
    SnowflakeTrapCode.NO_PARTNER: (
        "waits for the other clusters, and cluster {a} does not come: it has ended or waits for "
        "something else"
    ),
    SnowflakeTrapCode.SHARED_DIFFERS: (
        "is a shared load that differs from the one that cluster {a} has come to"
    ),
    SnowflakeTrapCode.BUDGET: (
        "more than {a} products and moved words in a run; no layer needs as many"
    ),
    SnowflakeTrapCode.RUNAWAY: "more than {a} instructions in a run",
    SnowflakeTrapCode.NO_BARRIER: (
        "more than {a} transfers of a cluster without a barrier (sync clusters); put one between "
        "them"
    ),
    SnowflakeTrapCode.HAZARD: "{text}",
}


class TrapSlot:
    """Entries of the trap record. MEMORY is a `TrapMemory`, OPERAND a `TrapOperand`."""

    CODE, ROW, CLUSTER, A, B, C, MEMORY, OPERAND = range(8)
    COLUMNS = 8


class TrapMemory(IntEnum):
    """Memories that traps and hazards name."""

    MBUF = 0
    WBUF = 1
    ICACHE = 2
    MEMORY = 3


MEMORY_NAMES = {
    TrapMemory.MBUF: "MBuf",
    TrapMemory.WBUF: "WBuf",
    TrapMemory.ICACHE: "the instruction buffer",
    TrapMemory.MEMORY: "memory",
}


class TrapOperand(IntEnum):
    """What traps name; below 64 it is the register of that number."""

    MODE = 64
    FINISH = 65
    A = 66
    B = 67
    WORDS = 68
    PLACE = 69
    ADDRESS = 70
    CUS = 71
    VMAC = 72
    BUFFER = 73
    CU = 74
    WHAT = 75
    PENDING = 76
    CODE_BYTE = 77
    STREAM = 78


OPERAND_NAMES = {
    TrapOperand.MODE: "mode", TrapOperand.FINISH: "finish", TrapOperand.A: "a",
    TrapOperand.B: "b", TrapOperand.WORDS: "words", TrapOperand.PLACE: "place",
    TrapOperand.ADDRESS: "memory", TrapOperand.CUS: "cus", TrapOperand.VMAC: "vmac",
    TrapOperand.BUFFER: "buffer", TrapOperand.CU: "cu", TrapOperand.WHAT: "what",
    TrapOperand.PENDING: "pending", TrapOperand.STREAM: "stream",
    TrapOperand.CODE_BYTE: "memory (bytes of code)",
}  # fmt: skip
