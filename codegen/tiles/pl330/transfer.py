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

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from tvm_npu.codegen.errors import CodegenError
from tvm_npu.sim.errors import IsaError
from tvm_npu.sim.parts.pl330.code import ProgramBuilder
from tvm_npu.sim.parts.pl330.isa import (
    LARGEST_BURST_BEATS,
    LARGEST_JUMP,
    LARGEST_LOOP,
    LARGEST_STEP,
    AddressRegister,
    ChannelControl,
    LoopCounter,
    Register,
)

Direction = Literal["load", "store"]
"""load: DDR to on-chip memory; store: back."""

LARGEST_ADDRESS = 0xFFFF_FFFF

_CONTROL_CHANGES = 2
"""DMAMOVs that a shorter last burst costs in every run."""


class TransferError(CodegenError, ValueError):
    """A box or a program that cannot be: names what, its value and the limit."""


@dataclass(frozen=True)
class Tensor3d:
    """A row-major tensor [channels, rows, columns] at byte `address` of DDR."""

    address: int
    channels: int
    rows: int
    columns: int
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.channels * self.rows * self.columns * self.element_bytes


@dataclass(frozen=True)
class Box:
    """A part of a tensor: its first channel, row and column, and how many of each."""

    channel: int
    row: int
    column: int
    channels: int
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        return self.channels * self.rows * self.columns


@dataclass(frozen=True)
class Tile:
    """One transfer of a program: `box` of `tensor` and the tile at byte `on_chip_address`."""

    tensor: Tensor3d
    box: Box
    on_chip_address: int
    direction: Direction = "load"


@dataclass(frozen=True)
class RunShape:
    """Bytes in DDR: ``outer`` rows, ``outer_stride`` bytes apart, of ``inner`` runs of
    ``run_bytes``, ``inner_stride`` apart. Strides of one row or run do not count."""

    run_bytes: int
    inner: int = 1
    inner_stride: int = 0
    outer: int = 1
    outer_stride: int = 0


@dataclass(frozen=True)
class TransferLimits:
    """What the controller allows: bytes of its bus and of a program."""

    bus_bytes: int = 8
    program_bytes: int = 1 << 16


@dataclass(frozen=True)
class _Template:
    """The code of a tile without its addresses: (offset, distance from the box's first byte) of
    the DDR addresses, offset of the on-chip address."""

    code: bytes
    ddr_addresses: tuple[tuple[int, int], ...]
    on_chip_address: int


@dataclass(frozen=True)
class _Runs:
    """The box in DDR: [channels, rows] runs of `run_bytes`, with the strides between them."""

    address: int
    channels: int
    rows: int
    run_bytes: int
    channel_stride: int
    row_stride: int


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
    runs = _Runs(
        address, shape.outer, shape.inner, shape.run_bytes, shape.outer_stride, shape.inner_stride
    )
    beat_bytes = _beat_bytes(runs, on_chip_address, limits.bus_bytes)
    return _whole_template(replace(runs, address=0), beat_bytes, direction, event, limits)


@lru_cache(maxsize=4096)
def _whole_template(
    runs: _Runs, beat_bytes: int, direction: Direction, event: int, limits: TransferLimits
) -> TransferTemplate:
    program = ProgramBuilder()
    try:
        moving = _template(runs, beat_bytes, direction == "load")
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
            _check(tile)
            _move(program, tile, limits.bus_bytes)
        program.emit("dmawmb")
        if event is not None:
            program.emit("dmasev", event=event)
        program.emit("dmaend")
    except IsaError as error:
        raise TransferError(f"transfer program: {error}") from error
    _check_length(program, limits)
    return program.finish()


def address_jumps(tensor: Tensor3d, box: Box) -> int:
    """Breaks in the DDR addresses of a box, s of the linear cost model: one for each contiguous
    run, where rows and channels that follow each other without a gap are one run."""
    runs = _runs(tensor, box)
    return runs.channels * runs.rows


