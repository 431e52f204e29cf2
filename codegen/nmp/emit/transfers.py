"""Transfers of the three shapes that the DMA engines move: a run, segments, a box of a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import Transfer, dma_registers
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.sim.nmp.xnmp import DmaRegister, Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class OnChip:
    """Where in its memories a transfer goes: ``offset`` in bytes (elements in MB2), and who gets a
    load: bit masks of TLTs in a TLE and of TLEs, 0 for what the instruction says by itself."""

    offset: Expression = Expression()
    tlts: Operand = 0
    tles: Operand = 0
    arrived: int | None = None
    """The semaphore to signal, where it is not the usual one of the stream."""

    def registers(self, mnemonic: str) -> dict[DmaRegister, Operand]:
        if "forward" in mnemonic:
            return {DmaRegister.RECEIVER_TLTS: self.tlts, DmaRegister.RECEIVER_TLES: self.tles}
        if "load" not in mnemonic:
            return {}
        values: dict[DmaRegister, Operand] = {DmaRegister.RECEIVER_TLES: self.tles}
        if "mload" in mnemonic:
            values[DmaRegister.RECEIVER_TLTS] = self.tlts
        return values


START = OnChip()


def run_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Expression,
    semaphore: int,
    byte_count: Operand,
    element_bytes: int,
    on_chip: OnChip = START,
) -> Transfer:
    """One contiguous run."""
    segments = (1, byte_count, 0)
    return segments_transfer(
        mnemonic, stream, memory, address, semaphore, segments, element_bytes, on_chip
    )


def segments_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Expression,
    semaphore: int,
    segments: tuple[Operand, Operand, Operand],
    element_bytes: int,
    on_chip: OnChip = START,
) -> Transfer:
    """``segments`` = (number, bytes of each, bytes from one to the next in DRAM)."""
    values: dict[DmaRegister, Operand] = {
        DmaRegister.ELEMENT_BYTES: element_bytes,
        DmaRegister.SEGMENTS: segments[0],
        DmaRegister.SEGMENT_BYTES: segments[1],
        DmaRegister.SEGMENT_STRIDE: segments[2],
        **on_chip.registers(mnemonic),
    }
    demanded = dma_registers(values)
    semaphore = semaphore if on_chip.arrived is None else on_chip.arrived
    return Transfer(mnemonic, stream, memory, address, on_chip.offset, semaphore, demanded)


def rows_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Expression,
    semaphore: int,
    tensor: tuple[int, int],
    channels: tuple[Expression, Expression],
    rows: tuple[Expression, Expression],
    element_bytes: int,
    on_chip: OnChip = START,
) -> Transfer:
    """Whole rows of some channels, (begin, count) of each, of planes of ``tensor`` rows and
    columns: a segment a channel, or one in all for whole planes."""
    row_bytes = tensor[1] * element_bytes
    plane_bytes = tensor[0] * row_bytes
    begin = address + channels[0] * plane_bytes + rows[0] * row_bytes
    segments: tuple[Operand, Operand, Operand]
    if rows[1] == Expression.of(tensor[0]):
        segments = (1, channels[1] * plane_bytes, 0)
    else:
        segments = (channels[1], rows[1] * row_bytes, plane_bytes)
    return segments_transfer(
        mnemonic, stream, memory, begin, semaphore, segments, element_bytes, on_chip
    )


def box_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Expression,
    semaphore: int,
    tensor: tuple[int, int, int],
    start: tuple[Operand, Operand, Operand],
    box: tuple[Operand, Operand, Operand],
    element_bytes: int,
    fill: int | None = None,
    on_chip: OnChip = START,
) -> Transfer:
    """A box of a (C, H, W) tensor at ``address``; ``fill`` is what loads see outside of it."""
    channels, rows, columns = tensor
    values: dict[DmaRegister, Operand] = {
        DmaRegister.ELEMENT_BYTES: element_bytes,
        DmaRegister.CHANNELS: channels,
        DmaRegister.ROWS: rows,
        DmaRegister.COLUMNS: columns,
        DmaRegister.CHANNEL_STRIDE: rows * columns * element_bytes,
        DmaRegister.ROW_STRIDE: columns * element_bytes,
        DmaRegister.START_CHANNEL: start[0],
        DmaRegister.START_ROW: start[1],
        DmaRegister.START_COLUMN: start[2],
        DmaRegister.BOX_CHANNELS: box[0],
        DmaRegister.BOX_ROWS: box[1],
        DmaRegister.BOX_COLUMNS: box[2],
        **on_chip.registers(mnemonic),
    }
    if fill is not None:
        values[DmaRegister.FILL] = fill
    demanded = dma_registers(values)
    semaphore = semaphore if on_chip.arrived is None else on_chip.arrived
    return Transfer(mnemonic, stream, memory, address, on_chip.offset, semaphore, demanded)
