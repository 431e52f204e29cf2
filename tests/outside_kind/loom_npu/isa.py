"""The Loom's instructions, from which encoder, assembler, disassembler and simulator follow. All
that they need lies in registers of 32 bits, which `set` and `high` fill."""

from __future__ import annotations

from tvm_npu.sim.isa.table import Field, Instruction, Isa, Named


class Reg(Named):
    """Registers. Shapes are (channels or filters, rows, columns)."""

    ADDRESS = 0, "transfers: bytes from the begin of the segment"
    PLACE = 1, "transfers: bytes from the begin of the scratchpad"
    RUN_BYTES = 2, "transfers: bytes of a contiguous run"
    RUNS = 3, "transfers: runs in a group"
    RUN_STRIDE = 4, "transfers: bytes from run to run"
    GROUPS = 5, "transfers: groups of runs"
    GROUP_STRIDE = 6, "transfers: bytes from group to group"
    IN = 7, "place of the first operand in INPUT"
    W = 8, "place of the weights in WEIGHT, of the second operand in INPUT"
    OUT = 9, "place of sums and results in OUTPUT"
    N = 10, "channels of the first operand"
    H = 11, "its rows"
    L = 12, "its columns"
    M = 13, "filters, or channels of the result"
    R = 14, "rows of the result"
    C = 15, "columns of the result"
    KH = 16, "rows of the kernel"
    KW = 17, "columns of the kernel"
    SH = 18, "row stride"
    SW = 19, "column stride"
    DH = 20, "row dilation"
    DW = 21, "column dilation"
    TOP = 22, "rows of padding above"
    LEFT = 23, "columns of padding on the left"
    SHIFT = 24, "requantize: right shift; negative shifts left"
    LOW = 25, "requantize: lower bound"
    HIGH = 26, "requantize: upper bound"
    SHIFT_A = 27, "left shift of the first term"
    SHIFT_B = 28, "left shift of the second term"
    BIAS = 29, "place of the biases"
    FRONT = 30, "avg: rows and columns of padding that count, above * 65536 + left"
    BEHIND = 31, "avg: the same, below * 65536 + right"


class Pad(Named):
    INPUT = 0, "inputs, and the second operand of sums"
    WEIGHT = 1, "weights"
    OUTPUT = 2, "sums of 8 bytes, then results"
    BIAS = 3, "biases, int32"


class Segment(Named):
    CONSTANTS = 0, "weights and biases"
    ACTIVATIONS = 1, "feature maps"


_RD = Field("rd", ((12, 8, 0),), "rd", names=Reg)
_IMM = Field("imm", ((31, 16, 0),), "imm")
_PAD = Field("pad", ((9, 8, 0),), "rd", names=Pad)
_SEGMENT = Field("segment", ((10, 10, 0),), "rs1", names=Segment)


def _do(number: int, mnemonic: str, meaning: str, *fields: Field) -> Instruction:
    syntax = ", ".join(field.name for field in fields)
    return Instruction(mnemonic, number, fields, syntax, meaning, mnemonic)


LOOM_ISA = Isa(
    "loom",
    "Loom",
    (
        _do(0x01, "set", "rd = imm", _RD, _IMM),
        _do(0x02, "high", "rd = (rd & 65535) + imm * 65536", _RD, _IMM),
        _do(0x03, "load", "memory to scratchpad", _PAD, _SEGMENT),
        _do(0x04, "store", "OUTPUT to ACTIVATIONS"),
        _do(0x05, "zero", "sums = 0"),
        _do(0x06, "mac", "sums += IN convolved with W"),
        _do(0x07, "finish", "results = requantize(sums + biases)"),
        _do(0x08, "residual", "results = requantize((sums + biases << SHIFT_A) + (IN << SHIFT_B))"),
        _do(0x09, "max", "the largest of each window"),
        _do(0x0A, "avg", "floor((2 * sum + count) / (2 * count)) of each window"),
        _do(0x0B, "add", "requantize((IN << SHIFT_A) + (W << SHIFT_B)), W in INPUT"),
        _do(0x0C, "mul", "requantize(IN * W), W in INPUT"),
        _do(0x0D, "copy", "requantize(IN)"),
        _do(0x0E, "halt", "the program ends"),
    ),
)
