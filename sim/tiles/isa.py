"""The instructions of tile machines: what e-PlaNNer's LOAD, CONV and STORE say, in 32-bit words.

An instruction works on a whole tile. Its operands lie in the configuration registers below, which
keep their values until they are set again; the machine latches them when an instruction issues.
Tiles lie packed on chip: channel by channel, row by row, without gaps.
"""

from __future__ import annotations

from tvm_npu.sim.isa.table import COLUMNS, Field, Instruction, Isa, Named


class TileRegister(Named):
    """Configuration registers, 32 bits each, signed."""

    ADDRESS = 0, "transfers, tgo: bytes from the segment's begin"
    CHIP_OFFSET = 1, "transfers, tgo: bytes from the begin of the memory on chip"
    RUN_BYTES = 2, "transfers: bytes of each contiguous run outside of the chip"
    COUNT_INNER = 3, "transfers: runs in a row of runs"
    STRIDE_INNER = 4, "transfers: bytes from one run to the next"
    COUNT_OUTER = 5, "transfers: rows of runs"
    STRIDE_OUTER = 6, "transfers: bytes from one row of runs to the next"
    IN_OFFSET = 7, "first operand: bytes from the begin of its memory"
    W_OFFSET = 8, "second operand: bytes from the begin of its memory"
    OUT_OFFSET = 9, "result: bytes from the begin of its memory"
    IN_CHANNELS = 10, "tconv: channels of a group in the tile; tpool: channels, as OUT_CHANNELS"
    IN_ROWS = 11, "rows of the first operand, all inside the tensor"
    IN_COLUMNS = 12, "columns of the first operand"
    OUT_CHANNELS = 13, "channels of the result (tconv: all groups in the tile together)"
    OUT_ROWS = 14, "rows of the result"
    OUT_COLUMNS = 15, "columns of the result"
    KERNEL_ROWS = 16, "rows of the kernel or window"
    KERNEL_COLUMNS = 17, "columns of the kernel or window"
    STRIDE_ROWS = 18, "rows from one window to the next"
    STRIDE_COLUMNS = 19, "columns from one window to the next"
    DILATION_ROWS = 20, "tconv: rows from one kernel row to the next"
    DILATION_COLUMNS = 21, "tconv: columns from one kernel column to the next"
    PAD_TOP = 22, "rows in front of the first operand that count as zero (tpool: as nothing)"
    PAD_LEFT = 23, "columns in front of it; what is missing behind it counts likewise"
    GROUPS = 24, "tconv: groups in the tile"
    BIAS_OFFSET = 25, "tfinish: bytes of the first channel's int32 in the bias memory"
    SHIFT = 26, "requantize: right shift, negative = left"
    LOW = 27, "requantize: lower bound after saturation"
    HIGH = 28, "requantize: upper bound after saturation"
    SHIFT_A = 29, "left shift of the first operand (tfinish: of the accumulators)"
    SHIFT_B = 30, "left shift of the second operand (tfinish: of the residual)"
    ORIGIN_ROW = 31, "average tpool: tensor row of the first operand's first row"
    ORIGIN_COLUMN = 32, "average tpool: tensor column of its first column"
    COUNT_ROW_BEGIN = 33, "average tpool: first tensor row whose elements count in the divisor"
    COUNT_ROW_END = 34, "average tpool: row after the last that counts"
    COUNT_COLUMN_BEGIN = 35, "average tpool: first column whose elements count"
    COUNT_COLUMN_END = 36, "average tpool: column after the last that counts"
    FILL = 37, "tfill: the element value"
    OPERANDS = 38, "memories of first operand, second operand and result: bits 2..0, 5..3, 8..6"
    IN_ROW_BYTES = 39, "core machines, first operand outside of the chip: bytes of a row; 0: packed"
    IN_CHANNEL_BYTES = 40, "the same: bytes of a channel; 0: packed"
    W_FILTER_BYTES = 41, "bytes from one filter to the next; 0: packed"
    OUT_ROW_BYTES = 42, "result outside of the chip: bytes of a row; 0: packed"
    OUT_CHANNEL_BYTES = 43, "the same: bytes of a channel; 0: packed"
    PROGRAM = 44, "tgo: bytes from the begin of CONSTANTS to the template of the DMA program"
    EXTENT_BYTES = 45, "tgo: bytes from the first to behind the last that it moves in the segment"
    MOVED_BYTES = 46, "tgo: bytes that it moves; they lie one after another on chip"
    TAPS_AT_ONCE = 47, "tconv on an array: kernel taps at a time, on PEs of their own; 0: one"


CONFIG_REGISTERS = 64
LARGEST_EXTENT = 1 << 20
"""Of channels, rows and columns in a register."""


class TileMemory(Named):
    """Memories as instructions name them. Where input, weights and results share one memory all
    three names mean it. CONSTANTS and ACTIVATIONS lie outside of the chip: as operands only a core
    reaches them."""

    INPUT = 0, "input tiles, and the first operand of everything"
    WEIGHT = 1, "weight tiles, and the second operand of tvec"
    OUTPUT = 2, "results and partial sums"
    BIAS = 3, "biases, int32"
    CONSTANTS = 4, "weights and biases outside of the chip"
    ACTIVATIONS = 5, "feature maps outside of the chip"


class Accumulate(Named):
    """What tconv adds to."""

    KEEP = 0, "the accumulators that are there"
    ZERO = 1, "zero"


class Finish(Named):
    """What tfinish adds to the accumulators first."""

    PLAIN = 0, "nothing"
    BIAS = 1, "the channels' biases"
    RESIDUAL = 2, "the residual tile"
    BIAS_RESIDUAL = 3, "the biases, then the residual tile"


