"""What RV32IM means, in Python integers: written from the ISA manual, not from the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping

MASK = 0xFFFF_FFFF


def signed(value: int) -> int:
    value &= MASK
    return value - (1 << 32) if value >> 31 else value


def quotient(a: int, b: int) -> int:
    """Rounded towards zero."""
    magnitude = abs(a) // abs(b)
    return magnitude if (a >= 0) == (b >= 0) else -magnitude


Binary = Callable[[int, int], int]

REGISTER: dict[str, Binary] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "sll": lambda a, b: a << (b % 32),
    "slt": lambda a, b: int(signed(a) < signed(b)),
    "sltu": lambda a, b: int(a < b),
    "xor": lambda a, b: a ^ b,
    "srl": lambda a, b: a >> (b % 32),
    "sra": lambda a, b: signed(a) >> (b % 32),
    "or": lambda a, b: a | b,
    "and": lambda a, b: a & b,
    "mul": lambda a, b: a * b,
    "mulh": lambda a, b: signed(a) * signed(b) >> 32,
    "mulhsu": lambda a, b: signed(a) * b >> 32,
    "mulhu": lambda a, b: a * b >> 32,
    "div": lambda a, b: quotient(signed(a), signed(b)) if b else -1,
    "divu": lambda a, b: a // b if b else MASK,
    "rem": lambda a, b: signed(a) - quotient(signed(a), signed(b)) * signed(b) if b else a,
    "remu": lambda a, b: a % b if b else a,
}
"""rd from the unsigned values of rs1 and rs2; only the low 32 bits count."""

IMMEDIATE: dict[str, Binary] = {
    "addi": lambda a, imm: a + imm,
    "slti": lambda a, imm: int(signed(a) < imm),
    "sltiu": lambda a, imm: int(a < imm % (1 << 32)),
    "xori": lambda a, imm: a ^ (imm & MASK),
    "ori": lambda a, imm: a | (imm & MASK),
    "andi": lambda a, imm: a & (imm & MASK),
    "slli": lambda a, shamt: a << shamt,
    "srli": lambda a, shamt: a >> shamt,
    "srai": lambda a, shamt: signed(a) >> shamt,
}


def computed(name: str, operands: Mapping[str, int], registers: Mapping[int, int]) -> int:
    """rd of an instruction that reads neither memory nor pc, from the values of ``registers``."""
    if name == "lui":
        value = operands["imm"] << 12
    elif "rs2" in operands:
        value = REGISTER[name](registers[operands["rs1"]], registers[operands["rs2"]])
    else:
        constant = operands.get("imm", operands.get("shamt", 0))
        value = IMMEDIATE[name](registers[operands["rs1"]], constant)
    return value & MASK


BRANCH: dict[str, Callable[[int, int], bool]] = {
    "beq": lambda a, b: a == b,
    "bne": lambda a, b: a != b,
    "blt": lambda a, b: signed(a) < signed(b),
    "bge": lambda a, b: signed(a) >= signed(b),
    "bltu": lambda a, b: a < b,
    "bgeu": lambda a, b: a >= b,
}

LOAD: dict[str, tuple[int, bool]] = {
    "lb": (1, True), "lh": (2, True), "lw": (4, True), "lbu": (1, False), "lhu": (2, False),
}  # fmt: skip
"""(bytes, sign extension)"""

STORE = {"sb": 1, "sh": 2, "sw": 4}
