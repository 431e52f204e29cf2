"""Snowflake's 13 instructions of 32 bits: data movement, compute, flow, memory.

A cluster's control core executes them. Vector instructions (mac, max, vmov) work on traces:
contiguous rows of words in a CU's MBuf and in the WBufs of its vMACs. What an instruction has no
room for lies in special registers, which `mov`, `movi`, `add`, `addi` and `mul` can write.
"""

from __future__ import annotations

from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named

VMACS = 4
"""vMACs of a CU."""

LANES = 16
"""MACs of a vMAC, and the words of a line: what a port of a buffer passes in a cycle."""

MOST_CUS = 4
"""CUs of a cluster, at most: the bits of a CU mask."""

WORD_BYTES = 2
MEMORY_UNIT_BYTES = 64
"""What the memory outside of the chip moves at once."""

SCALARS = 32
BANK_INSTRUCTIONS = 512
BANKS = 2
ICACHE_BYTES = 4 * BANKS * BANK_INSTRUCTIONS
DELAY_SLOTS = 4
LONGEST_TRACE = 4096
ACCUMULATOR_BITS = 48
SUM_WORDS = ACCUMULATOR_BITS // (8 * WORD_BYTES)
"""Words that a stored accumulator takes."""

_SCALAR_MEMBERS = {f"R{number}": (number, f"scalar register {number}") for number in range(SCALARS)}


class Special(Named):
    """Special registers. Vector and memory instructions read them when they issue."""

    OUT = 32, "word of MBuf where the next result goes"
    OUT_STEP = 33, "added to OUT by every instruction that writes results"
    OUTPUTS = 34, "results of a sum: coop a cluster's, indp and lane a CU's; vmov takes as many"
    TARGET = 35, "coop: CUs whose MBufs get the results, a bit each; vmov residual: the lowest's"
    CUS = 36, "CUs that execute vector instructions, a bit each"
    SHIFT = 37, "requantize: right shift, negative = left"
    LOW = 38, "requantize, max: lower bound"
    HIGH = 39, "requantize, max: upper bound"
    DIVISOR = 40, "finish result: n > 1 divides, floor((2 * sum + n) / (2 * n))"
    SUM_SHIFT = 41, "finish result: left shift of the sum before the residual is added"
    RESIDUAL_SHIFT = 42, "finish result: left shift of the residual"
    SHIFT_A = 43, "mac add: left shift of the first operand"
    SHIFT_B = 44, "mac add: left shift of the second"
    LANE_STEP = 45, "mac lane: words of MBuf from one step to the next"
    TABLE_SHIFT = 46, "mac table: right shift of the argument, rounded, saturated; negative = left"
    TABLE_BITS = 47, "mac table: bits of an argument inside of one segment"
    LD_RUNS = 48, "ld: runs of the given length"
    LD_MEMORY_STEP = 49, "ld: bytes of memory from one run to the next"
    LD_BUFFER_STEP = 50, "ld: words of the buffer from one run to the next"
    ST_RUNS = 51, "tmov: runs of the given length"
    ST_MEMORY_STEP = 52, "tmov: bytes of memory from one run to the next"
    ST_BUFFER_STEP = 53, "tmov: words of MBuf from one run to the next"


ALLOWED: dict[Special, tuple[int, int]] = {
    Special.SHIFT: (-46, 63),
    Special.LOW: (-(1 << 15), (1 << 15) - 1),
    Special.HIGH: (-(1 << 15), (1 << 15) - 1),
    Special.DIVISOR: (1, 1 << 24),
    Special.SUM_SHIFT: (0, 15),
    Special.RESIDUAL_SHIFT: (0, 46),
    Special.SHIFT_A: (0, 46),
    Special.SHIFT_B: (0, 46),
    Special.LANE_STEP: (0, 1 << 20),
    Special.TABLE_SHIFT: (-15, 15),
    Special.TABLE_BITS: (0, 15),
    Special.LD_RUNS: (1, 1 << 16),
    Special.ST_RUNS: (1, 1 << 16),
}
"""Values with which an instruction can use a special register, where they depend on nothing."""

