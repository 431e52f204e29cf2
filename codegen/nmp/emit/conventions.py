"""What all NMP programs agree on: semaphore numbers, the frame's variables, common commands."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.nmp.emit.commands import (
    ONE,
    Affine,
    Assign,
    Compute,
    If,
    Nodes,
    Operand,
    Semaphore,
    Transfer,
    Variable,
    dma_registers,
    registers,
    when,
)
from tvm_npu.sim.nmp.xnmp import DmaRegister, Level, MacRegister, Memory
from tvm_npu.sim.streams import Stream

MAC_DONE, W_ARRIVED, IN_ARRIVED, STORE_DONE, SECOND_ARRIVED, RELEASED, IN_GO, W_GO = range(1, 9)
OTHER_W_ARRIVED, OTHER_IN_ARRIVED = 9, 10
"""Semaphores of a TLT. SECOND: a residual, a second operand, biases; RELEASED: layer barrier; GO:
`shared_buffer`; OTHER: the second half of a buffer that several engines fill, whose transfers may
overtake one another."""
ARRIVED = 1
"""Global semaphore: every core adds 1 when it has finished a layer."""
IN_FREE, W_FREE = (2, 3), (4, 5)
"""Semaphores of a TLE, or global ones: `shared_buffer`."""

CORE = Variable("core", 0, 511)
TLT = Variable("tlt", 0, 31)
PENDING_STORES = Variable("pending_stores", 0, 2)
"""Stores of this TLT that it has not waited for yet."""


def wait(number: int, count: Operand = 1) -> Semaphore:
    """Waits for ``count`` of a semaphore of the own TLT."""
    return Semaphore("wait", Level.TLT, number, Affine.of(count))


def wait_store() -> Nodes:
    """MB2 may be overwritten: the last store from it is complete."""
    return (wait(STORE_DONE, PENDING_STORES),)


def stored() -> Nodes:
    return (Assign(PENDING_STORES, ONE),)


def wait_older_store() -> Nodes:
    """The half of MB2 that was stored from first may be overwritten: at most one store is left."""
    older = Affine.of(PENDING_STORES) - 1
    return (If(older, ">", (wait(STORE_DONE), Assign(PENDING_STORES, ONE))),)


def stored_one_more() -> Nodes:
    return (Assign(PENDING_STORES, Affine.of(PENDING_STORES) + 1),)


def barrier(core_count: int) -> Nodes:
    """All stores of all cores are complete before any core goes on."""
    collect = (
        Semaphore("wait", Level.GLOBAL, ARRIVED, Affine.of(core_count)),
        Semaphore("release", Level.GLOBAL, RELEASED),
    )
    return (
        *wait_store(),
        Assign(PENDING_STORES, Affine()),
        Semaphore("signal", Level.GLOBAL, ARRIVED),
        *when(CORE, "==", collect),
        wait(RELEASED),
    )


@dataclass(frozen=True)
class OnChip:
    """Where in its memories a transfer goes: ``offset`` in bytes (elements in MB2), and who gets a
    load: bit masks of TLTs in a TLE and of TLEs, 0 for what the instruction says by itself."""

    offset: Affine = Affine()
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
    address: Affine,
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
    address: Affine,
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


def box_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Affine,
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


def out_registers(
    channels: Operand,
    rows: Operand,
    columns: Operand,
    element_bytes: int,
    address: Operand = 0,
) -> dict[MacRegister, Operand]:
    """The OUT tile, as all MAC instructions see it; ``address`` in elements."""
    return {
        MacRegister.ELEMENT_BYTES: element_bytes,
        MacRegister.OUT_ADDRESS: address,
        MacRegister.OUT_CHANNELS: channels,
        MacRegister.OUT_ROWS: rows,
        MacRegister.OUT_COLUMNS: columns,
    }


MOST_SHIFT, LEAST_SHIFT = 62, -47
"""Beyond these, accumulators of at most 63 bits give the same results as at them."""


def activation(
    out: dict[MacRegister, Operand], shift: int, low: int, high: int, element_bytes: int
) -> Nodes:
    """Requantizes the OUT tile in place and waits for it."""
    smallest, largest = element_limits(element_bytes)
    values: dict[MacRegister, Operand] = {
        **out,
        MacRegister.SHIFT: min(max(shift, LEAST_SHIFT), MOST_SHIFT),
        MacRegister.LOW: min(max(low, smallest), largest),
        MacRegister.HIGH: min(max(high, smallest), largest),
    }
    return (Compute("nmp_activation", None, MAC_DONE, registers(values)), wait(MAC_DONE))
