"""Xnmp: the NMP's CNN instructions, in RISC-V's custom-0, -1 and -2 opcode spaces.

The paper names the instructions (nmp_conv2d, nmp_percept, nmp_pool, nmp_veop, nmp_activation,
nmp_load, nmp_load3d, nmp_store, nmp_store3d, multicast loads, three semaphore levels); their
operands travel in the two configuration register files below, latched when an instruction issues.

Filter words are an extension of this project: a 26-bit bias and a 6-bit shift for each filter, in
the place of its int32 bias. sub 3 of nmp_conv2d and nmp_percept, nmp_veopf and nmp_activationf read
them.

Of nmp_activation the paper gives the name alone. Its form nmp_activationx (functions by tables,
slopes of negative values), the sums, differences, products and maxima of nmp_veopc with one number
a channel, and nmp_veop's differences and maxima are extensions of this project.

So are multipliers and zero points, for quantized models as they come: nmp_rescale (which multiplies
accumulators by scale words), nmp_conv2dz and nmp_perceptz (whose filters have a zero point), subs 6
and 7 of nmp_veop (whose operands have factors), and sub 2 of nmp_pool.
"""

from __future__ import annotations

from tvm_npu.sim.isa.builder import ABI_NAMES
from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named
from tvm_npu.sim.nmp.rv32im import IMM_I, RS1, RS2, RV32IM


class MacRegister(Named):
    """Configuration registers of the MAC unit (nmp_mcfg, nmp_mcfgi)."""

    IN_ADDRESS = 0, "byte offset of the IN tile in MB0"
    IN_CHANNELS = 1, "input channels per group in the tile"
    IN_ROWS = 2, "rows of the IN tile"
    IN_COLUMNS = 3, "columns of the IN tile"
    W_ADDRESS = 4, "byte offset of the first filter in MB1"
    W_PITCH = 5, "elements from one filter to the next in MB1"
    OUT_ADDRESS = 6, "element offset of the OUT tile in MB2"
    OUT_CHANNELS = 7, "filters in the tile, all groups together"
    OUT_ROWS = 8, "rows of the OUT tile"
    OUT_COLUMNS = 9, "columns of the OUT tile"
    KERNEL_ROWS = 10, "rows of the kernel or window"
    KERNEL_COLUMNS = 11, "columns of the kernel or window"
    STRIDE_ROWS = 12, "rows from one window to the next"
    STRIDE_COLUMNS = 13, "columns from one window to the next"
    DILATION_ROWS = 14, "rows from one kernel row to the next"
    DILATION_COLUMNS = 15, "columns from one kernel column to the next"
    GROUPS = 16, "groups in the tile"
    BIAS_ADDRESS = 17, "index of the first filter's int32 or filter word in the bias buffer"
    SHIFT = 18, "requantize: right shift, negative = left; nmp_rescale: the zero point of results"
    LOW = 19, "requantize: lower bound after saturation"
    HIGH = 20, "requantize: upper bound after saturation"
    SHIFT_A = 21, "nmp_veop: left shift of its first operand, or the factor (sub 6 and 7)"
    SHIFT_B = 22, (
        "nmp_veop: left shift of its second operand, or the factor (sub 6); nmp_conv2dz and "
        "nmp_perceptz: the zero point of the filters"
    )
    ORIGIN_ROW = 23, "average pool: tensor row of the tile's first row"
    ORIGIN_COLUMN = 24, "average pool: tensor column of the tile's first column"
    COUNT_ROW_BEGIN = 25, "average pool: first row whose elements count in the divisor"
    COUNT_ROW_END = 26, "average pool: row after the last that counts"
    COUNT_COLUMN_BEGIN = 27, "average pool: first column whose elements count in the divisor"
    COUNT_COLUMN_END = 28, "average pool: column after the last that counts"
    ELEMENT_BYTES = 29, "1 (int8) or 2 (int16)"
    TABLE_ADDRESS = 30, (
        "nmp_activationx, nmp_rescale: byte offset of the table, the slopes or the scale words in "
        "the bias buffer"
    )
    FACTOR = 31, (
        "nmp_activationx: left shift of a table's arguments, or the slope * 2**14; nmp_rescale: a "
        "scale word; nmp_veop: what is added (sub 6 and 7)"
    )


