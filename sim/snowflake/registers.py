"""Which special registers an instruction reads: masks, a bit a register; and by reader."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.snowflake.isa import ALLOWED, REGISTERS
from tvm_npu.sim.snowflake.isa import Special as S


def _mask(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


READ_BY_SUM = _mask(S.OUTPUTS, S.CUS, S.LANE_STEP)
READ_BY_FINISH = READ_BY_SUM | _mask(
    S.OUT, S.OUT_STEP, S.TARGET, S.SHIFT, S.LOW, S.HIGH, S.DIVISOR, S.SUM_SHIFT, S.RESIDUAL_SHIFT
)
READ_BY_STREAM = _mask(
    S.OUT, S.OUT_STEP, S.CUS, S.SHIFT, S.LOW, S.HIGH, S.SHIFT_A, S.SHIFT_B, S.TABLE_SHIFT,
    S.TABLE_BITS,
)  # fmt: skip
READ_BY_VMOV = _mask(S.OUTPUTS, S.TARGET, S.CUS)
READ_BY_LD = _mask(S.LD_RUNS, S.LD_MEMORY_STEP, S.LD_BUFFER_STEP)
READ_BY_TMOV = _mask(S.ST_RUNS, S.ST_MEMORY_STEP, S.ST_BUFFER_STEP)

SUM, FINISH, STREAM, VMOV, LD, TMOV = range(6)
"""Readers of special registers: `mac` that keeps its sums, or ends them, streams, and so on."""

_READ_BY = (
    READ_BY_SUM, READ_BY_FINISH, READ_BY_STREAM, READ_BY_VMOV, READ_BY_LD, READ_BY_TMOV,
)  # fmt: skip
READERS = np.array(
    [[mask >> number & 1 for mask in _READ_BY] for number in range(REGISTERS)], np.bool_
)
"""[64, 6]: which readers read a register."""

LOWEST = np.zeros(REGISTERS, np.int64)
HIGHEST = np.zeros(REGISTERS, np.int64)
"""[64]: values that `isa.ALLOWED` names."""
for _number, (_low, _high) in ALLOWED.items():
    LOWEST[_number], HIGHEST[_number] = _low, _high
