"""The linear cost of a transfer, T = C + s p + n t (double-buffer tiling paper, Equation 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from tvm_npu.sim.parts.pl330.traps import DmacError


@dataclass(frozen=True)
class TimedTransfer:
    """One measurement: `jumps` (s) breaks in the addresses, `elements` (n) moved, `cycles` (T)."""

    jumps: int
    elements: int
    cycles: float


@dataclass(frozen=True)
class LinearCost:
    """C, p and t in cycles: for a transfer, for a jump in the addresses, for an element."""

    start_cycles: float
    jump_cycles: float
    element_cycles: float

    def cycles(self, jumps: float, elements: float) -> float:
        return self.start_cycles + jumps * self.jump_cycles + elements * self.element_cycles


def fit(transfers: Sequence[TimedTransfer]) -> LinearCost:
    """The constants, none below 0, with the least squares of relative errors.

    Raises DmacError for fewer than three transfers or one that took no time.
    """
    if len(transfers) < 3:
        raise DmacError(f"{len(transfers)} transfers to fit three constants; at least 3")
    if any(item.cycles <= 0 for item in transfers):
        raise DmacError("a transfer of 0 cycles cannot be fitted; more than 0")
    terms = np.array([(1.0, item.jumps, item.elements) for item in transfers])
    cycles = np.array([item.cycles for item in transfers])
    found, _ = nnls(terms / cycles[:, None], np.ones(len(transfers)))
    return LinearCost(*(float(value) for value in found))
