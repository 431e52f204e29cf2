"""Sums of variables where hardly a register is free: the last one serves twice."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.sim.nmp.rv32im_model import MASK, computed
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.arithmetic import Arithmetic
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.registers import LINE, RegisterFile
from tvm_npu.sim.isa.builder import CodeBuilder
from tvm_npu.sim.nmp.xnmp import NMP_ISA

KEPT, IN_LINE = Variable("kept", 0, 100), Variable("line", 0, 100)
VALUES = {KEPT: 23, IN_LINE: 57}
FACTORS = st.integers(-5000, 5000)


def executed(builder: CodeBuilder, registers: dict[int, int]) -> dict[int, int]:
    """The registers behind the code; every word of the line is IN_LINE's value."""
    registers = {0: 0, **registers}
    for word in builder.finish(0).tolist():
        found = NMP_ISA.decode(word)
        assert found is not None
        item, operands = found
        name, target = item.mnemonic, operands.pop("rd")
        if name == "lw":
            assert operands["rs1"] == LINE
            registers[target] = VALUES[IN_LINE]
        else:
            registers[target] = computed(name, operands, registers)
    return registers


def evaluated(first: int, second: int, constant: int, free: int) -> tuple[int, int]:
    """(what code with ``free`` registers finds, what it should find) for the sum of a variable in a
    register, which stays, and one that is loaded where it is read."""
    builder = CodeBuilder(NMP_ISA)
    registers = RegisterFile(builder)
    arithmetic = Arithmetic(builder, registers)
    place = registers.bind(KEPT)
    registers.keep_in_line({IN_LINE: 3})
    while registers.free_count > free:
        registers.take()
    value = Expression.of(KEPT) * first + Expression.of(IN_LINE) * second + constant
    with registers.temporaries():
        found = arithmetic.evaluate(value)
        held = {place: VALUES[KEPT], LINE: 0}
        wanted = first * VALUES[KEPT] + second * VALUES[IN_LINE] + constant
        after = executed(builder, held)
    assert after[place] == VALUES[KEPT]
    assert registers.free_count == free
    return after[found], wanted & MASK


@given(FACTORS, FACTORS, FACTORS, st.integers(3, 5))
@example(3, 5, 0, 3)
@example(3, -5, 4000, 3)
@example(4, 8, 1, 3)
def test_three_free_registers_are_enough(first: int, second: int, constant: int, free: int) -> None:
    found, wanted = evaluated(first, second, constant, free)
    assert found == wanted


@given(st.integers(1, 12), st.integers(-2048, 2047))
def test_two_are_enough_for_shifts(shift: int, constant: int) -> None:
    found, wanted = evaluated(2, 1 << shift, constant, 2)
    assert found == wanted


@given(FACTORS, FACTORS, FACTORS, st.integers(1, 2))
@example(0, 3, 0, 1)
@example(3, 0, 4000, 1)
@example(3, 5, 0, 2)
@example(-4, 8, 0, 2)
def test_fewer_are_enough_or_an_error(first: int, second: int, constant: int, free: int) -> None:
    try:
        found, wanted = evaluated(first, second, constant, free)
    except EmitError as error:
        assert "live values" in str(error)
    else:
        assert found == wanted
