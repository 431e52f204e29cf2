"""Affine expressions as a few scalar instructions."""

from __future__ import annotations

from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.registers import ZERO, RegisterFile
from tvm_npu.sim.isa.builder import CodeBuilder


class Arithmetic:
    """Emits into ``builder``; values of variables are in ``registers``."""

    def __init__(self, builder: CodeBuilder, registers: RegisterFile) -> None:
        self._builder = builder
        self._registers = registers
        self._one: int | None = None

    def keep_one(self) -> None:
        """Reserves a register that holds 1 from here on."""
        self._one = self._registers.take()
        self._builder.li(self._one, 1)

    def evaluate(self, value: Expression) -> int:
        """A register that holds ``value``; a temporary one unless the value lies in one."""
        if value.is_constant and value.constant == 0:
            return ZERO
        if value.is_constant and value.constant == 1 and self._one is not None:
            return self._one
        if len(value.terms) == 1 and value.constant == 0 and value.terms[0][1] == 1:
            return self._registers.of(value.terms[0][0])
        target = self._registers.temporary()
        self.evaluate_into(target, value)
        return target

    def evaluate_into(self, target: int, value: Expression) -> None:
        """target = value; of the value's registers, ``target`` may be one of a variable that has a
        register."""
        if value.is_constant:
            self._builder.li(target, value.constant)
            return
        own = self._registers.held(target)  # is read before it is written

        def order(term: tuple[Variable, int]) -> tuple[bool, bool, bool]:
            return term[0] != own, term[1] < 0, abs(term[1]) == 1

        terms = sorted(value.terms, key=order)
        total: int | None = None
        for variable, coefficient in terms:
            if total is None:
                source = self._registers.of(variable)
                total = self.scale(source, abs(coefficient), target)
                if coefficient < 0:
                    self._builder.emit("sub", rd=target, rs1=ZERO, rs2=total)
                    total = target
                continue
            with self._registers.temporaries():
                scaled = self.scale(self._registers.of(variable), abs(coefficient), None)
                operation = "sub" if coefficient < 0 else "add"
                self._builder.emit(operation, rd=target, rs1=total, rs2=scaled)
                total = target
        assert total is not None
        if value.constant or total != target:
            self.add(target, total, value.constant)

    def scale(self, source: int, factor: int, target: int | None) -> int:
        """A register with source * factor: ``source`` itself, ``target`` or a temporary one."""
        if factor == 1:
            return source
        if target is None:
            is_temporary = self._registers.is_temporary(source)
            target = self._registers.temporary(instead=source if is_temporary else None)
        if factor & (factor - 1) == 0:
            self._builder.emit("slli", rd=target, rs1=source, shamt=factor.bit_length() - 1)
        else:
            with self._registers.temporaries():
                constant = self._constant(factor, target, source)
                self._builder.emit("mul", rd=target, rs1=source, rs2=constant)
        return target

    def add(self, target: int, source: int, constant: int) -> None:
        """target = source + constant; may take a temporary register."""
        if -2048 <= constant <= 2047:
            self._builder.emit("addi", rd=target, rs1=source, imm=constant)
        else:
            number = self._constant(constant, target, source)
            self._builder.emit("add", rd=target, rs1=source, rs2=number)

    def _constant(self, value: int, target: int, source: int) -> int:
        """A temporary register that holds ``value``, the second operand of an operation on
        ``source``; where none is free ``target``, unless that is the first operand."""
        register = self._registers.temporary(instead=target if target != source else None)
        self._builder.li(register, value)
        return register
