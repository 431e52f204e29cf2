"""Words of loops: the slots behind branches do work, and no branch waits for its counter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_npu.codegen.snowflake.code.block import BlockCompiler, CodePasses
from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.code.registers import SPARE
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.snowflake.isa import DELAY_SLOTS, SNOWFLAKE_ISA, Finish, MacMode

RAW_CYCLES = 4


def nest(rows: int, columns: int) -> Writer:
    """Four sums a turn of the inner loop, of addresses of their own."""
    writer = Writer()

    def row(values: list[Value]) -> None:
        moving = [values[0].plus(64 * copy) for copy in range(4)]
        weights = writer.held(Value(None, 16))

        def four(places: list[Value]) -> None:
            for place in places:
                writer.mac(MacMode.COOP, Finish.RESULT, writer.held(place), weights, 64)

        writer.loop(columns, moving, [256] * 4, four)

    writer.loop(rows, [Value(None, 0)], [4096], row)
    return writer


def lines(passes: CodePasses) -> list[str]:
    words = BlockCompiler(RAW_CYCLES, passes).words(nest(3, 5).nodes).words
    return [disassemble(int(word), SNOWFLAKE_ISA) for word in words]


def addresses(code: Sequence[str]) -> list[tuple[int, int]]:
    """Runs scalar code: the operands of every `mac`, in order."""
    registers = np.zeros(32, np.int64)
    registers[31] = 1
    found, at = [], 0
    while at < len(code):
        name, _, rest = code[at].partition(" ")
        fields = [one.strip() for one in rest.split(",")]
        number = [int(one[1:]) if one[0] == "r" and one[1:].isdigit() else 0 for one in fields]
        target = -1
        if name == "movi" and fields[0].startswith("r"):
            registers[number[0]] = int(fields[1], 0)
        elif name == "addi":
            registers[number[0]] = registers[number[1]] + int(fields[2], 0)
        elif name == "mac":
            found.append((int(registers[number[2]]), int(registers[number[3]])))
        elif name == "ble" and registers[number[0]] <= registers[number[1]]:
            target = at + int(fields[2], 0) // 4
        if target >= 0:
            found += _slots(code[at + 1 : at + 1 + DELAY_SLOTS], registers)
        at = target if target >= 0 else at + 1
    return found


def _slots(slots: Sequence[str], registers: np.ndarray) -> list[tuple[int, int]]:
    """Delay slots: scalars, or traces."""
    found = []
    for line in slots:
        name, _, rest = line.partition(" ")
        fields = [one.strip() for one in rest.split(",")]
        if name == "mac":
            found.append((int(registers[int(fields[2][1:])]), int(registers[int(fields[3][1:])])))
        elif name == "addi":
            registers[int(fields[0][1:])] = registers[int(fields[1][1:])] + int(fields[2], 0)
        elif name == "movi":
            registers[int(fields[0][1:])] = int(fields[1], 0)
    return found


def test_loops_compute_the_same_without_passes() -> None:
    wanted = [(4096 * row + 64 * sum_, 16) for row in range(3) for sum_ in range(20)]
    assert addresses(lines(CodePasses())) == wanted
    assert addresses(lines(CodePasses(False, False, False))) == wanted


def test_slots_behind_branches_do_work() -> None:
    """Also those of the outer loop, whose body ends with another branch: the next turn's first
    instructions stand there."""
    idle = f"movi r{SPARE}, 0"
    assert lines(CodePasses()).count(idle) == 0
    assert lines(CodePasses(fill_slots=False)).count(idle) == 2 * DELAY_SLOTS


def test_no_branch_waits_for_its_counter() -> None:
    code = lines(CodePasses())
    for at, line in enumerate(code):
        if not line.startswith("ble"):
            continue
        counter = line.split(", ")[1]
        before = code[max(0, at - RAW_CYCLES) : at]
        assert not any(one.split()[1] == f"{counter}," for one in before), code[at - 6 : at + 1]
