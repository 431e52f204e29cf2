"""Material for the ISA tests: operands at random, and words that GNU as made."""

from __future__ import annotations

from hypothesis import strategies as st

from tvm_npu.sim.isa.table import Field, Instruction
from tvm_npu.sim.nmp.xnmp import NMP_ISA


def field_values(operand: Field) -> st.SearchStrategy[int]:
    """Legal values of one operand, its bounds among them."""
    steps = (operand.high - operand.low) // operand.step
    return st.integers(0, steps).map(lambda number: operand.low + number * operand.step)


@st.composite
def instructions_with_operands(draw: st.DrawFn) -> tuple[Instruction, dict[str, int]]:
    instruction = draw(st.sampled_from(NMP_ISA.instructions))
    return instruction, {item.name: draw(field_values(item)) for item in instruction.fields}


KNOWN_RV32IM: tuple[tuple[int, str], ...] = (
    (0xFFFFF537, "lui a0, 0xfffff"),
    (0x12345497, "auipc s1, 0x12345"),
    (0x001000EF, "jal ra, 2048"),
    (0x8000006F, "jal zero, -1048576"),
    (0xFFC280E7, "jalr ra, -4(t0)"),
    (0x00B50863, "beq a0, a1, 16"),
    (0x80B51063, "bne a0, a1, -4096"),
    (0x7FF44FE3, "blt s0, t6, 4094"),
    (0x00205163, "bge zero, sp, 2"),
    (0xFED66FE3, "bltu a2, a3, -2"),
    (0x40F77063, "bgeu a4, a5, 1024"),
    (0xFFF10503, "lb a0, -1(sp)"),
    (0x00219583, "lh a1, 2(gp)"),
    (0x7FF22603, "lw a2, 2047(tp)"),
    (0x800DC683, "lbu a3, -2048(s11)"),
    (0x00055703, "lhu a4, 0(a0)"),
    (0xFEA10FA3, "sb a0, -1(sp)"),
    (0x00691FA3, "sh t1, 31(s2)"),
    (0x8079A023, "sw t2, -2048(s3)"),
    (0x800E8E13, "addi t3, t4, -2048"),
    (0x7FFFAF13, "slti t5, t6, 2047"),
    (0xFFF5B513, "sltiu a0, a1, -1"),
    (0x0555C513, "xori a0, a1, 85"),
    (0xFAA6E613, "ori a2, a3, -86"),
    (0x0FF7F713, "andi a4, a5, 255"),
    (0x01F59513, "slli a0, a1, 31"),
    (0x0019D913, "srli s2, s3, 1"),
    (0x411ADA13, "srai s4, s5, 17"),
    (0x00C58533, "add a0, a1, a2"),
    (0x41248433, "sub s0, s1, s2"),
    (0x007312B3, "sll t0, t1, t2"),
    (0x00F726B3, "slt a3, a4, a5"),
    (0x0168B833, "sltu a6, a7, s6"),
    (0x019C4BB3, "xor s7, s8, s9"),
    (0x01CDDD33, "srl s10, s11, t3"),
    (0x41FF5EB3, "sra t4, t5, t6"),
    (0x003160B3, "or ra, sp, gp"),
    (0x0062F233, "and tp, t0, t1"),
    (0x02C58533, "mul a0, a1, a2"),
    (0x02F716B3, "mulh a3, a4, a5"),
    (0x0324A433, "mulhsu s0, s1, s2"),
    (0x027332B3, "mulhu t0, t1, t2"),
    (0x02C5C533, "div a0, a1, a2"),
    (0x035A59B3, "divu s3, s4, s5"),
    (0x03EEEE33, "rem t3, t4, t5"),
    (0x031877B3, "remu a5, a6, a7"),
    (0x0FF0000F, "fence zero, zero, 255"),
    (0x00000073, "ecall"),
    (0x00100073, "ebreak"),
)
"""Words from GNU as 2.40 (riscv64-unknown-elf-as -march=rv32im) and their text; branches and jumps
with their distance."""
