"""Special registers for what a layer does with its sums."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.snowflake.steps.objects import Specials
from tvm_npu.sim.snowflake.isa import Special


@dataclass(frozen=True)
class Requantize:
    """The step that ends a layer (`codegen.fixed_point.requantize`), with the shifts of a sum and
    its residual before."""

    shift: int
    low: int
    high: int
    sum_shift: int = 0
    residual_shift: int = 0

    @property
    def specials(self) -> Specials:
        return {
            Special.SHIFT: self.shift,
            Special.LOW: self.low,
            Special.HIGH: self.high,
            Special.SUM_SHIFT: self.sum_shift,
            Special.RESIDUAL_SHIFT: self.residual_shift,
            Special.DIVISOR: 1,
        }
