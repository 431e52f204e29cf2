"""Programs that cut boxes out of row-major tensors (double-buffer tiling paper, section 5.2).

A box of a [channels, rows, columns] tensor lies in DDR as rows that are `row_stride` bytes apart;
the tile on chip is contiguous. What is contiguous in DDR as well is moved in one run: full-width
rows as one, full channels as one. The two loops of a channel walk over rows and over the bursts of
a row; the third dimension is unrolled:

    dmamov sar, ...; dmamov dar, ...; dmamov ccr, ...
    dmalp lc0, rows
      dmalp lc1, bursts
        dmald; dmast
      dmalpend lc1
      dmaaddh sar, to the next row       # a loop of dmaaddh when that is more than 16 bits hold
    dmalpend lc0
    ...                                  # once for every channel, with the address of its box
    dmawmb; dmasev event; dmaend

The barrier keeps the event behind the last store. Beats are as wide as the alignment of the box
and the tile allows; a run that is no multiple of the burst ends in a shorter one, for which CCR is
changed and changed back. As in the paper, code is made once for all boxes of one shape and
alignment and then gets its addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tvm_npu.codegen.parts.pl330.boxes import (
    Box,
    Direction,
    Runs,
    RunShape,
    Tensor3d,
    Tile,
    TransferError,
    beat_bytes_of,
    check_tile,
    runs_of,
)
from tvm_npu.codegen.parts.pl330.moving_code import moving_code
from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.parts.pl330.code import ProgramBuilder

LARGEST_ADDRESS = 0xFFFF_FFFF


@dataclass(frozen=True)
class TransferLimits:
    """What the controller allows: bytes of its bus and of a program."""

    bus_bytes: int = 8
    program_bytes: int = 1 << 16


def build_transfer(
    tensor: Tensor3d,
    box: Box,
    on_chip_address: int,
    *,
    direction: Direction = "load",
    event: int | None = None,
    limits: TransferLimits | None = None,
) -> bytes:
    """The program of one transfer; it sends ``event`` (None: nothing) when all bytes are there.

    Raises TransferError for a box outside its tensor or a program longer than the limit.
    """
    return build_transfers([Tile(tensor, box, on_chip_address, direction)], event, limits)


@dataclass(frozen=True)
class TransferTemplate:
    """A whole program without its addresses: `ddr_addresses` are (offset in the program, distance
    from the first byte moved) of those in DDR, `on_chip_address` the offset of the one on chip."""

    program: bytes
    ddr_addresses: tuple[tuple[int, int], ...]
    on_chip_address: int
    event: int


def transfer_template(
    shape: RunShape,
    address: int,
    on_chip_address: int,
    *,
    direction: Direction,
    event: int,
    limits: TransferLimits | None = None,
) -> TransferTemplate:
    """The program of all transfers of one shape whose addresses are aligned as these two are.

    Raises TransferError for a program longer than the limit.
    """
    limits = limits or TransferLimits()
    runs = Runs(
        address, shape.outer, shape.inner, shape.run_bytes, shape.outer_stride, shape.inner_stride
    )
    beat_bytes = beat_bytes_of(runs, on_chip_address, limits.bus_bytes)
    return _whole_template(replace(runs, address=0), beat_bytes, direction, event, limits)


@lru_cache(maxsize=4096)
def _whole_template(
    runs: Runs, beat_bytes: int, direction: Direction, event: int, limits: TransferLimits
) -> TransferTemplate:
    program = ProgramBuilder()
    try:
        moving = moving_code(runs, beat_bytes, direction == "load")
        program.append(moving.code)
        program.emit("dmawmb")
        program.emit("dmasev", event=event)
        program.emit("dmaend")
    except IsaError as error:
        raise TransferError(f"transfer program: {error}") from error
    _check_length(program, limits)
    return TransferTemplate(
        program.finish(), moving.ddr_addresses, moving.on_chip_address, event
    )


def _check_length(program: ProgramBuilder, limits: TransferLimits) -> None:
    if program.size_bytes > limits.program_bytes:
        raise TransferError(
            f"transfer program of {program.size_bytes} bytes; at most {limits.program_bytes}: "
            "use fewer channels a tile"
        )


def build_transfers(
    tiles: Sequence[Tile], event: int | None = None, limits: TransferLimits | None = None
) -> bytes:
    """One program that moves several tiles one after another; see `build_transfer`."""
    limits = limits or TransferLimits()
    program = ProgramBuilder()
    try:
        for tile in tiles:
            check_tile(tile)
            _move(program, tile, limits.bus_bytes)
        program.emit("dmawmb")
        if event is not None:
            program.emit("dmasev", event=event)
        program.emit("dmaend")
    except IsaError as error:
        raise TransferError(f"transfer program: {error}") from error
    _check_length(program, limits)
    return program.finish()


def _move(program: ProgramBuilder, tile: Tile, bus_bytes: int) -> None:
    """The tile's template with its addresses put in."""
    runs = runs_of(tile.tensor, tile.box)
    beat_bytes = beat_bytes_of(runs, tile.on_chip_address, bus_bytes)
    template = moving_code(replace(runs, address=0), beat_bytes, tile.direction == "load")
    code = bytearray(template.code)
    for offset, distance in template.ddr_addresses:
        code[offset : offset + 4] = _address(runs.address + distance)
    code[template.on_chip_address : template.on_chip_address + 4] = _address(tile.on_chip_address)
    program.append(bytes(code))


def _address(value: int) -> bytes:
    if value > LARGEST_ADDRESS:
        raise TransferError(f"address {value:#x}; at most {LARGEST_ADDRESS:#x}")
    return value.to_bytes(4, "little")