_SPECIAL_MEMBERS = {item.name: (int(item), item.meaning) for item in Special}
Scalar: type[Named] = Named("Scalar", _SCALAR_MEMBERS)  # type: ignore[assignment,arg-type]
Destination: type[Named] = Named(  # type: ignore[assignment]
    "Destination", _SCALAR_MEMBERS | _SPECIAL_MEMBERS  # type: ignore[arg-type]
)
Scalar.__doc__ = "Scalar registers, 32 bits each, signed."
Destination.__doc__ = "Registers that scalar instructions write: the scalars and the special ones."
REGISTERS = 64


class MacMode(Named):
    """What `mac` does with its traces."""

    COOP = 0, "the 16 MACs of a vMAC share one sum, 16 steps of the traces a cycle"
    INDP = 1, "each MAC has its own sum; one word of MBuf goes to all, a line of WBuf to each vMAC"
    LANE = 2, "each MAC has its own sum and words of MBuf: step t reads from a + t * LANE_STEP"
    MULTIPLY = 3, "stream: element i is a[i] * b[i], both in MBuf"
    ADD = 4, "stream: (a[i] << SHIFT_A) + (b[i] << SHIFT_B), both in MBuf"
    SCALE = 5, "stream: a[i]; b is not read"
    TABLE = 6, "stream: the table at word b of the WBufs, with linear interpolation"


class Finish(Named):
    """What happens to the sums of coop, indp and lane at the end of the trace; streams take
    RESULT."""

    KEEP = 0, "they stay open: the next mac adds to them"
    RESULT = 1, "requantized results go to OUT"
    SUMS = 2, "the sums go to OUT as they are, three words each, low word first"


class Preload(Named):
    """What `vmov` brings, for the next sums that open."""

    BIAS = 0, "int32 in each vMAC's WBuf, two words, low word first; added to the initial value"
    SUMS = 1, "stored sums in MBuf, three words each; added to the initial value"
    RESIDUAL = 2, "words of MBuf; finish result adds them"


class Layout(Named):
    """How results lie over the vMACs."""

    COOP = 0, "one a vMAC"
    INDP = 1, "one a MAC"


class Buffer(Named):
    """Where `ld` puts data."""

    MBUF = 0, "the MBufs of the CUs in cus"
    WBUF = 1, "the WBufs of one vMAC, or of all, of the CUs in cus"
    ICACHE = 2, "an instruction bank"


class VmacSelect(Named):
    """vMACs of a CU."""

    V0 = 0, "the first"
    V1 = 1, "the second"
    V2 = 2, "the third"
    V3 = 3, "the fourth"
    ALL = 4, "all four"


class Shared(Named):
    """Whether a load serves one cluster or all."""

    OWN = 0, "this cluster alone"
    SHARED = 1, "all clusters: each issues the same load, the memory is read once for all"


class SnowflakeStream(Named):
    """What a transfer carries, for the statistics."""

    OTHER = 0, "anything else, instructions too"
    IN = 1, "maps"
    WEIGHT = 2, "weights, with their biases"
    OUT = 3, "results"
    RESIDUAL = 4, "maps that are added"
    BIAS = 5, "biases alone"
    PARTIAL = 6, "sums"


class Wait(Named):
    """What `sync` waits for."""

    VECTOR = 0, "at most `pending` vector instructions of this cluster are incomplete"
    LOAD = 1, "the same of loads"
    STORE = 2, "the same of stores"
    ALL = 3, "all of them are complete"
    CLUSTERS = 4, "that, and every cluster of the device has come to such a sync"
    END = 5, "that; then the cluster's program ends"


COLUMNS = (
    "rd", "rs1", "rs2", "rs3", "imm", "mode", "finish", "vmac", "cus", "stream", "shared",
)  # fmt: skip
"""Decoded columns, in order."""


def _register(name: str, low: int, column: str) -> Field:
    return Field(name, ((low + 4, low, 0),), column, names=Scalar)


DEST = Field("dest", ((9, 4, 0),), "rd", names=Destination)
RS1, RS2 = _register("rs1", 10, "rs1"), _register("rs2", 15, "rs2")
MAPS, WEIGHTS = _register("a", 10, "rs1"), _register("b", 15, "rs2")
MEMORY, PLACE = _register("memory", 10, "rs1"), _register("place", 15, "rs2")
LENGTH = _register("words", 20, "rs3")
TARGET = Field("imm", ((31, 20, 2),), "imm", signed=True, relative=True)
TRACE = Field("length", ((31, 20, 0),), "imm", bias=1)
STREAM = Field("stream", ((31, 29, 0),), "stream", names=SnowflakeStream)

