"""RV32IM: the base integer set, multiplication and division (RISC-V unprivileged manual)."""

from __future__ import annotations

from tvm_npu.sim.isa.table import Field, Instruction

RD = Field("rd", ((11, 7, 0),), "rd", register=True)
RS1 = Field("rs1", ((19, 15, 0),), "rs1", register=True)
RS2 = Field("rs2", ((24, 20, 0),), "rs2", register=True)
IMM_I = Field("imm", ((31, 20, 0),), "imm", signed=True)
IMM_S = Field("imm", ((31, 25, 5), (11, 7, 0)), "imm", signed=True)
IMM_B = Field(
    "imm", ((31, 31, 12), (7, 7, 11), (30, 25, 5), (11, 8, 1)), "imm", signed=True, relative=True
)
IMM_U = Field("imm", ((31, 12, 0),), "imm")
IMM_J = Field(
    "imm", ((31, 31, 20), (19, 12, 12), (20, 20, 11), (30, 21, 1)), "imm", signed=True,
    relative=True,
)
SHAMT = Field("shamt", ((24, 20, 0),), "imm")


def _value(
    name: str, match: int, fields: tuple[Field, ...], syntax: str, meaning: str
) -> Instruction:
    return Instruction(name, match, fields, syntax, meaning, f"rv_{name}", "value")


def _r(name: str, funct7: int, funct3: int, meaning: str) -> Instruction:
    match = funct7 << 25 | funct3 << 12 | 0x33
    return _value(name, match, (RD, RS1, RS2), "rd, rs1, rs2", meaning)


def _i(name: str, funct3: int, meaning: str) -> Instruction:
    match = funct3 << 12 | 0x13
    return _value(name, match, (RD, RS1, IMM_I), "rd, rs1, imm", meaning)


def _shift(name: str, funct7: int, funct3: int, meaning: str) -> Instruction:
    match = funct7 << 25 | funct3 << 12 | 0x13
    return _value(name, match, (RD, RS1, SHAMT), "rd, rs1, shamt", meaning)


def _load(name: str, funct3: int, meaning: str) -> Instruction:
    match = funct3 << 12 | 0x03
    return Instruction(
        name, match, (RD, RS1, IMM_I), "rd, imm(rs1)", meaning, f"rv_{name}", shared=True
    )


def _store(name: str, funct3: int, meaning: str) -> Instruction:
    match = funct3 << 12 | 0x23
    return Instruction(
        name, match, (RS1, RS2, IMM_S), "rs2, imm(rs1)", meaning, f"rv_{name}", shared=True
    )


def _branch(name: str, funct3: int, meaning: str) -> Instruction:
    match = funct3 << 12 | 0x63
    fields = (RS1, RS2, IMM_B)
    return Instruction(name, match, fields, "rs1, rs2, imm", meaning, f"rv_{name}", "branch")


RV32IM: tuple[Instruction, ...] = (
    _value("lui", 0x37, (RD, IMM_U), "rd, imm", "rd = imm << 12"),
    _value("auipc", 0x17, (RD, IMM_U), "rd, imm", "rd = pc + (imm << 12)"),
    Instruction("jal", 0x6F, (RD, IMM_J), "rd, imm", "rd = pc + 4; pc += imm", "rv_jal", "jump"),
    Instruction(
        "jalr", 0x67, (RD, RS1, IMM_I), "rd, imm(rs1)", "rd = pc + 4; pc = (rs1 + imm) & ~1",
        "rv_jalr", "jump",
    ),
    _branch("beq", 0, "if rs1 == rs2: pc += imm"),
    _branch("bne", 1, "if rs1 != rs2: pc += imm"),
    _branch("blt", 4, "if rs1 < rs2 (signed): pc += imm"),
    _branch("bge", 5, "if rs1 >= rs2 (signed): pc += imm"),
    _branch("bltu", 6, "if rs1 < rs2 (unsigned): pc += imm"),
    _branch("bgeu", 7, "if rs1 >= rs2 (unsigned): pc += imm"),
    _load("lb", 0, "rd = sign-extended byte at rs1 + imm"),
    _load("lh", 1, "rd = sign-extended halfword at rs1 + imm"),
    _load("lw", 2, "rd = word at rs1 + imm"),
    _load("lbu", 4, "rd = zero-extended byte at rs1 + imm"),
    _load("lhu", 5, "rd = zero-extended halfword at rs1 + imm"),
    _store("sb", 0, "byte at rs1 + imm = rs2"),
    _store("sh", 1, "halfword at rs1 + imm = rs2"),
    _store("sw", 2, "word at rs1 + imm = rs2"),
    _i("addi", 0, "rd = rs1 + imm"),
    _i("slti", 2, "rd = rs1 < imm (signed)"),
    _i("sltiu", 3, "rd = rs1 < imm (unsigned)"),
    _i("xori", 4, "rd = rs1 ^ imm"),
    _i("ori", 6, "rd = rs1 | imm"),
    _i("andi", 7, "rd = rs1 & imm"),
    _shift("slli", 0x00, 1, "rd = rs1 << shamt"),
    _shift("srli", 0x00, 5, "rd = rs1 >> shamt (logical)"),
    _shift("srai", 0x20, 5, "rd = rs1 >> shamt (arithmetic)"),
    _r("add", 0x00, 0, "rd = rs1 + rs2"),
    _r("sub", 0x20, 0, "rd = rs1 - rs2"),
    _r("sll", 0x00, 1, "rd = rs1 << (rs2 & 31)"),
    _r("slt", 0x00, 2, "rd = rs1 < rs2 (signed)"),
    _r("sltu", 0x00, 3, "rd = rs1 < rs2 (unsigned)"),
    _r("xor", 0x00, 4, "rd = rs1 ^ rs2"),
    _r("srl", 0x00, 5, "rd = rs1 >> (rs2 & 31) (logical)"),
    _r("sra", 0x20, 5, "rd = rs1 >> (rs2 & 31) (arithmetic)"),
    _r("or", 0x00, 6, "rd = rs1 | rs2"),
    _r("and", 0x00, 7, "rd = rs1 & rs2"),
    _r("mul", 0x01, 0, "rd = low word of rs1 * rs2"),
    _r("mulh", 0x01, 1, "rd = high word of rs1 * rs2 (signed)"),
    _r("mulhsu", 0x01, 2, "rd = high word of rs1 (signed) * rs2 (unsigned)"),
    _r("mulhu", 0x01, 3, "rd = high word of rs1 * rs2 (unsigned)"),
    _r("div", 0x01, 4, "rd = rs1 / rs2 (signed; by zero: -1)"),
    _r("divu", 0x01, 5, "rd = rs1 / rs2 (unsigned; by zero: all ones)"),
    _r("rem", 0x01, 6, "rd = rs1 % rs2 (signed; by zero: rs1)"),
    _r("remu", 0x01, 7, "rd = rs1 % rs2 (unsigned; by zero: rs1)"),
    Instruction("fence", 0x0F, (RD, RS1, IMM_I), "rd, rs1, imm", "orders nothing here: memory "
                "accesses of a core are already in order", "rv_fence"),
    Instruction("ecall", 0x73, (), "", "a7 = 93: the core exits with code a0; else a trap",
                "rv_ecall", shared=True),
    Instruction("ebreak", 0x100073, (), "", "trap", "rv_ebreak", shared=True),
)

OPPOSITE = {"beq": "bne", "bne": "beq", "blt": "bge", "bge": "blt", "bltu": "bgeu", "bgeu": "bltu"}
"""The branch that is taken where another one is not."""
