"""What all NMP programs agree on: semaphore numbers, the frame's variables, common commands."""

from __future__ import annotations

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.nmp.commands import (
    ONE,
    Affine,
    Assign,
    Compute,
    Nodes,
    Operand,
    Semaphore,
    Transfer,
    Variable,
    dma_registers,
    registers,
    when,
)
from tvm_npu.sim.isa.xnmp import DmaRegister, Level, MacRegister, Memory
from tvm_npu.sim.streams import Stream

MAC_DONE, W_ARRIVED, IN_ARRIVED, STORE_DONE, SECOND_ARRIVED, RELEASED = range(1, 7)
"""Semaphores of a TLT. SECOND: a residual, a second operand, biases; RELEASED: layer barrier."""
IN_FREE = 1
"""TLE semaphore: every TLT adds 1 when it no longer needs its IN buffer (MB0)."""
ARRIVED = 1
"""Global semaphore: every core adds 1 when it has finished a layer."""

CORE = Variable("core", 0, 511)
TLT = Variable("tlt", 0, 31)
PENDING_STORES = Variable("pending_stores", 0, 1)
"""Stores of this TLT that it has not waited for yet."""


def wait(number: int, count: Operand = 1) -> Semaphore:
    """Waits for ``count`` of a semaphore of the own TLT."""
    return Semaphore("wait", Level.TLT, number, Affine.of(count))


def free_in() -> Nodes:
    """This TLT no longer needs its IN buffer."""
    return (Semaphore("signal", Level.TLE, IN_FREE),)


def wait_in_free(tlts: int) -> Semaphore:
    return Semaphore("wait", Level.TLE, IN_FREE, Affine.of(tlts))


def wait_store() -> Nodes:
    """MB2 may be overwritten: the last store from it is complete."""
    return (wait(STORE_DONE, PENDING_STORES),)


def stored() -> Nodes:
    return (Assign(PENDING_STORES, ONE),)


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


def run_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Affine,
    semaphore: int,
    byte_count: Operand,
    element_bytes: int,
) -> Transfer:
    """One contiguous run, to or from the start of ``memory``."""
    return segments_transfer(
        mnemonic, stream, memory, address, semaphore, (1, byte_count, 0), element_bytes
    )


def segments_transfer(
    mnemonic: str,
    stream: Stream,
    memory: Memory,
    address: Affine,
    semaphore: int,
    segments: tuple[Operand, Operand, Operand],
    element_bytes: int,
) -> Transfer:
    """``segments`` = (number, bytes of each, bytes from one to the next in DRAM)."""
    values: dict[DmaRegister, Operand] = {
        DmaRegister.ELEMENT_BYTES: element_bytes,
        DmaRegister.SEGMENTS: segments[0],
        DmaRegister.SEGMENT_BYTES: segments[1],
        DmaRegister.SEGMENT_STRIDE: segments[2],
    }
    return Transfer(mnemonic, stream, memory, address, Affine(), semaphore, dma_registers(values))


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
    }
    if fill is not None:
        values[DmaRegister.FILL] = fill
    return Transfer(mnemonic, stream, memory, address, Affine(), semaphore, dma_registers(values))


def out_registers(
    channels: Operand, rows: Operand, columns: Operand, element_bytes: int
) -> dict[MacRegister, Operand]:
    """The OUT tile, as all MAC instructions see it."""
    return {
        MacRegister.ELEMENT_BYTES: element_bytes,
        MacRegister.OUT_ADDRESS: 0,
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
