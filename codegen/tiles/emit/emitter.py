"""From commands to instructions: registers are set when they change, transfers become tload and
tstore.

What a transfer becomes hangs on what moves it (`emitters`); here a mover does.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.format import DEBUG, WORD_BYTES
from tvm_npu.codegen.tiles.emit.commands import OPERANDS, Command, Transfer, Work
from tvm_npu.codegen.tiles.emit.registers import Registers
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TILE_ISA, TileRegister
from tvm_npu.sim.tiles.machine import TileMachine


class Code:
    """Instruction words with their debug map; knows what the configuration registers hold."""

    def __init__(self) -> None:
        self._words = array("L")
        self._layers = array("l")
        self._streams = array("l")
        self._registers = Registers()
        self.layer = -1
        """Of the layer table; -1: the program's frame."""

    @property
    def position(self) -> int:
        """Byte offset of the next word."""
        return WORD_BYTES * len(self._words)

    def _append(self, word: int, carries: Stream = Stream.OTHER) -> None:
        self._words.append(word)
        self._layers.append(self.layer)
        self._streams.append(carries)

    def set(self, registers: Mapping[TileRegister, int]) -> None:
        """Instructions that bring registers to these values, none for those that hold them.

        Raises EmitError for a value that is no 32-bit number."""
        for word in self._registers.set(registers):
            self._append(word.encode())

    def emit(self, mnemonic: str, operands: Mapping[str, int], carries: Stream) -> None:
        self._append(TILE_ISA.encode(mnemonic, **operands), carries)

    def work(self, work: Work) -> None:
        self.set({TileRegister.OPERANDS: int(OPERANDS), **work.registers})
        self.emit(work.mnemonic, {} if work.sub is None else {"sub": work.sub}, Stream.OTHER)

    def words(self) -> NDArray[np.uint32]:
        return np.array(self._words, np.uint32)

    def debug(self) -> NDArray[np.void]:
        table = np.zeros(len(self._words), DEBUG)
        table["layer"], table["stream"] = self._layers, self._streams
        return table


class Emitter(Protocol):
    """Makes instructions of commands in program order. What it emits must have the effect of
    executing one command after the other."""

    code: Code

    def emit(self, commands: Iterable[Command]) -> None: ...

    def finish(self) -> None:
        """Everything that ends the program."""


class MoverEmitter:
    """For machines whose mover and compute engine keep to program order where they meet."""

    def __init__(self, machine: TileMachine, constants: Constants) -> None:
        self.code = Code()
        self.code.set(fixed_registers(machine))

    def emit(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Work):
                self.code.work(command)
            else:
                self._move(command)

    def _move(self, transfer: Transfer) -> None:
        runs = transfer.runs
        self.code.set(transfer_registers(transfer))
        operands = {"mem": transfer.memory, "base": runs.segment, "stream": transfer.stream}
        self.code.emit("tload" if transfer.to_chip else "tstore", operands, transfer.stream)

    def finish(self) -> None:
        self.code.layer = -1
        self.code.emit("tend", {}, Stream.OTHER)


def transfer_registers(transfer: Transfer) -> dict[TileRegister, int]:
    """What a mover is told of a transfer."""
    runs = transfer.runs
    registers = {
        TileRegister.ADDRESS: runs.address,
        TileRegister.CHIP_OFFSET: transfer.chip_offset,
        TileRegister.RUN_BYTES: runs.run_bytes,
        TileRegister.COUNT_INNER: runs.inner,
        TileRegister.COUNT_OUTER: runs.outer,
    }
    if runs.inner > 1:
        registers[TileRegister.STRIDE_INNER] = runs.stride_inner
    if runs.outer > 1:
        registers[TileRegister.STRIDE_OUTER] = runs.stride_outer
    return registers


def fixed_registers(machine: TileMachine) -> dict[TileRegister, int]:
    """Registers that keep one value through a whole program: operands lie on chip, packed."""
    registers = {TileRegister.OPERANDS: int(OPERANDS)}
    if machine.core is not None:
        for register in (
            TileRegister.IN_ROW_BYTES, TileRegister.IN_CHANNEL_BYTES, TileRegister.W_FILTER_BYTES,
            TileRegister.OUT_ROW_BYTES, TileRegister.OUT_CHANNEL_BYTES,
        ):  # fmt: skip
            registers[register] = 0
    return registers