class DmaRegister(Named):
    """Configuration registers of a TLT's DMA port (nmp_dcfg, nmp_dcfgi). To forward, the tensor
    and the segments lie in the own MB2 instead of DRAM; their bytes count as they would be
    stored."""

    CHANNELS = 0, "channels of the tensor in DRAM"
    ROWS = 1, "rows of the tensor in DRAM"
    COLUMNS = 2, "columns of the tensor in DRAM"
    CHANNEL_STRIDE = 3, "bytes from one channel to the next in DRAM"
    ROW_STRIDE = 4, "bytes from one row to the next in DRAM"
    START_CHANNEL = 5, "first channel of the box, signed"
    START_ROW = 6, "first row of the box, signed"
    START_COLUMN = 7, "first column of the box, signed"
    BOX_CHANNELS = 8, "channels of the box"
    BOX_ROWS = 9, "rows of the box"
    BOX_COLUMNS = 10, "columns of the box"
    FILL = 11, "element value outside the tensor"
    ELEMENT_BYTES = 12, "1 (int8) or 2 (int16)"
    SEGMENTS = 13, "1-D and 2-D transfers: number of segments"
    SEGMENT_BYTES = 14, "1-D and 2-D transfers: bytes in each segment"
    SEGMENT_STRIDE = 15, "1-D and 2-D transfers: bytes from one segment to the next in DRAM"
    RECEIVER_TLTS = 16, "multicast, forward: bit k: TLT k of a receiving TLE; 0: all (forward: own)"
    RECEIVER_TLES = 17, "loads, forwards: bit t: TLE t; 0: the own TLE; others by the ring bus"


CONFIG_REGISTERS = 32


class Memory(Named):
    """On-chip memories of a TLT as DMA instructions name them."""

    MB0 = 0, "IN tiles; the MAC unit's first operand"
    MB1 = 1, "filters; the MAC unit's second operand"
    MB2 = 2, "OUT tiles and partial sums; addressed in elements"
    BIAS = 3, "biases, int32, or filter words"


class Initialise(Named):
    """What nmp_conv2d and nmp_percept add to."""

    KEEP = 0, "the accumulators in MB2"
    ZERO = 1, "zero"
    BIAS = 2, "the filters' biases"
    FILTER = 3, "the biases in the filters' words"


class PoolKind(Named):
    """Which pooling nmp_pool does."""

    MAX = 0, "the maximum of the window"
    AVERAGE = 1, "the rounded average of the counted elements"
    AVERAGE_AWAY = 2, "the same, with halves away from zero"


class VectorOp(Named):
    """nmp_veop; A is MB0, B is MB1, ACC is MB2, element by element."""

    COPY = 0, "ACC = A << SHIFT_A"
    ADD = 1, "ACC = (A << SHIFT_A) + (B << SHIFT_B)"
    MULTIPLY = 2, "ACC = A * B"
    ACCUMULATE = 3, "ACC = (ACC << SHIFT_A) + (A << SHIFT_B)"
    SUBTRACT = 4, "ACC = (A << SHIFT_A) - (B << SHIFT_B)"
    MAXIMUM = 5, "ACC = max(A << SHIFT_A, B << SHIFT_B)"
    WEIGH = 6, "ACC = A * SHIFT_A + B * SHIFT_B + FACTOR"
    WEIGH_ONE = 7, "ACC = A * SHIFT_A + FACTOR"


class Activation(Named):
    """nmp_activationx; every value is clipped between LOW and HIGH as by nmp_activation, in front
    of a table and behind a slope."""

    TABLE = 0, "the value at its place in a table, between two of its entries where it has few"
    LEAKY = 1, "negative accumulators times FACTOR / 2**14"
    PRELU = 2, "negative accumulators times their channel's slope / 2**14"


class Rescale(Named):
    """nmp_rescale: where the scale words are, and where halves go."""

    ONE = 0, "FACTOR is the word of all channels"
    CHANNEL = 1, "each channel has an int32 from TABLE_ADDRESS on"
    ONE_EVEN = 2, "sub 0 with halves to even"
    CHANNEL_EVEN = 3, "sub 1 with halves to even"


