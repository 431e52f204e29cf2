"""The code that moves one box, without its addresses: bursts, loops over runs, steps between them.

Code is made once for all boxes of one shape and alignment; addresses are put in later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tvm_npu.codegen.parts.pl330.boxes import Runs
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

_CONTROL_CHANGES = 2
"""DMAMOVs that a shorter last burst costs in every run."""


@dataclass(frozen=True)
class MovingCode:
    """The code of a tile without its addresses: (offset, distance from the box's first byte) of
    the DDR addresses, offset of the on-chip address."""

    code: bytes
    ddr_addresses: tuple[tuple[int, int], ...]
    on_chip_address: int


@lru_cache(maxsize=4096)
def moving_code(runs: Runs, beat_bytes: int, loads: bool) -> MovingCode:
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
        return MovingCode(program.finish(), tuple(ddr_addresses), on_chip_address)
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
    return MovingCode(program.finish(), tuple(ddr_addresses), on_chip_address)


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


def _burst_beats(beats: int) -> int:
    """The burst length that takes the fewest instructions for a run of so many beats: bursts, and
    the changes of CCR for a shorter last one. Of equals the longest."""

    def instructions(length: int) -> int:
        bursts, rest = divmod(beats, length)
        return bursts + ((1 + _CONTROL_CHANGES) if bursts and rest else bool(rest))

    lengths = range(min(beats, LARGEST_BURST_BEATS), 0, -1)
    return min(lengths, key=instructions)