def _check(tile: Tile) -> None:
    tensor, box = tile.tensor, tile.box
    if tensor.element_bytes < 1 or tensor.address < 0 or tile.on_chip_address < 0:
        raise TransferError(
            f"tensor at {tensor.address} with elements of {tensor.element_bytes} bytes, tile at "
            f"{tile.on_chip_address}; addresses are at least 0, elements at least 1"
        )
    for name, begin, count, size in (
        ("channels", box.channel, box.channels, tensor.channels),
        ("rows", box.row, box.rows, tensor.rows),
        ("columns", box.column, box.columns, tensor.columns),
    ):
        if begin < 0 or count < 1 or begin + count > size:
            raise TransferError(
                f"box {name} {begin} to {begin + count} leave the tensor's 0 to {size}"
            )


def _runs(tensor: Tensor3d, box: Box) -> _Runs:
    row_stride = tensor.columns * tensor.element_bytes
    channel_stride = tensor.rows * row_stride
    address = (
        tensor.address
        + box.channel * channel_stride
        + box.row * row_stride
        + box.column * tensor.element_bytes
    )
    channels, rows, run_bytes = box.channels, box.rows, box.columns * tensor.element_bytes
    if run_bytes == row_stride or rows == 1:
        rows, run_bytes, row_stride = 1, rows * run_bytes, channel_stride
        if run_bytes == channel_stride or channels == 1:
            channels, run_bytes = 1, channels * run_bytes
        else:
            # One run a channel: the channels are what the row loop walks over.
            channels, rows, row_stride = 1, channels, channel_stride
    return _Runs(address, channels, rows, run_bytes, channel_stride, row_stride)


def _beat_bytes(runs: _Runs, on_chip_address: int, bus_bytes: int) -> int:
    """The widest beat to which all bursts of a tile are aligned."""
    aligned = math.gcd(bus_bytes, runs.address, on_chip_address, runs.run_bytes)
    if runs.rows > 1:
        aligned = math.gcd(aligned, runs.row_stride)
    if runs.channels > 1:
        aligned = math.gcd(aligned, runs.channel_stride)
    return aligned & -aligned


def _burst_beats(beats: int) -> int:
    """The burst length that takes the fewest instructions for a run of so many beats: bursts, and
    the changes of CCR for a shorter last one. Of equals the longest."""

    def instructions(length: int) -> int:
        bursts, rest = divmod(beats, length)
        return bursts + ((1 + _CONTROL_CHANGES) if bursts and rest else bool(rest))

    lengths = range(min(beats, LARGEST_BURST_BEATS), 0, -1)
    return min(lengths, key=instructions)


def _move(program: ProgramBuilder, tile: Tile, bus_bytes: int) -> None:
    """The tile's template with its addresses put in."""
    runs = _runs(tile.tensor, tile.box)
    beat_bytes = _beat_bytes(runs, tile.on_chip_address, bus_bytes)
    template = _template(replace(runs, address=0), beat_bytes, tile.direction == "load")
    code = bytearray(template.code)
    for offset, distance in template.ddr_addresses:
        code[offset : offset + 4] = _address(runs.address + distance)
    code[template.on_chip_address : template.on_chip_address + 4] = _address(tile.on_chip_address)
    program.append(bytes(code))


def _address(value: int) -> bytes:
    if value > LARGEST_ADDRESS:
        raise TransferError(f"address {value:#x}; at most {LARGEST_ADDRESS:#x}")
    return value.to_bytes(4, "little")


