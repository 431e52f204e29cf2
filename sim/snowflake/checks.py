"""What compiled code checks before it touches anything, and how it stops."""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.spans import extent
from tvm_npu.sim.snowflake.registers import HIGHEST, LOWEST
from tvm_npu.sim.snowflake.state import State
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.traps import TrapSlot

GO, STOP, GROW = 0, 1, 2
"""How compiled functions say to go on. GROW: Python first makes room in the log of transfers or the
table of events, or begins another slice; what returned it is called again."""

_CODE, _ROW, _CLUSTER = TrapSlot.CODE, TrapSlot.ROW, TrapSlot.CLUSTER
_A, _B, _C = TrapSlot.A, TrapSlot.B, TrapSlot.C
_MEMORY, _OPERAND = TrapSlot.MEMORY, TrapSlot.OPERAND


@device
def trap(s: State, c: int, row: int, code: int, a: int, b: int, last: int) -> int:
    """Records the first trap of a run."""
    if s.trap[_CODE] == 0:
        s.trap[_CODE] = code
        s.trap[_ROW] = row
        s.trap[_CLUSTER] = c
        s.trap[_A] = a
        s.trap[_B] = b
        s.trap[_C] = last
    return STOP


@device
def within(s: State, c: int, row: int, operand: int, value: int, low: int, high: int) -> int:
    """STOP, with a trap that names the operand, unless low <= value <= high."""
    if low <= value <= high:
        return GO
    trap(s, c, row, Code.BAD_OPERAND, value, low, high)
    s.trap[_OPERAND] = operand
    return STOP


@device
def allowed(s: State, c: int, row: int, register: int, value: int) -> int:
    """The same for a special register that has the same limits everywhere."""
    return within(s, c, row, register, value, LOWEST[register], HIGHEST[register])


@device
def aligned(s: State, c: int, row: int, operand: int, value: int, step: int) -> int:
    """STOP, with a trap, unless ``value`` is a multiple of ``step``."""
    if value % step == 0:
        return GO
    trap(s, c, row, Code.UNALIGNED, value, step, 0)
    s.trap[_OPERAND] = operand
    return STOP


@device
def inside(s: State, c: int, row: int, memory: int, begin: int, end: int, size: int) -> int:
    """STOP, with a trap, unless words begin..end (end not included) lie in a buffer."""
    if 0 <= begin <= end <= size:
        return GO
    trap(s, c, row, Code.OUTSIDE_BUFFER, begin, end - 1, size)
    s.trap[_MEMORY] = memory
    return STOP


@device
def spend(s: State, c: int, row: int, units: int) -> int:
    """STOP, with a trap, when the run's budget is spent."""
    s.work[0] += units
    if s.work[0] <= s.work[1]:
        return GO
    return trap(s, c, row, Code.BUDGET, s.work[1], 0, 0)


@device
def lines(begin: int, end: int) -> int:
    """Lines of 16 words that words begin..end (end not included) touch."""
    return (end - 1) // 16 - begin // 16 + 1


@device
def lowest(mask: int) -> int:
    """Number of the lowest bit of a mask that is not 0."""
    number = 0
    while mask >> number & 1 == 0:
        number += 1
    return number


@device
def touches(begin: int, words: int, runs: int, step: int, first: int, end: int) -> bool:
    """Whether runs of ``words``, ``step`` apart from ``begin`` on, meet first..end (not
    included)."""
    if runs == 1 or step == 0:
        return begin < end and first < begin + words
    if step < 0:
        begin, step = begin + (runs - 1) * step, -step
    # The first run that ends behind `first` is the only one that can be the lowest to meet it.
    skipped = max(0, (first - begin - words) // step + 1)
    begin += skipped * step
    return skipped < runs and begin < end and first < begin + words


@device
def patterns_meet(
    begin: int, words: int, runs: int, step: int, other: int, length: int, count: int, jump: int
) -> bool:
    """Whether two patterns of runs share a place."""
    first, end = extent(begin, words, runs, step)
    low, high = extent(other, length, count, jump)
    if end <= low or high <= first:
        return False
    if runs > count:
        for k in range(count):
            at = other + k * jump
            if touches(begin, words, runs, step, at, at + length):
                return True
        return False
    for k in range(runs):
        at = begin + k * step
        if touches(other, length, count, jump, at, at + words):
            return True
    return False
