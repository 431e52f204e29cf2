"""Simulators in plain Python, for kinds whose programs are instructions in a row without branches.

A kind brings an engine: an object with a method for every instruction of its table, called like
the instruction, which takes the operands by name, works on bytes, and tells a `Tally` what that
cost. Such a simulator is slow (some ten thousand instructions a second) and short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.dram import check_room, write_bytes
from tvm_npu.sim.events import EventSink
from tvm_npu.sim.image import ProgramImage
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.isa.table import Isa
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.tally import Tally
from tvm_npu.sim.traps import Place, Trap
from tvm_npu.sim.watch import Store, Watch

EngineFactory = Callable[[NDArray[np.uint8], ProgramImage, Tally], Any]
"""Makes an engine of the program's DRAM (from the machine's base address on), the program, and
where to count."""


class PlainTrap(IntEnum):
    """Why a plain simulator stops."""

    ILLEGAL_INSTRUCTION = 1
    FAULT = 2
    NO_END = 3


class Fault(Exception):
    """What an engine raises when its machine cannot do what an instruction says."""


def tile_view(
    memory: NDArray[np.uint8], name: str, begin: int, shape: tuple[int, ...], dtype: Any
) -> NDArray[Any]:
    """A packed tile of ``memory`` as it lies there, from byte ``begin`` on. Raises Fault, before
    anything is touched, when not all of it lies inside. Counts are Python's integers, which do not
    wrap; compiled simulators have `sim.compiled.spans`."""
    kind, size = np.dtype(dtype), np.dtype(dtype).itemsize
    for count in shape:
        size *= max(int(count), 0)
    if begin < 0 or size == 0 or begin + size > len(memory):
        raise Fault(f"bytes {begin} to {begin + size} of {name}, which has {len(memory)}")
    if begin % kind.itemsize:
        raise Fault(f"byte {begin} of {name} is no multiple of {kind.itemsize}")
    return memory[begin : begin + size].view(kind).reshape(shape)


class PlainSimulator:
    """`kinds.Simulator`. ``end`` is the mnemonic of the instruction that ends a program."""

    def __init__(
        self,
        image: ProgramImage,
        machine: MachineDescription,
        isa: Isa,
        end: str,
        make_engine: EngineFactory,
    ) -> None:
        self._image, self._machine, self._isa, self._end = image, machine, isa, end
        self._make_engine = make_engine
        self._element_bytes = ELEMENT_BYTES[image.of_one_precision()]
        size = image.end_address - machine.dram.base_address
        check_room(machine, size)
        self.dram = np.zeros(size, np.uint8)

    def write(self, address: int, data: NDArray[Any]) -> None:
        write_bytes(self.dram, self._machine.dram.base_address, address, data)

    def run(
        self,
        *,
        timing: bool = True,
        events: EventSink | None = None,
        watch: Watch | None = None,
    ) -> RunStatistics:
        """Executes the program from its first word to its end. Raises Trap. ``watch`` sees the
        instructions that tell the tally of bytes over the link ``stored``."""
        tally = Tally(self._machine, self._image.layer_names, self._image.code.layer_of)
        engine = self._make_engine(self.dram, self._image, tally)
        for row, mnemonic, operands in self._instructions():
            if mnemonic == self._end:
                if events is not None:
                    events.record(tally.events(self._names()))
                return tally.statistics(self._element_bytes, timing)
            tally.row, tally.layer = row, int(self._image.code.layer_of[row])
            try:
                getattr(engine, mnemonic)(**operands)
            except Fault as fault:
                raise Trap(PlainTrap.FAULT, self._place(row), str(fault)) from None
            if watch is not None and tally.take_stored():
                layer = tally.layer if tally.layer >= 0 else None
                watch.stored([Store(self._place(row), layer, 0, len(self.dram))])
        last = self._place(len(self._image.code.words) - 1)
        raise Trap(PlainTrap.NO_END, last, f"the code ends without {self._end}")

    def _names(self) -> list[str]:
        found = (self._isa.decode(word) for word in self._image.code.words.tolist())
        return ["" if one is None else one[0].mnemonic for one in found]

    def _instructions(self) -> Iterator[tuple[int, str, dict[str, int]]]:
        for row, word in enumerate(self._image.code.words.tolist()):
            found = self._isa.decode(word)
            if found is None:
                illegal = f"illegal instruction {word:#010x}"
                raise Trap(PlainTrap.ILLEGAL_INSTRUCTION, self._place(row), illegal)
            yield row, found[0].mnemonic, found[1]

    def _place(self, row: int) -> Place:
        code = self._image.code
        layer = int(code.layer_of[row])
        return Place(
            position=f"instruction {row}",
            index=row,
            instruction=disassemble(int(code.words[row]), self._isa),
            layer=self._image.layer_names[layer] if layer >= 0 else "",
        )