class TilePool(Named):
    """Which pooling tpool does."""

    MAX = 0, "the maximum of the window"
    AVERAGE = 1, "floor((2 * sum + n) / (2 * n)), n the counted elements of the window"


class TileVector(Named):
    """tvec, element by element over OUT_CHANNELS * OUT_ROWS * OUT_COLUMNS."""

    COPY = 0, "A << SHIFT_A"
    ADD = 1, "(A << SHIFT_A) + (B << SHIFT_B)"
    MULTIPLY = 2, "A * B"


class Direction(Named):
    """Which way a DMA program moves bytes."""

    LOAD = 0, "from the segment to the chip"
    STORE = 1, "from the chip to the segment"


class TransferStream(Named):
    """What a transfer carries, for the statistics; bits of the `stream` field."""

    OTHER = 0, "anything else"
    IN = 1, "input tiles"
    WEIGHT = 2, "weights"
    OUT = 3, "results"
    RESIDUAL = 4, "residual tiles"
    BIAS = 5, "biases"
    PARTIAL = 6, "partial sums"


CREG = Field("creg", ((12, 7, 0),), "rd", names=TileRegister)
IMM = Field("imm", ((31, 13, 0),), "imm", signed=True)
UPPER = Field("upper", ((25, 13, 0),), "imm")
MEM = Field("mem", ((9, 7, 0),), "rs1", names=TileMemory)
BASE = Field("base", ((12, 10, 0),), "rs2", names=TileMemory)
STREAM = Field("stream", ((15, 13, 0),), "sem", names=TransferStream)
CHANNEL = Field("channel", ((18, 16, 0),), "imm")
DIRECTION = Field("direction", ((20, 19, 0),), "sub", names=Direction)
EVENT = Field("event", ((14, 10, 0),), "sem")


def _sub(names: type[Named]) -> Field:
    return Field("sub", ((8, 7, 0),), "sub", names=names)


def _work(name: str, opcode: int, sub: type[Named] | None, meaning: str) -> Instruction:
    fields = (_sub(sub),) if sub else ()
    return Instruction(name, opcode, fields, "sub" if sub else "", meaning, name)


TILE_INSTRUCTIONS: tuple[Instruction, ...] = (
    Instruction("tset", 0x01, (CREG, IMM), "creg, imm", "register[creg] = imm", "tset"),
    Instruction(
        "tsetu",
        0x02,
        (CREG, UPPER),
        "creg, upper",
        "register[creg] = (register[creg] & 0x7ffff) | upper << 19",
        "tsetu",
    ),
    Instruction(
        "tload",
        0x03,
        (MEM, BASE, STREAM),
        "mem, base, stream",
        "Moves COUNT_OUTER x COUNT_INNER runs of RUN_BYTES, STRIDE_OUTER and STRIDE_INNER apart, "
        "from ADDRESS in segment base to consecutive bytes of memory mem from CHIP_OFFSET.",
        "tload",
    ),
    Instruction(
        "tstore",
        0x04,
        (MEM, BASE, STREAM),
        "mem, base, stream",
        "The same from chip to segment.",
        "tstore",
    ),
    _work(
        "tconv",
        0x05,
        Accumulate,
        "Accumulators[OUT_CHANNELS][OUT_ROWS][OUT_COLUMNS] at OUT_OFFSET (+)= convolution of the "
        "tile [GROUPS * IN_CHANNELS][IN_ROWS][IN_COLUMNS] at IN_OFFSET with the filters "
        "[OUT_CHANNELS][IN_CHANNELS][KERNEL_ROWS][KERNEL_COLUMNS] at W_OFFSET.",
    ),
    _work(
        "tfinish",
        0x06,
        Finish,
        "Requantizes the accumulators [OUT_CHANNELS][OUT_ROWS][OUT_COLUMNS] at OUT_OFFSET in "
        "place to packed elements: acc + bias; with a residual tile (first operand) "
        "(acc << SHIFT_A) + (residual << SHIFT_B); clip(saturate((acc + half) >> SHIFT), LOW, "
        "HIGH).",
    ),
    _work(
        "tpool",
        0x07,
        TilePool,
        "Elements[OUT_CHANNELS][OUT_ROWS][OUT_COLUMNS] = maximum or average over the windows of "
        "the first operand; then clip to LOW .. HIGH.",
    ),
    _work("tvec", 0x08, TileVector, "Elements = requantized sum or product of two tiles."),
    _work(
        "tfill", 0x09, None, "Elements[OUT_CHANNELS][OUT_ROWS][OUT_COLUMNS] at OUT_OFFSET = FILL."
    ),
    Instruction(
        "tgo",
        0x0A,
        (MEM, BASE, STREAM, CHANNEL, DIRECTION),
        "mem, base, stream, channel, direction",
        "Puts the addresses of ADDRESS in segment base and CHIP_OFFSET in memory mem into the "
        "template at PROGRAM and starts the DMA program on a channel that is idle.",
        "tgo",
    ),
    Instruction(
        "twait",
        0x0B,
        (EVENT,),
        "event",
        "Waits for a DMA program's event and clears it.",
        "twait",
    ),
    Instruction("tend", 0x0C, (), "", "Ends the program when all transfers are complete.", "tend"),
)

COLUMNS_OF: dict[str, dict[str, int]] = {
    item.mnemonic: {field.name: 1 + COLUMNS.index(field.column) for field in item.fields}
    for item in TILE_INSTRUCTIONS
}
"""Where a decoded row has an instruction's operands, by mnemonic and operand."""

TILE_ISA = Isa("tiles", "Tile instructions", TILE_INSTRUCTIONS)
"""What the control unit of a tile machine executes."""
