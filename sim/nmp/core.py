"""What a core does beyond arithmetic: operand access, traps, loads and stores, exit.

State functions take (state, costs, core, row): ``row`` is the decoded instruction, the program
counter already points at the next one. The result is GO, or STOP when the core traps, blocks or
exits.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.slices import ALLOWED, spends
from tvm_npu.sim.nmp.columns import BIAS_WINDOW, HALTED, MB0_WINDOW, MB1_WINDOW, TrapSlot
from tvm_npu.sim.nmp.content import note_private
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.environment import (
    BAD_DESCRIPTOR,
    STANDARD_ERROR,
    STANDARD_OUTPUT,
    note_stored,
    put,
    range_met,
)
from tvm_npu.sim.nmp.scalar import LOW32
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code

GO, STOP = 0, 1

RD, RS1, RS2, IMM = 1, 2, 3, 4

CODE, CORE, PC, MEMORY = TrapSlot.CODE, TrapSlot.CORE, TrapSlot.PC, TrapSlot.MEMORY
DETAIL_A, DETAIL_B, DETAIL_C = TrapSlot.A, TrapSlot.B, TrapSlot.C

EXIT_CALL, WRITE_CALL = 93, 64
SP, A0, A1, A2, A7 = 2, 10, 11, 12, 17


@device
def trap(s: State, core: int, code: int, a: int, b: int, c: int, memory: int) -> int:
    """Records the first trap; the pc is that of the trapping instruction."""
    record = s.trap
    if record[CODE] == 0:
        record[CODE], record[CORE], record[PC] = code, core, s.pc[core] - 4
        record[DETAIL_A], record[DETAIL_B], record[DETAIL_C] = a, b, c
        record[MEMORY] = memory
    return STOP


@device
def spend(s: State, core: int, units: int) -> bool:
    """Counts work before it is done; False, with a trap, when the run may not do it."""
    if spends(s.work, units):
        return True
    trap(s, core, Code.BUDGET, s.work[ALLOWED], 0, 0, 0)
    return False


@device
def rs1(s: State, core: int, row: int) -> int:
    return np.int64(s.regs[core, s.decoded[row, RS1]])


@device
def rs2(s: State, core: int, row: int) -> int:
    return np.int64(s.regs[core, s.decoded[row, RS2]])


@device
def imm(s: State, row: int) -> int:
    return np.int64(s.decoded[row, IMM])


@device
def write(s: State, core: int, row: int, value: int) -> int:
    rd = s.decoded[row, RD]
    if rd != 0:
        s.regs[core, rd] = np.int32(value & LOW32)
    return GO


@device
def locate(s: State, m: Costs, core: int, address: int, size: int) -> tuple[int, int]:
    """(memory, offset): 0 DRAM, 1 MB0, 2 MB1, 3 bias buffer; memory -1 after a trap."""
    if address & (size - 1):
        trap(s, core, Code.MISALIGNED_ACCESS, address, size, 0, 0)
        return -1, 0
    if m.dram_base <= address and address + size <= m.dram_base + m.dram_bytes:
        if address < s.stack_guard[1] and s.stack_guard[0] < address + size:
            trap(s, core, Code.STACK, address, size, s.regs[core, SP] & LOW32, 0)
            return -1, 0
        return 0, address - m.dram_base
    if MB0_WINDOW <= address and address + size <= MB0_WINDOW + m.mb0_bytes:
        return 1, address - MB0_WINDOW
    if MB1_WINDOW <= address and address + size <= MB1_WINDOW + m.mb1_bytes:
        return 2, address - MB1_WINDOW
    if BIAS_WINDOW <= address and address + size <= BIAS_WINDOW + m.bias_bytes:
        return 3, address - BIAS_WINDOW
    trap(s, core, Code.SCALAR_ACCESS, address, size, 0, 0)
    return -1, 0


@device
def may_load(s: State, core: int, begin: int, end: int) -> bool:
    """False, with a trap, when bytes of DRAM are not readable."""
    found = range_met(s.unreadable, begin, end)
    if found >= 0:
        trap(s, core, Code.UNREADABLE, begin, s.unreadable[found, 0], s.unreadable[found, 1], 0)
    return found < 0


@device
def load(s: State, m: Costs, core: int, row: int, size: int, signed: bool) -> int:
    address = (rs1(s, core, row) + imm(s, row)) & LOW32
    memory, offset = locate(s, m, core, address, size)
    if memory < 0 or (memory == 0 and not may_load(s, core, address, address + size)):
        return STOP
    value = np.int64(0)
    for k in range(size):
        if memory == 0:
            byte = np.int64(s.dram[offset + k])
        elif memory == 1:
            byte = np.int64(s.mb0[core, offset + k])
        elif memory == 2:
            byte = np.int64(s.mb1[core, offset + k])
        else:
            byte = np.int64(s.bias[core, offset + k])
        value |= (byte & 0xFF) << (8 * k)
    if signed and value >> (8 * size - 1):
        value -= np.int64(1) << (8 * size)
    if memory == 0:
        s.time[core] += m.scalar_memory
    return write(s, core, row, value)


@device
def may_store(s: State, core: int, begin: int, end: int) -> bool:
    """False, with a trap, when bytes of DRAM are read-only."""
    found = range_met(s.read_only, begin, end)
    if found >= 0:
        trap(s, core, Code.READ_ONLY, begin, s.read_only[found, 0], s.read_only[found, 1], 0)
    return found < 0


@device
def store(s: State, m: Costs, core: int, row: int, size: int) -> int:
    address = (rs1(s, core, row) + imm(s, row)) & LOW32
    memory, offset = locate(s, m, core, address, size)
    if memory < 0:
        return STOP
    if memory == 0:
        if not may_store(s, core, address, address + size) or not spend(s, core, size):
            return STOP
        note_stored(s, address, address + size)
        s.stored[0], s.stored[1], s.stored[2] = core, offset, offset + size
    value = rs2(s, core, row)
    for k in range(size):
        byte = (value >> (8 * k)) & 0xFF
        if memory == 0:
            s.dram[offset + k] = np.uint8(byte)
        elif memory == 1:
            s.mb0[core, offset + k] = np.int8(byte)
        elif memory == 2:
            s.mb1[core, offset + k] = np.int8(byte)
        else:
            s.bias[core, offset + k] = np.int8(byte)
    if memory == 0:
        s.time[core] += m.scalar_memory
    elif memory == 1:
        note_private(s, m, core)
    return GO


@device
def rv_lb(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 1, True)


@device
def rv_lh(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 2, True)


@device
def rv_lw(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 4, True)


@device
def rv_lbu(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 1, False)


@device
def rv_lhu(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 2, False)


@device
def rv_sb(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 1)


@device
def rv_sh(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 2)


@device
def rv_sw(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 4)


@device
def rv_fence(s: State, m: Costs, core: int, row: int) -> int:
    return GO


@device
def write_console(s: State, m: Costs, core: int) -> int:
    """write(a0, a1, a2) of other systems: a2 bytes of DRAM at a1 to the console. None lie anywhere:
    a1 is not looked at then."""
    address, size = s.regs[core, A1] & LOW32, s.regs[core, A2] & LOW32
    if s.regs[core, A0] != STANDARD_OUTPUT and s.regs[core, A0] != STANDARD_ERROR:
        s.regs[core, A0] = BAD_DESCRIPTOR
        return GO
    if size:
        if address < m.dram_base or address + size > m.dram_base + m.dram_bytes:
            return trap(s, core, Code.SCALAR_ACCESS, address, size, 0, 0)
        if not may_load(s, core, address, address + size):
            return STOP
        if not spend(s, core, size):
            return STOP
        put(s, address - m.dram_base, size)
    s.regs[core, A0] = np.int32(size)
    return GO


@device
def rv_ecall(s: State, m: Costs, core: int, row: int) -> int:
    call = np.int64(s.regs[core, A7])
    if call == WRITE_CALL and len(s.console) > 0:
        return write_console(s, m, core)
    if call != EXIT_CALL:
        return trap(s, core, Code.UNKNOWN_ECALL, call, 0, 0, 0)
    if s.mac_sem[core] >= 0:
        s.time[core] = max(s.time[core], s.mac_done[core])
    s.exit_code[core] = s.regs[core, A0]
    s.status[core] = HALTED
    return STOP


@device
def rv_ebreak(s: State, m: Costs, core: int, row: int) -> int:
    return trap(s, core, Code.BREAKPOINT, 0, 0, 0, 0)
