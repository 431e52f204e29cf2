"""What NMP programs mean, in plain Python integers: written from docs/isa-nmp.md alone.

Every instruction, transfers and operations of the MAC unit included, is complete before the next
one of its core begins; cores take turns where they wait. A program that waits as it must computes
the same on the simulator. Of an instruction that cannot be executed all faults are named: the
document does not say which one the machine finds first.
"""

from __future__ import annotations

from tests.sim.nmp.interpreted_core import DOCUMENT, Core, Fault, Stop
from tests.sim.nmp.interpreted_dma import Transfers
from tests.sim.nmp.interpreted_mac import MacUnit
from tests.sim.nmp.interpreted_order import NEVER
from tests.sim.nmp.rv32im_model import BRANCH, IMMEDIATE, LOAD, MASK, REGISTER, STORE, signed

_CONTROL = ("nmp_mcfg", "nmp_dcfg", "nmp_signal", "nmp_wait", "nmp_release")
_TRANSFERS = ("nmp_load", "nmp_mload", "nmp_store", "nmp_forward")
WINDOWS = ((0, 0x1000_0000), (1, 0x1800_0000), (3, 0x2000_0000))


class Interpreter(MacUnit, Transfers):
    budget = 0

    def run(self, budget: int) -> list[Stop] | None:
        """Where cores stop if they do not end, waiting ones where none else stops; None: not
        within ``budget`` instructions."""
        self.budget = budget
        stops: dict[int, Stop] = {}
        while True:
            before = self.budget
            for core in self.cores:
                if core.number not in stops and not core.done:
                    found = self._go(core)
                    if found is not None:
                        stops[core.number] = found
            if self.budget < 0:
                return None
            if self.budget == before:
                break
        if stops:
            return list(stops.values())
        waiting = [core for core in self.cores if not core.done]
        return [Stop(core.number, core.pc, frozenset({"DEADLOCK"})) for core in waiting]

    def _go(self, core: Core) -> Stop | None:
        """Until the core waits or ends (None), or traps."""
        while self.budget >= 0 and not core.done:
            here = core.pc
            try:
                if not self._step(core):
                    return None
            except Fault as fault:
                return Stop(core.number, here, fault.codes)
            self.budget -= 1
        return None

    def _step(self, core: Core) -> bool:
        row, rest = divmod(core.pc - self.base, 4)
        if rest or not 0 <= row < len(self.words):
            raise Fault("PC_OUTSIDE_CODE")
        found = DOCUMENT.decode(self.words[row])
        if found is None:
            raise Fault("ILLEGAL_INSTRUCTION")
        mnemonic, operands = found
        if mnemonic.startswith("nmp_"):
            if operands.get("sem", 0) >= self.machine.dme.semaphores:
                raise Fault("SEMAPHORE")
            if not self._own(core, mnemonic, operands):
                return False
            core.pc += 4
        else:
            self._scalar(core, mnemonic, **operands)
            cycles = self.machine.cores
            self.order.step(max(cycles.instruction_cycles, cycles.scalar_memory_cycles
                                if mnemonic in (*LOAD, *STORE) else 0))  # fmt: skip
        return True

    def _own(self, core: Core, mnemonic: str, operands: dict[str, int]) -> bool:
        """An instruction that RV32IM has not; False: the core waits."""
        self.touched = []
        order, sem = self.order, operands.get("sem", 0)
        try:
            if getattr(self, mnemonic)(core, **operands) is False:
                return False
        except Fault:
            # The machine may see first what the operation must not meet, wherever that lies.
            if len(self.cores) == 1 and not mnemonic.startswith((*_CONTROL, *_TRANSFERS)):
                certain = set(order.certain)
                everywhere = [(memory, 0, NEVER) for memory in range(4)]
                order.operate(core.pc, sem, self.touched or everywhere)
                order.certain = certain
            raise
        order.step(self.machine.cores.instruction_cycles)
        if len(self.cores) > 1:
            return True
        if mnemonic in ("nmp_signal", "nmp_release"):
            order.signal(sem, signed(core.x[operands["rs1"]]))
            order.step(self.machine.cores.semaphore_cycles)
        elif mnemonic == "nmp_wait":
            order.wait(sem, signed(core.x[operands["rs1"]]))
        elif mnemonic.startswith(_TRANSFERS):
            order.move(core.pc, sem, self.touched)
        elif not mnemonic.startswith(_CONTROL):
            order.operate(core.pc, sem, self.touched)
        return True

    def _scalar(
        self, core: Core, name: str, rd: int = 0, rs1: int = 0, rs2: int = 0, imm: int = 0,
        shamt: int = 0,
    ) -> None:  # fmt: skip
        x, value, following = core.x, None, core.pc + 4
        a, b = x[rs1], x[rs2]
        if name in REGISTER:
            value = REGISTER[name](a, b)
        elif name in IMMEDIATE:
            value = IMMEDIATE[name](a, shamt if name in ("slli", "srli", "srai") else imm)
        elif name in BRANCH:
            following = core.pc + imm if BRANCH[name](a, b) else following
        elif name in LOAD:
            size, extends = LOAD[name]
            memory, at = self._place(core, (a + imm) & MASK, size)
            value = int.from_bytes(memory[at : at + size], "little", signed=extends)
        elif name in STORE:
            size = STORE[name]
            memory, at = self._place(core, (a + imm) & MASK, size)
            if memory is self.dram and self.meets_code(at, at + size):
                raise Fault("READ_ONLY")
            memory[at : at + size] = (b % (1 << 8 * size)).to_bytes(size, "little")
        elif name in ("lui", "auipc"):
            value = (imm << 12) + (core.pc if name == "auipc" else 0)
        elif name in ("jal", "jalr"):
            value, following = following, core.pc + imm if name == "jal" else (a + imm) & ~1
        elif name == "ecall":
            if x[17] != 93:
                raise Fault("UNKNOWN_ECALL")
            core.done = True
        elif name == "ebreak":
            raise Fault("BREAKPOINT")
        if value is not None and rd:
            x[rd] = value & MASK
        core.pc = following & MASK

    def _place(self, core: Core, address: int, size: int) -> tuple[bytearray, int]:
        if address % size:
            raise Fault("MISALIGNED_ACCESS")
        for memory, begin in (
            (self.dram, self.machine.dram.base_address),
            *((core.memory[number], at) for number, at in WINDOWS),
        ):
            if begin <= address and address + size <= begin + len(memory):
                return memory, address - begin
        raise Fault("SCALAR_ACCESS")

    def _level(self, core: Core, level: int, count: int) -> list[int]:
        if level > 2 or count < 0:
            raise Fault("SEMAPHORE")
        return (core.semaphores, self.shared[core.tle], self.everyone)[level]

    def nmp_signal(self, core: Core, level: int, sem: int, rs1: int) -> None:
        count = signed(core.x[rs1])
        self._level(core, level, count)[sem] += count

    def nmp_wait(self, core: Core, level: int, sem: int, rs1: int) -> bool:
        count = signed(core.x[rs1])
        found = self._level(core, level, count)
        if found[sem] < count:
            return False
        found[sem] -= count
        return True

    def nmp_release(self, core: Core, level: int, sem: int, rs1: int) -> None:
        count = signed(core.x[rs1])
        self._level(core, level or 3, count)
        for other in self.cores:
            if level == 2 or other.tle == core.tle:
                other.semaphores[sem] += count