LARGEST_SHIFT = 47
"""To the left."""
SLOPE_BITS = 14
"""Fraction bits of a slope."""
LARGEST_SLOPE = (1 << 15) - 1
"""Of a slope's absolute value, as an integer."""
MOST_ACCUMULATOR_BITS = 48
"""Of a machine whose accumulators can be multiplied by slopes: a product has 63 bits at most."""
TABLE_SEGMENT_BITS = {1: 0, 2: 6}
"""By bytes of an element: bits of an argument between two entries of a table."""
TABLE_ENTRIES = {size: (1 << (8 * size - bits)) + 1 for size, bits in TABLE_SEGMENT_BITS.items()}
"""By bytes of an element; int8 has an entry for each argument and never looks up the last."""
LARGEST_TABLE_SHIFT = 15
TABLE_BEATS = {1: 2, 2: 3}
"""Uses of the datapath for as many elements as it has lanes, by bytes of an element: requantize,
look up (int16: two neighbours at once), interpolate (int16)."""
SLOPE_BEATS = 2
"""The same for slopes and scale words: multiply, requantize."""
LARGEST_WEIGH_FACTOR = (1 << 24) - 1
"""Of a factor's absolute value in subs 6 and 7 of nmp_veop."""


class Level(Named):
    """Semaphore levels."""

    TLT = 0, "the semaphores of one TLT"
    TLE = 1, "shared by the TLTs of one TLE"
    GLOBAL = 2, "shared by all TLEs of the machine"


CUSTOM_0, CUSTOM_1, CUSTOM_2 = 0x0B, 0x2B, 0x5B
BY_FILTER = 1 << 24
"""Tells nmp_veopf from nmp_veop, and nmp_activationf from nmp_activation."""
ZERO_POINT = BY_FILTER
"""Tells nmp_conv2dz from nmp_conv2d, and nmp_perceptz from nmp_percept."""

SEM = Field("sem", ((28, 25, 0),), "sem")
MEM = Field("mem", ((30, 29, 0),), "sub", names=Memory)
LEVEL = Field("level", ((30, 29, 0),), "sub", names=Level)


def _creg(names: type[Named]) -> Field:
    return Field("creg", ((11, 7, 0),), "rd", names=names)


def _sub(names: type[Named], high: int = 21) -> Field:
    return Field("sub", ((high, 20, 0),), "sub", names=names)


VECTOR_SUB = _sub(VectorOp, 22)
CHANNEL_OPERAND, EXTENDED = 1 << 23, 1 << 22
"""Bits that tell nmp_veopc from nmp_veop, and nmp_activationx from nmp_activation."""
SCALED = CHANNEL_OPERAND
"""Tells nmp_rescale from nmp_activation."""


def _configure(
    name: str, opcode: int, registers: str, names: type[Named]
) -> tuple[Instruction, Instruction]:
    creg = _creg(names)
    return (
        Instruction(
            f"nmp_{name}", opcode, (creg, RS1), "creg, rs1", f"{registers}[creg] = rs1",
            f"nmp_{name}",
        ),
        Instruction(
            f"nmp_{name}i", opcode | 1 << 12, (creg, IMM_I), "creg, imm",
            f"{registers}[creg] = imm", f"nmp_{name}i",
        ),
    )


def _mac(
    name: str, funct3: int, sub: type[Named] | Field | None, meaning: str, bits: int = 0
) -> Instruction:
    field = sub if isinstance(sub, Field) or sub is None else _sub(sub)
    fields = (SEM,) if field is None else (SEM, field)
    syntax = "sem, sub" if sub else "sem"
    return Instruction(
        name, CUSTOM_0 | funct3 << 12 | bits, fields, syntax,
        meaning + " On completion signals TLT semaphore sem (0: none).", name,
    )


_QUEUED = (
    "Queued at the TLE's DMA engine; on completion signals TLT semaphore sem (0: none) of every "
    "receiving TLT."
)


