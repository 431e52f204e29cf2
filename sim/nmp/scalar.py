"""RV32IM: one small semantic function per instruction.

Arithmetic, branches and jumps are pure functions of (a, b, imm, pc): a and b are rs1 and rs2,
sign-extended, pc is the instruction's own address; only the low 32 bits of a value count.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device

LOW32 = 0xFFFF_FFFF


@device
def rv_lui(a: int, b: int, imm: int, pc: int) -> int:
    return imm << 12


@device
def rv_auipc(a: int, b: int, imm: int, pc: int) -> int:
    return pc + (imm << 12)


@device
def rv_addi(a: int, b: int, imm: int, pc: int) -> int:
    return a + imm


@device
def rv_slti(a: int, b: int, imm: int, pc: int) -> int:
    return 1 if a < imm else 0


@device
def rv_sltiu(a: int, b: int, imm: int, pc: int) -> int:
    return 1 if (a & LOW32) < (imm & LOW32) else 0


@device
def rv_xori(a: int, b: int, imm: int, pc: int) -> int:
    return a ^ imm


@device
def rv_ori(a: int, b: int, imm: int, pc: int) -> int:
    return a | imm


@device
def rv_andi(a: int, b: int, imm: int, pc: int) -> int:
    return a & imm


@device
def rv_slli(a: int, b: int, imm: int, pc: int) -> int:
    return a << imm


@device
def rv_srli(a: int, b: int, imm: int, pc: int) -> int:
    return (a & LOW32) >> imm


@device
def rv_srai(a: int, b: int, imm: int, pc: int) -> int:
    return a >> imm


@device
def rv_add(a: int, b: int, imm: int, pc: int) -> int:
    return a + b


@device
def rv_sub(a: int, b: int, imm: int, pc: int) -> int:
    return a - b


@device
def rv_sll(a: int, b: int, imm: int, pc: int) -> int:
    return a << (b & 31)


@device
def rv_slt(a: int, b: int, imm: int, pc: int) -> int:
    return 1 if a < b else 0


@device
def rv_sltu(a: int, b: int, imm: int, pc: int) -> int:
    return 1 if (a & LOW32) < (b & LOW32) else 0


@device
def rv_xor(a: int, b: int, imm: int, pc: int) -> int:
    return a ^ b


@device
def rv_srl(a: int, b: int, imm: int, pc: int) -> int:
    return (a & LOW32) >> (b & 31)


@device
def rv_sra(a: int, b: int, imm: int, pc: int) -> int:
    return a >> (b & 31)


@device
def rv_or(a: int, b: int, imm: int, pc: int) -> int:
    return a | b


@device
def rv_and(a: int, b: int, imm: int, pc: int) -> int:
    return a & b


@device
def rv_mul(a: int, b: int, imm: int, pc: int) -> int:
    return a * b


@device
def rv_mulh(a: int, b: int, imm: int, pc: int) -> int:
    return (a * b) >> 32


@device
def rv_mulhsu(a: int, b: int, imm: int, pc: int) -> int:
    return (a * (b & LOW32)) >> 32


@device
def rv_mulhu(a: int, b: int, imm: int, pc: int) -> int:
    product = np.uint64(a & LOW32) * np.uint64(b & LOW32)
    return np.int64(product >> np.uint64(32))


@device
def rv_div(a: int, b: int, imm: int, pc: int) -> int:
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


@device
def rv_divu(a: int, b: int, imm: int, pc: int) -> int:
    return LOW32 if b == 0 else (a & LOW32) // (b & LOW32)


@device
def rv_rem(a: int, b: int, imm: int, pc: int) -> int:
    if b == 0:
        return a
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


@device
def rv_remu(a: int, b: int, imm: int, pc: int) -> int:
    return a if b == 0 else (a & LOW32) % (b & LOW32)


@device
def rv_jal(a: int, b: int, imm: int, pc: int) -> int:
    return (pc + imm) & LOW32


@device
def rv_jalr(a: int, b: int, imm: int, pc: int) -> int:
    return (a + imm) & LOW32 & ~1


@device
def rv_beq(a: int, b: int, imm: int, pc: int) -> bool:
    return a == b


@device
def rv_bne(a: int, b: int, imm: int, pc: int) -> bool:
    return a != b


@device
def rv_blt(a: int, b: int, imm: int, pc: int) -> bool:
    return a < b


@device
def rv_bge(a: int, b: int, imm: int, pc: int) -> bool:
    return a >= b


@device
def rv_bltu(a: int, b: int, imm: int, pc: int) -> bool:
    return (a & LOW32) < (b & LOW32)


@device
def rv_bgeu(a: int, b: int, imm: int, pc: int) -> bool:
    return (a & LOW32) >= (b & LOW32)
