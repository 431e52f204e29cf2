"""`tvm_npu.sim.arithmetic` for compiled code."""

from __future__ import annotations

from tvm_npu.sim import arithmetic
from tvm_npu.sim.compiled.decorators import device

ceil_div = device(arithmetic.ceil_div)
overlap = device(arithmetic.overlap)


@device
def aligned(size: int, alignment: int) -> int:
    return ceil_div(size, alignment) * alignment
