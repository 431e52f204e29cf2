"""The document of the NMP's instructions: `python -m tvm_npu.sim.nmp.document docs/isa-nmp.md`."""

from __future__ import annotations

from tvm_npu.sim.isa.assembler import pseudo_instructions
from tvm_npu.sim.isa.builder import ABI_NAMES
from tvm_npu.sim.isa.document import (
    field_table,
    instruction_table,
    main,
    markdown_table,
    names_section,
)
from tvm_npu.sim.nmp.columns import BIAS_WINDOW, MB0_WINDOW, MB1_WINDOW
from tvm_npu.sim.nmp.rv32im import RV32IM
from tvm_npu.sim.nmp.xnmp import (
    CONFIG_REGISTERS,
    LARGEST_SHIFT,
    LARGEST_SLOPE,
    LARGEST_TABLE_SHIFT,
    NMP_ISA,
    SLOPE_BEATS,
    TABLE_BEATS,
    XNMP,
    Activation,
    DmaRegister,
    Initialise,
    Level,
    MacRegister,
    Memory,
    PoolKind,
    Rescale,
    VectorOp,
)

_INTRODUCTION = """\
# The NMP's instruction set: {title}

Made by `python -m tvm_npu.sim.nmp.document` from the tables in `sim/nmp`, which also give the
encoder, the decoder, the assembler, the disassembler and the simulator's dispatch.

A TLT's core executes {base} RV32IM instructions and {custom} instructions of its own, all 32 bits
wide. Every bit of an instruction is either constant or part of an operand, and no word is two
instructions; a word that is none of them traps.

## Programs

`ecall` with a7 = 93 ends a core with exit code a0. Where there is a console, as in `tvm-npu
run-elf`, a7 = 64 writes a2 bytes of DRAM from address a1 on to it; a0, which is 1 or 2, becomes a2,
any other becomes -9.

MAC and DMA instructions take their operands
from {registers} configuration registers each, latched when the instruction issues; they run beside
the core and signal the TLT semaphore `sem` when they are done, unless `sem` is 0.

## Transfers

A transfer waits in the queue of its TLE's DMA engine; when the queue is full, the core that
issues it waits. What it brings arrives when it is complete, at all receivers at once, and each of
them gets the signal; the TLT that issued it gets one only when it receives. To other TLEs data
goes over the Global Ringbus, and a forward from MB2 to MB0 takes a ring bus instead of DRAM. On a
machine without ring buses both trap.

A program must wait for a transfer before the MAC unit uses what it brings or overwrites what it
takes, and for the MAC unit before it issues a transfer to or from what that uses: the same bytes,
of MB2 the same elements, or the same memory on machines whose memories have one port. Two engines
must not bring something to the same bytes at the same time. A program that breaks these rules traps
at the instruction that meets the other one at work, also where its result would have been right.
Where the times of a run keep the two apart it does not trap, and computes as if it had waited. A
transfer is at work from when it issues, also in the queue, for `setup_cycles` and more; so is an
operation of the MAC unit.

## Memories

A TLT's core loads and stores whole words, halfwords and bytes, aligned, in DRAM and in its own
memories: MB0 lies at {mb0:#010x}, MB1 at {mb1:#010x}, the bias buffer at {bias:#010x}. MB2
holds one accumulator an element and is addressed in elements; the elements that fit are those that
fit its bytes at the width in use. A store or forward takes the low bits of accumulators.

## Traps

A core that cannot execute an instruction traps there, and the machine stops: a word that is no
instruction, or a `sub` without meaning, or filter words on a machine that has none (illegal
instruction); a pc outside of the code or not on a word; an access that is not aligned or outside of
every memory; a store, or a store transfer from its first byte to its last, that meets the program's
code, which is read before it begins; another ecall, and ebreak; a tile or transfer outside of its
memory; a transfer outside of the program's DRAM; loads to MB2 and stores from elsewhere; a sum that
does not fit the accumulator, or one that SHIFT_A moves beyond 62 bits; a ring bus that is not
there; a semaphore that the machine has not, a negative count, a level other than 0 to 2 (of
releases 1 and 2); when nobody can go on, all that wait (deadlock); and a configuration register
whose value cannot be used, which is what is not said here to be usable:

- extents, kernels, strides, dilations and groups are 1 to 2^20; a window that begins inside the
  tile ends there, too; OUT_CHANNELS is a multiple of GROUPS; nmp_pool has no dilation and counts at
  least one element a window; filters do not overlap; ELEMENT_BYTES is 1 or 2.
- SHIFT is -{shift} to 62; SHIFT_A and SHIFT_B, that of a filter's word included, are 0 to {shift};
  FACTOR is 0 to {factor} for tables; slopes are -{largest} to {largest}. LOW and HIGH are
  saturated to the element type.
- addresses, strides and lengths of elements are whole elements; DMA extents and strides are 0 to
  2^28, boxes 0 to 2^20 a side; receivers exist.

## What is not in the paper

The paper names nmp_activation and says nothing of functions other than ReLU. These are extensions
of this project: nmp_activationx, with its two configuration registers; nmp_veopc; nmp_veop's
differences and maxima; and, for quantized models as they come, nmp_rescale, nmp_conv2dz,
nmp_perceptz, the sums with factors of nmp_veop and sub 2 of nmp_pool, which machines have whose
mac.requantization is "scale". Halves go up in TensorFlow Lite's models and to even in those of
ONNX's QuantizeLinear: nmp_rescale has both roundings.

nmp_activationx is slower than nmp_activation, which uses the datapath once for as many elements as
it has lanes: a table takes {table_int8} uses (int8: requantize, look up) or {table_int16} (int16:
then interpolate; both neighbours are looked up at once), a slope or a scale word {slope} (multiply,
requantize). A machine file has no numbers for them: tables, slopes and scale words lie in the bias
buffer, whose reads an operation of the MAC unit counts like those of biases.
"""


def nmp_document() -> str:
    """The whole document, Markdown."""
    parts = [
        _INTRODUCTION.format(
            title=NMP_ISA.title, base=len(RV32IM), custom=len(XNMP), registers=CONFIG_REGISTERS,
            table_int8=TABLE_BEATS[1], table_int16=TABLE_BEATS[2], slope=SLOPE_BEATS,
            shift=LARGEST_SHIFT, factor=LARGEST_TABLE_SHIFT, largest=LARGEST_SLOPE,
            mb0=MB0_WINDOW, mb1=MB1_WINDOW, bias=BIAS_WINDOW,
        ),
        "## RV32IM\n",
        instruction_table(RV32IM),
        "## Xnmp\n",
        instruction_table(XNMP),
        "## Operands\n",
        field_table(NMP_ISA),
        names_section("MAC configuration registers", MacRegister),
        names_section("DMA configuration registers", DmaRegister),
        names_section("`mem`: on-chip memories", Memory),
        names_section("`level`: semaphores", Level),
        names_section("`sub` of nmp_conv2d and nmp_percept", Initialise),
        names_section("`sub` of nmp_pool", PoolKind),
        names_section("`sub` of nmp_veop and nmp_veopc", VectorOp),
        names_section("`sub` of nmp_activationx", Activation),
        names_section("`sub` of nmp_rescale", Rescale),
        "## Registers\n",
        markdown_table(
            ("register", "ABI name"),
            ((f"x{number}", name) for number, name in enumerate(ABI_NAMES)),
        ),
        "## Pseudo-instructions\n",
        markdown_table(
            ("written", "stands for"),
            ((f"`{written}`", f"`{meaning}`") for written, meaning in pseudo_instructions()),
        ),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    main(nmp_document())