def _dma(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(
        name, CUSTOM_1 | funct3 << 12, (SEM, MEM, RS1, RS2), "sem, mem, rs1, rs2",
        meaning + " rs1 is the DRAM address, rs2 the offset in the on-chip memory mem (bytes; "
        "elements for MB2). " + _QUEUED,
        name, shared=True,
    )


def _forward(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(
        name, CUSTOM_2 | funct3 << 12, (SEM, RS1, RS2), "sem, rs1, rs2",
        meaning + " rs1 is the offset in the receivers' MB0 (bytes), rs2 the offset in the own MB2 "
        "(elements). The receivers are the TLTs RECEIVER_TLTS (0: the own) of the TLEs "
        "RECEIVER_TLES (0: the own). " + _QUEUED,
        name, shared=True,
    )


def _semaphore(name: str, funct3: int, meaning: str) -> Instruction:
    return Instruction(
        name, CUSTOM_2 | funct3 << 12, (LEVEL, SEM, RS1), "level, sem, rs1", meaning, name,
        shared=True,
    )


XNMP: tuple[Instruction, ...] = (
    *_configure("mcfg", CUSTOM_0, "MAC", MacRegister),
    _mac(
        "nmp_conv2d", 2, Initialise,
        "MB2[OUT_CHANNELS][OUT_ROWS][OUT_COLUMNS] from OUT_ADDRESS (+)= convolution of the IN "
        "tile MB0[GROUPS * IN_CHANNELS][IN_ROWS][IN_COLUMNS] with the filters in MB1, filter m at "
        "W_ADDRESS + m * W_PITCH elements, each [IN_CHANNELS][KERNEL_ROWS][KERNEL_COLUMNS]; filter "
        "m reads group m / (OUT_CHANNELS / GROUPS). sub: 0 keep, 1 zero, 2 bias first, "
        "3 the same with bits 25:0 of the filter's word, signed.",
    ),
    _mac(
        "nmp_percept", 3, Initialise,
        "MB2[m] (+)= sum over IN_CHANNELS of MB0[n] * MB1[W_ADDRESS + m * W_PITCH + n] for "
        "OUT_CHANNELS filters. sub as in nmp_conv2d.",
    ),
    _mac(
        "nmp_conv2dz", 2, Initialise,
        "nmp_conv2d with SHIFT_B subtracted from every element of the filters; int8 only.",
        ZERO_POINT,
    ),
    _mac(
        "nmp_perceptz", 3, Initialise,
        "nmp_percept with SHIFT_B subtracted from every element of the filters; int8 only.",
        ZERO_POINT,
    ),
    _mac(
        "nmp_pool", 4, PoolKind,
        "MB2[c][r][q] = maximum (sub 0) or average (sub 1) over the window of "
        "MB0[OUT_CHANNELS][IN_ROWS][IN_COLUMNS]; the average is floor((2 * sum + n) / (2 * n)), n "
        "the window's elements inside the counted rectangle; sub 2: -floor((n - 2 * sum) / (2 * "
        "n)) for a negative sum.",
    ),
    _mac(
        "nmp_veop", 5, VECTOR_SUB,
        "Element by element over OUT_CHANNELS * OUT_ROWS * OUT_COLUMNS elements: sub 0: MB2 = "
        "MB0 << SHIFT_A; 1: (MB0 << SHIFT_A) + (MB1 << SHIFT_B); 2: MB0 * MB1; 3: "
        "(MB2 << SHIFT_A) + (MB0 << SHIFT_B); 4: (MB0 << SHIFT_A) - (MB1 << SHIFT_B); 5: the "
        "larger of MB0 << SHIFT_A and MB1 << SHIFT_B; 6: MB0 * SHIFT_A + MB1 * SHIFT_B + FACTOR; "
        "7: MB0 * SHIFT_A + FACTOR.",
    ),
    _mac(
        "nmp_veopc", 5, VECTOR_SUB,
        "nmp_veop sub 1, 2, 4 or 5 with one element of MB1 for each channel of OUT_ROWS * "
        "OUT_COLUMNS elements.",
        CHANNEL_OPERAND,
    ),
    _mac(
        "nmp_veopf", 5, None,
        "nmp_veop sub 3 with SHIFT_B plus the shift in the word of each filter, as of "
        "nmp_activationf.",
        BY_FILTER,
    ),
    _mac(
        "nmp_activation", 6, None,
        "Requantizes MB2 in place: clip(saturate((acc + half) >> SHIFT), LOW, HIGH).",
    ),
    _mac(
        "nmp_activationf", 6, None,
        "nmp_activation with SHIFT plus bits 31:26 of the word of each channel of OUT_ROWS * "
        "OUT_COLUMNS elements; that of channel c is word BIAS_ADDRESS + c of the bias buffer.",
        BY_FILTER,
    ),
    _mac(
        "nmp_activationx", 6, Activation,
        "sub 0: a = nmp_activation's result; x = saturate(a << FACTOR) - smallest; MB2 = T[x] "
        "(int8), or with j = x >> 6 and f = x & 63 T[j] + (((T[j + 1] - T[j]) * f + 32) >> 6) "
        "(int16), T the elements from byte TABLE_ADDRESS of the bias buffer on, 257 (int8) or 1025 "
        "(int16). sub 1: nmp_activation of acc, but for acc < 0 clip(saturate((acc * FACTOR + "
        "half) >> (SHIFT + 14)), LOW, HIGH); 2: the same with the int32 of each channel of "
        "OUT_ROWS * OUT_COLUMNS elements from TABLE_ADDRESS on in place of FACTOR.",
        EXTENDED,
    ),
    _mac(
        "nmp_activationxf", 6, Activation,
        "nmp_activationx with SHIFT plus the shift in the word of each filter, as of "
        "nmp_activationf.",
        EXTENDED | BY_FILTER,
    ),
    _mac(
        "nmp_rescale", 6, Rescale,
        "Requantizes MB2 in place by scale words w, FACTOR for all channels (sub 0) or the int32 "
        "of each channel of OUT_ROWS * OUT_COLUMNS elements from TABLE_ADDRESS on (sub 1): with s "
        "= w[7:0] and m = w[31:8], unsigned, clip(saturate(((acc * m + half) >> s) + SHIFT), LOW, "
        "HIGH), half = 2**(s - 1): halves round up. sub 2 and 3 are the same with halves to even: "
        "where acc * m + half is a multiple of 2**s, bit 0 is cleared before SHIFT is added. int8 "
        "only; accumulators have 38 bits.",
        SCALED,
    ),
    *_configure("dcfg", CUSTOM_1, "DMA", DmaRegister),
    _dma("nmp_load", 2, "SEGMENTS segments of SEGMENT_BYTES, SEGMENT_STRIDE apart in DRAM, to "
         "consecutive bytes on chip, of the own TLT or, in each of the TLEs RECEIVER_TLES, of the "
         "TLT with its number."),
    _dma("nmp_load3d", 3, "A box of a (CHANNELS, ROWS, COLUMNS) tensor to consecutive elements on "
         "chip; elements outside the tensor read as FILL and cost no DRAM traffic. Receivers as of "
         "nmp_load."),
    _dma("nmp_mload", 4, "nmp_load to the TLTs RECEIVER_TLTS (0: all) of the TLEs RECEIVER_TLES "
         "(0: the own) at once (multicast)."),
    _dma("nmp_mload3d", 5, "nmp_load3d to the receivers of nmp_mload."),
    _dma("nmp_store", 6, "SEGMENTS segments of SEGMENT_BYTES from consecutive MB2 elements."),
    _dma("nmp_store3d", 7, "A box from consecutive MB2 elements; elements outside the tensor are "
         "not stored."),
    _semaphore("nmp_signal", 0, "Adds rs1 to semaphore sem of the own TLT, TLE or the machine."),
    _semaphore("nmp_wait", 1, "Blocks until the semaphore is >= rs1, then subtracts rs1."),
    _semaphore("nmp_release", 2, "Adds rs1 to TLT semaphore sem of every TLT of the own TLE "
               "(level 1) or of the machine (level 2)."),
    _forward("nmp_forward", 3, "SEGMENTS segments of SEGMENT_BYTES, SEGMENT_STRIDE apart in MB2, "
             "to consecutive bytes of MB0, by the ring bus."),
    _forward("nmp_forward3d", 4, "A box of the (CHANNELS, ROWS, COLUMNS) tensor in MB2 to "
             "consecutive elements of MB0, by the ring bus; FILL outside the tensor."),
)

NMP_ISA = Isa("nmp", "RV32IM + Xnmp", RV32IM + XNMP, register_names=ABI_NAMES)
"""What a TLT's core executes."""
