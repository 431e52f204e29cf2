"""The document of tile instructions: `python -m tvm_npu.sim.tiles.document docs/isa-tiles.md`."""

from __future__ import annotations

from tvm_npu.sim.isa.document import field_table, instruction_table, main, names_section
from tvm_npu.sim.tiles.isa import (
    CONFIG_REGISTERS,
    TILE_INSTRUCTIONS,
    TILE_ISA,
    Accumulate,
    Direction,
    Finish,
    TileMemory,
    TilePool,
    TileRegister,
    TileVector,
    TransferStream,
)

_INTRODUCTION = """\
# The instruction set of tile machines

Made by `python -m tvm_npu.sim.tiles.document` from the table in `sim/tiles/isa.py`, which also
gives the encoder, the decoder, the assembler, the disassembler and the simulator's dispatch.

The control unit executes {count} instructions of 32 bits, one after the other from the first one to
`tend`; there are no branches. Every bit of an instruction is either constant or part of an operand,
and no word is two instructions; a word that is none of them traps. Instructions take their operands
from {registers} configuration registers of 32 bits, signed, which are 0 at the start.

## Numbers and tiles

Elements are int8 or int16, whichever the program says, in as many bytes as the machine's `[words]`
give for that, little-endian and sign-extended. A tile lies packed: channel by channel, row by row,
without gaps; nothing has to be aligned. Sums are exact, in accumulators as wide as `[words]` says;
one that does not fit traps. Biases are int32.

`tconv` and `tpool` see the part of a tile that lies inside its tensor, at PAD_TOP and PAD_LEFT in
the window; what is missing, in front and behind, is padding. Operands are read before the result is
written.

Rounding is half up, towards plus infinity: a sum becomes `(sum + 2^(SHIFT - 1)) >> SHIFT`, then is
saturated to the element type, then clipped to LOW and HIGH, which saturate, too. A negative SHIFT
shifts left.

## Order and time

Words issue one a cycle. The transfer engine (the machine's `[mover]`) and the compute engine each
take commands in program order. A command starts when it has issued, its engine is free, and the
other engine is done with every earlier command that touches the same bytes, unless both only read
them. So a program needs no waiting instructions, and transfers go on under computation wherever
their bytes allow. Operands latch when an instruction issues: registers can be set for the next one
at once.

- A transfer takes `setup_cycles + pieces * segment_cycles + bytes / bytes_per_cycle`; pieces are
  the contiguous parts outside of the chip (runs without a gap between them are one).
- `tconv` on an array takes `setup_cycles` and, for each group, the product over filters, channels,
  rows, columns, kernel rows and kernel columns of the tile, those that are spread over PEs divided
  by their number and rounded up. With TAPS_AT_ONCE, kernel rows x kernel columns are divided by it
  and rounded up: so many taps are multiplied beside each other, each on PEs for all IN_CHANNELS of
  a group. More taps than the array's `taps_at_once`, or than its PEs over channels have room for,
  trap; one is always possible.
- `tfinish`, `tpool`, `tvec` and `tfill` on an array take an operation a PE and cycle: as many as
  the result has elements, for `tpool` times the elements of the window.

- A command on a core takes `setup_cycles`, `mac_cycles` a product of `tconv` or
  `operation_cycles` an operation of the others, and its accesses: of `tconv` two a product and two
  a sum, of the others two an operation. Without a cache an access takes `chip_access_cycles` (or
  `dram_access_cycles`); with one `hit_cycles`, and each line of the operands is fetched once, for
  `chip_miss_cycles` (or `dram_miss_cycles`). While a command runs no word issues.

Machines with a `[dmac]` have no such engine and no interlock: there `tgo` and `twait` start and
await programs of the DMA controller, which run beside the core. `tgo` takes the core an operation
and an access for each address that it puts into the program, and waits until the channel's last
program has ended. On a machine that has no unit for it an instruction traps.

## DMA programs

A template is a row of words in CONSTANTS: bytes of the program, where the chip address goes, its
event, number of other addresses (at most 65,536), for each of these where it goes and its distance
from ADDRESS; then the [program](isa-pl330.md). An address is put in as 32 bits. The controller
finds the memories on chip from address 0 on, one behind the other: the input, weight and output
memory or the one that they share, then the biases; it finds the segments where they lie in DRAM.

A program must do what its `tgo` says, and traps otherwise, at the latest when it is waited for or
at `tend`. On chip its bursts follow each other, from CHIP_OFFSET on; in the segment they lie in the
EXTENT_BYTES from ADDRESS on; it stores MOVED_BYTES altogether. Then it sends its event, once and
behind a `dmawmb`, and moves nothing more. All events go to the core: a program that waits for one
never ends.

From the `tgo` to the `twait` for its event a program is in flight. A command, and a `tgo`, that
touches bytes between the first and the last that a program in flight moves traps, unless both only
read them; so do a `tgo` on its channel and one with its event. Of a command all bytes from an
operand's first to its last count as touched. Bytes that a `tgo` loads count as written.

## Traps

A program stops with an error that names the instruction, its layer, the registers it reads, and the
limit, when a tile or transfer leaves its memory or segment; a register's value cannot be used; a
memory cannot take part (the bias memory in `tconv`, a store to CONSTANTS, a place outside of the
chip on an array); bytes on chip are read that nothing was written to in this run; a number that is
read as an element is none; a sum does not fit, or, in `tfinish` with a residual, 62 bits after
SHIFT_A; a pooling window counts no element; or the code ends without `tend`. To set a register
without a name is an illegal instruction. Extents, kernels, strides, dilations and groups are 1 to
2^20, GROUPS divides OUT_CHANNELS, IN_ROWS, IN_COLUMNS and padding are 0 to 2^20; runs are 1 to 2^24
bytes, counts of runs 1 to 2^20, strides between them not negative; SHIFT is -47 to 62, SHIFT_A and
SHIFT_B are 0 to 47, LOW is at most HIGH, FILL an element; a pitch other than 0 covers a row, a
channel or a filter; TAPS_AT_ONCE is 0 or what the array can do. With a DMA controller also when
bytes are touched that a program may be moving; at PROGRAM there is no template; there is no such
channel; a channel or an event is used again before a wait for it; a program does not do what its
`tgo` says; nobody sends the event that is waited for; or the program itself goes wrong.
"""


def tile_document() -> str:
    """The whole document, Markdown."""
    parts = [
        _INTRODUCTION.format(count=len(TILE_INSTRUCTIONS), registers=CONFIG_REGISTERS),
        "## Instructions\n",
        instruction_table(TILE_INSTRUCTIONS),
        "## Operands\n",
        field_table(TILE_ISA),
        names_section("`creg`: configuration registers", TileRegister),
        names_section("`mem`, `base`: memories", TileMemory),
        names_section("`stream`: what a transfer carries", TransferStream),
        names_section("`direction` of tgo", Direction),
        names_section("`sub` of tconv", Accumulate),
        names_section("`sub` of tfinish", Finish),
        names_section("`sub` of tpool", TilePool),
        names_section("`sub` of tvec", TileVector),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    main(tile_document())
