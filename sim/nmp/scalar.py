"""RV32IM: one small semantic function per instruction.

Every function takes (state, costs, core, row): ``row`` is the decoded instruction. The program
counter already points at the next instruction. The result is 0, or STOP when the core traps,
blocks or exits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tvm_npu.sim.nmp.state import (
    BIAS_WINDOW,
    HALTED,
    MB0_WINDOW,
    MB1_WINDOW,
    Costs,
    State,
    TrapSlot,
)
from tvm_npu.sim.nmp.traps import TrapCode

GO, STOP = 0, 1

RD, RS1, RS2, IMM = 1, 2, 3, 4
LOW32 = 0xFFFF_FFFF

_SCALAR_ACCESS = int(TrapCode.SCALAR_ACCESS)
_MISALIGNED = int(TrapCode.MISALIGNED_ACCESS)
_BREAKPOINT = int(TrapCode.BREAKPOINT)
_UNKNOWN_ECALL = int(TrapCode.UNKNOWN_ECALL)
EXIT_CALL = 93


@njit(inline="always")
def trap(s: State, core: int, code: int, a: int, b: int, c: int, memory: int) -> int:
    """Records the first trap; the pc is that of the trapping instruction."""
    if s.trap[TrapSlot.CODE] == 0:
        s.trap[TrapSlot.CODE] = code
        s.trap[TrapSlot.CORE] = core
        s.trap[TrapSlot.PC] = s.pc[core] - 4
        s.trap[TrapSlot.A] = a
        s.trap[TrapSlot.B] = b
        s.trap[TrapSlot.C] = c
        s.trap[TrapSlot.MEMORY] = memory
    return STOP


@njit(inline="always")
def rs1(s: State, core: int, row: int) -> int:
    return np.int64(s.regs[core, s.decoded[row, RS1]])


@njit(inline="always")
def rs2(s: State, core: int, row: int) -> int:
    return np.int64(s.regs[core, s.decoded[row, RS2]])


@njit(inline="always")
def imm(s: State, row: int) -> int:
    return np.int64(s.decoded[row, IMM])


@njit(inline="always")
def write(s: State, core: int, row: int, value: int) -> int:
    rd = s.decoded[row, RD]
    if rd != 0:
        s.regs[core, rd] = np.int32(value & LOW32)
    return GO


@njit(inline="always")
def jump(s: State, core: int, row: int) -> int:
    s.pc[core] = (s.pc[core] - 4 + imm(s, row)) & LOW32
    return GO


@njit(inline="always")
def branch(s: State, core: int, row: int, taken: bool) -> int:
    if taken:
        jump(s, core, row)
    return GO


@njit(inline="always")
def rv_lui(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, imm(s, row) << 12)


@njit(inline="always")
def rv_auipc(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, s.pc[core] - 4 + (imm(s, row) << 12))


@njit(inline="always")
def rv_addi(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) + imm(s, row))


@njit(inline="always")
def rv_slti(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, 1 if rs1(s, core, row) < imm(s, row) else 0)


@njit(inline="always")
def rv_sltiu(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, 1 if (rs1(s, core, row) & LOW32) < (imm(s, row) & LOW32) else 0)


@njit(inline="always")
def rv_xori(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) ^ imm(s, row))


@njit(inline="always")
def rv_ori(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) | imm(s, row))


@njit(inline="always")
def rv_andi(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) & imm(s, row))


@njit(inline="always")
def rv_slli(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) << imm(s, row))


@njit(inline="always")
def rv_srli(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, (rs1(s, core, row) & LOW32) >> imm(s, row))


@njit(inline="always")
def rv_srai(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) >> imm(s, row))


@njit(inline="always")
def rv_add(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) + rs2(s, core, row))


@njit(inline="always")
def rv_sub(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) - rs2(s, core, row))


@njit(inline="always")
def rv_sll(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) << (rs2(s, core, row) & 31))


@njit(inline="always")
def rv_slt(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, 1 if rs1(s, core, row) < rs2(s, core, row) else 0)


@njit(inline="always")
def rv_sltu(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, 1 if (rs1(s, core, row) & LOW32) < (rs2(s, core, row) & LOW32) else 0)


@njit(inline="always")
def rv_xor(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) ^ rs2(s, core, row))


@njit(inline="always")
def rv_srl(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, (rs1(s, core, row) & LOW32) >> (rs2(s, core, row) & 31))


@njit(inline="always")
def rv_sra(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) >> (rs2(s, core, row) & 31))


@njit(inline="always")
def rv_or(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) | rs2(s, core, row))


@njit(inline="always")
def rv_and(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) & rs2(s, core, row))


@njit(inline="always")
def rv_mul(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, rs1(s, core, row) * rs2(s, core, row))


@njit(inline="always")
def rv_mulh(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, (rs1(s, core, row) * rs2(s, core, row)) >> 32)


@njit(inline="always")
def rv_mulhsu(s: State, m: Costs, core: int, row: int) -> int:
    return write(s, core, row, (rs1(s, core, row) * (rs2(s, core, row) & LOW32)) >> 32)


@njit(inline="always")
def rv_mulhu(s: State, m: Costs, core: int, row: int) -> int:
    a = np.uint64(rs1(s, core, row) & LOW32)
    b = np.uint64(rs2(s, core, row) & LOW32)
    return write(s, core, row, np.int64((a * b) >> np.uint64(32)))


@njit(inline="always")
def rv_div(s: State, m: Costs, core: int, row: int) -> int:
    a, b = rs1(s, core, row), rs2(s, core, row)
    if b == 0:
        return write(s, core, row, -1)
    quotient = abs(a) // abs(b)
    return write(s, core, row, quotient if (a < 0) == (b < 0) else -quotient)


@njit(inline="always")
def rv_divu(s: State, m: Costs, core: int, row: int) -> int:
    a, b = rs1(s, core, row) & LOW32, rs2(s, core, row) & LOW32
    return write(s, core, row, LOW32 if b == 0 else a // b)


@njit(inline="always")
def rv_rem(s: State, m: Costs, core: int, row: int) -> int:
    a, b = rs1(s, core, row), rs2(s, core, row)
    if b == 0:
        return write(s, core, row, a)
    remainder = abs(a) % abs(b)
    return write(s, core, row, -remainder if a < 0 else remainder)


@njit(inline="always")
def rv_remu(s: State, m: Costs, core: int, row: int) -> int:
    a, b = rs1(s, core, row) & LOW32, rs2(s, core, row) & LOW32
    return write(s, core, row, a if b == 0 else a % b)


@njit(inline="always")
def rv_jal(s: State, m: Costs, core: int, row: int) -> int:
    link = s.pc[core]
    jump(s, core, row)
    return write(s, core, row, link)


@njit(inline="always")
def rv_jalr(s: State, m: Costs, core: int, row: int) -> int:
    link = s.pc[core]
    s.pc[core] = (rs1(s, core, row) + imm(s, row)) & LOW32 & ~1
    return write(s, core, row, link)


@njit(inline="always")
def rv_beq(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, rs1(s, core, row) == rs2(s, core, row))


@njit(inline="always")
def rv_bne(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, rs1(s, core, row) != rs2(s, core, row))


@njit(inline="always")
def rv_blt(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, rs1(s, core, row) < rs2(s, core, row))


@njit(inline="always")
def rv_bge(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, rs1(s, core, row) >= rs2(s, core, row))


@njit(inline="always")
def rv_bltu(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, (rs1(s, core, row) & LOW32) < (rs2(s, core, row) & LOW32))


@njit(inline="always")
def rv_bgeu(s: State, m: Costs, core: int, row: int) -> int:
    return branch(s, core, row, (rs1(s, core, row) & LOW32) >= (rs2(s, core, row) & LOW32))


@njit
def locate(s: State, m: Costs, core: int, address: int, size: int) -> tuple[int, int]:
    """(memory, offset): 0 DRAM, 1 MB0, 2 MB1, 3 bias buffer; memory -1 after a trap."""
    if address & (size - 1):
        trap(s, core, _MISALIGNED, address, size, 0, 0)
        return -1, 0
    if m.dram_base <= address and address + size <= m.dram_base + m.dram_bytes:
        return 0, address - m.dram_base
    if MB0_WINDOW <= address and address + size <= MB0_WINDOW + m.mb0_bytes:
        return 1, address - MB0_WINDOW
    if MB1_WINDOW <= address and address + size <= MB1_WINDOW + m.mb1_bytes:
        return 2, address - MB1_WINDOW
    if BIAS_WINDOW <= address and address + size <= BIAS_WINDOW + m.bias_bytes:
        return 3, address - BIAS_WINDOW
    trap(s, core, _SCALAR_ACCESS, address, size, 0, 0)
    return -1, 0


@njit
def load(s: State, m: Costs, core: int, row: int, size: int, signed: bool) -> int:
    address = (rs1(s, core, row) + imm(s, row)) & LOW32
    memory, offset = locate(s, m, core, address, size)
    if memory < 0:
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


@njit
def store(s: State, m: Costs, core: int, row: int, size: int) -> int:
    address = (rs1(s, core, row) + imm(s, row)) & LOW32
    memory, offset = locate(s, m, core, address, size)
    if memory < 0:
        return STOP
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
        s.tag_counter[0] += 1
        s.mb0_tag[core] = s.tag_counter[0]
    return GO


@njit(inline="always")
def rv_lb(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 1, True)


@njit(inline="always")
def rv_lh(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 2, True)


@njit(inline="always")
def rv_lw(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 4, True)


@njit(inline="always")
def rv_lbu(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 1, False)


@njit(inline="always")
def rv_lhu(s: State, m: Costs, core: int, row: int) -> int:
    return load(s, m, core, row, 2, False)


@njit(inline="always")
def rv_sb(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 1)


@njit(inline="always")
def rv_sh(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 2)


@njit(inline="always")
def rv_sw(s: State, m: Costs, core: int, row: int) -> int:
    return store(s, m, core, row, 4)


@njit(inline="always")
def rv_fence(s: State, m: Costs, core: int, row: int) -> int:
    return GO


@njit(inline="always")
def rv_ecall(s: State, m: Costs, core: int, row: int) -> int:
    if s.regs[core, 17] != EXIT_CALL:
        return trap(s, core, _UNKNOWN_ECALL, np.int64(s.regs[core, 17]), 0, 0, 0)
    s.exit_code[core] = s.regs[core, 10]
    s.status[core] = HALTED
    return STOP


@njit(inline="always")
def rv_ebreak(s: State, m: Costs, core: int, row: int) -> int:
    return trap(s, core, _BREAKPOINT, 0, 0, 0, 0)
