"""The last instructions of a program on one core, and what each of them changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.slices import INSTRUCTIONS, SLICE_INSTRUCTIONS
from tvm_npu.sim.isa.builder import ABI_NAMES
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.nmp.state import State
from tvm_npu.sim.nmp.xnmp import NMP_ISA

_OFFSET = "imm(rs1)"
_LOW32 = 0xFFFF_FFFF


@dataclass(frozen=True)
class Step:
    """An instruction at ``pc``, the address of its operand in memory where it has one, and
    registers that it changed with their new values, unsigned."""

    number: int
    pc: int
    instruction: str
    address: int | None
    changed: dict[str, int]

    def __str__(self) -> str:
        text = f"{self.number:>11,}  {self.pc:#010x}  {self.instruction:32}"
        if self.address is not None:
            text += f"  [{self.address:#010x}]"
        text += "".join(f"  {name} = {value:#010x}" for name, value in self.changed.items())
        return text.rstrip()


class Trace:
    """A `Watch` of core 0: runs as ever up to instruction ``first``, and one by one from there."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.steps: list[Step] = []
        self._registers: NDArray[np.int32] = np.zeros(32, np.int32)
        self._pc = self._number = 0

    def before(self, state: State) -> None:
        self._number = int(state.counters[0])
        left = self.first - self._number
        state.work[INSTRUCTIONS] = min(left, SLICE_INSTRUCTIONS) if left > 0 else 1
        self._registers, self._pc = state.regs[0].copy(), int(state.pc[0])

    def after(self, state: State) -> None:
        number = int(state.counters[0])
        if number <= self.first or number == self._number:
            return  # not there yet, or a slice that transfers took up
        word = int(state.words[(self._pc - int(state.code_base[0])) >> 2])
        changed = {
            ABI_NAMES[k]: int(state.regs[0, k]) & _LOW32
            for k in np.flatnonzero(state.regs[0] != self._registers)
        }
        text = disassemble(word, isa=NMP_ISA)
        self.steps.append(Step(number, self._pc, text, self._address(word), changed))

    def _address(self, word: int) -> int | None:
        """Where a load or store goes."""
        found = NMP_ISA.decode(word)
        if found is None or not found[0].shared or _OFFSET not in found[0].syntax:
            return None
        return (int(self._registers[found[1]["rs1"]]) + found[1]["imm"]) & _LOW32
