"""The special registers as plain integers, as compiled code wants them."""

from __future__ import annotations

from typing import NamedTuple

from tvm_npu.sim.snowflake.isa import Special


class SpecialNumbers(NamedTuple):
    """Numbers of special registers, see `isa.Special`."""

    OUT: int
    OUT_STEP: int
    OUTPUTS: int
    TARGET: int
    CUS: int
    SHIFT: int
    LOW: int
    HIGH: int
    DIVISOR: int
    SUM_SHIFT: int
    RESIDUAL_SHIFT: int
    SHIFT_A: int
    SHIFT_B: int
    LANE_STEP: int
    TABLE_SHIFT: int
    TABLE_BITS: int
    LD_RUNS: int
    LD_MEMORY_STEP: int
    LD_BUFFER_STEP: int
    ST_RUNS: int
    ST_MEMORY_STEP: int
    ST_BUFFER_STEP: int


S = SpecialNumbers(**{item.name: int(item) for item in Special})


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
"""Special registers that an instruction reads, a bit each."""