SNOWFLAKE_INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction(
        "mov", 0x1, (DEST, RS1, Field("shift", ((20, 15, 0),), "imm", signed=True)),
        "dest, rs1, shift", "dest = rs1 << shift; a negative shift goes right, sign kept", "mov",
    ),
    Instruction(
        "movi", 0x2, (DEST, Field("value", ((31, 10, 0),), "imm", signed=True)),
        "dest, value", "dest = value", "movi",
    ),
    Instruction(
        "vmov", 0x3,
        (
            Field("what", ((5, 4, 0),), "mode", names=Preload),
            Field("layout", ((6, 6, 0),), "finish", names=Layout),
            MAPS,
        ),
        "what, layout, a",
        "The next sums that open start with what lies at word a of the buffer.", "vmov",
    ),
    Instruction("add", 0x4, (DEST, RS1, RS2), "dest, rs1, rs2", "dest = rs1 + rs2", "add"),
    Instruction(
        "addi", 0x5, (DEST, RS1, Field("value", ((31, 15, 0),), "imm", signed=True)),
        "dest, rs1, value", "dest = rs1 + value", "addi",
    ),
    Instruction("mul", 0x6, (DEST, RS1, RS2), "dest, rs1, rs2", "dest = rs1 * rs2", "mul"),
    Instruction(
        "mac", 0x7,
        (
            Field("mode", ((6, 4, 0),), "mode", names=MacMode),
            Field("finish", ((8, 7, 0),), "finish", names=Finish),
            MAPS, WEIGHTS, TRACE,
        ),
        "mode, finish, a, b, length",
        "Multiplies and adds `length` steps of the traces at word a of MBuf and word b of WBuf.",
        "mac",
    ),
    Instruction(
        "max", 0x8, (MAPS, WEIGHTS, TRACE), "a, b, length",
        "Words OUT + i of MBuf = clip(max(words a + i, b + i), LOW, HIGH).", "max",
    ),
    Instruction(
        "ble", 0x9, (RS1, RS2, TARGET), "rs1, rs2, imm",
        "Goes imm bytes from here, behind four delay slots, if rs1 <= rs2.", "ble",
    ),
    Instruction(
        "beq", 0xA, (RS1, RS2, TARGET), "rs1, rs2, imm",
        "Goes imm bytes from here, behind four delay slots, if rs1 = rs2.", "beq",
    ),
    Instruction(
        "sync", 0xB,
        (
            Field("what", ((6, 4, 0),), "mode", names=Wait),
            Field("pending", ((14, 7, 0),), "imm"),
        ),
        "what, pending", "The control core waits.", "sync",
    ),
    Instruction(
        "ld", 0xC,
        (
            Field("buffer", ((5, 4, 0),), "mode", names=Buffer),
            Field("shared", ((6, 6, 0),), "shared", names=Shared),
            Field("vmac", ((9, 7, 0),), "vmac", names=VmacSelect),
            MEMORY, PLACE, LENGTH,
            Field("cus", ((28, 25, 0),), "cus"),
            STREAM,
        ),
        "buffer, memory, place, words, cus, vmac, shared, stream",
        "Loads LD_RUNS runs of `words` words from byte `memory` of the device's memory to word "
        "`place` of the buffers.",
        "ld",
    ),
    Instruction(
        "tmov", 0xD,
        (Field("cu", ((5, 4, 0),), "mode"), MEMORY, PLACE, LENGTH, STREAM),
        "memory, place, words, cu, stream",
        "Stores ST_RUNS runs of `words` words from word `place` of a CU's MBuf to byte `memory`.",
        "tmov",
    ),
)  # fmt: skip

SNOWFLAKE_ISA = Isa("snowflake", "Snowflake instructions", SNOWFLAKE_INSTRUCTIONS, COLUMNS)
"""What the control core of a cluster executes."""

COLUMN = {name: 1 + position for position, name in enumerate(COLUMNS)}
"""Where a decoded row has a column."""