@lru_cache(maxsize=4096)
def _template(runs: _Runs, beat_bytes: int, loads: bool) -> _Template:
    """The code for all boxes of this shape, in DDR at address 0 and on chip at 0."""
    program = ProgramBuilder()
    in_ddr = int(Register.SAR if loads else Register.DAR)
    on_chip = int(Register.DAR if loads else Register.SAR)
    stepped = int(AddressRegister.SAR if loads else AddressRegister.DAR)
    control = ChannelControl(beat_bytes, _burst_beats(runs.run_bytes // beat_bytes))
    bursts, rest = divmod(runs.run_bytes // beat_bytes, control.beats)

    ddr_addresses = [(_move_address(program, in_ddr), 0)]
    on_chip_address = _move_address(program, on_chip)
    program.emit("dmamov", rd=int(Register.CCR), imm=control.encode())
    if runs.rows == 1:
        _move_run(program, control, bursts, rest, nested=True)
        return _Template(program.finish(), tuple(ddr_addresses), on_chip_address)
    row = ProgramBuilder()
    _move_run(row, control, bursts, rest, nested=False)
    _step(row, stepped, runs.row_stride - runs.run_bytes)
    to_next_channel = runs.channel_stride - runs.rows * runs.row_stride
    for channel in range(runs.channels):
        if channel > 0 and to_next_channel <= LARGEST_STEP:
            _step(program, stepped, to_next_channel)
        elif channel > 0:
            offset = _move_address(program, in_ddr)
            ddr_addresses.append((offset, channel * runs.channel_stride))
        if row.size_bytes <= LARGEST_JUMP:
            for rows in _chunks(runs.rows):
                with program.loop(int(LoopCounter.LC0), rows):
                    program.append(row.finish())
        else:
            for _ in range(runs.rows):
                _move_run(program, control, bursts, rest, nested=True)
                _step(program, stepped, runs.row_stride - runs.run_bytes)
    return _Template(program.finish(), tuple(ddr_addresses), on_chip_address)


def _move_address(program: ProgramBuilder, register: int) -> int:
    """DMAMOV of an address that is put in later; the offset of its four bytes."""
    program.emit("dmamov", rd=register, imm=0)
    return program.size_bytes - 4


def _move_run(
    program: ProgramBuilder, control: ChannelControl, bursts: int, rest: int, *, nested: bool
) -> None:
    """``bursts`` bursts by ``control`` and one of ``rest`` beats; ``nested``: loop counter 0 is
    free as well, so that long runs take one pair of loops."""
    chunks = _chunks(bursts)
    if nested and len(chunks) > 2:
        whole, last = divmod(bursts, LARGEST_LOOP)
        for rounds in _chunks(whole):
            with (
                program.loop(int(LoopCounter.LC0), rounds),
                program.loop(int(LoopCounter.LC1), LARGEST_LOOP),
            ):
                _burst(program)
        chunks = [last] if last else []
    for count in chunks:
        if count == 1:
            _burst(program)
            continue
        with program.loop(int(LoopCounter.LC1), count):
            _burst(program)
    if rest:
        short = ChannelControl(control.beat_bytes, rest)
        program.emit("dmamov", rd=int(Register.CCR), imm=short.encode())
        _burst(program)
        program.emit("dmamov", rd=int(Register.CCR), imm=control.encode())


def _burst(program: ProgramBuilder) -> None:
    program.emit("dmald")
    program.emit("dmast")


def _step(program: ProgramBuilder, register: int, distance: int) -> None:
    """Adds ``distance`` to an address: 16 bits at a time, in a loop from the third on."""
    times, rest = divmod(distance, LARGEST_STEP)
    if times > 2:
        for count in _chunks(times):
            with program.loop(int(LoopCounter.LC1), count):
                program.emit("dmaaddh", ra=register, imm=LARGEST_STEP)
    else:
        for _ in range(times):
            program.emit("dmaaddh", ra=register, imm=LARGEST_STEP)
    if rest:
        program.emit("dmaaddh", ra=register, imm=rest)


def _chunks(count: int) -> list[int]:
    """Loop counts of at most 256: 600 -> [256, 256, 88]."""
    full, rest = divmod(count, LARGEST_LOOP)
    return [LARGEST_LOOP] * full + ([rest] if rest else [])
