"""Slices for runs that are watched: see `slices` and `sim.watch`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.compiled.slices import DONE, SLICE


def shortest_slice(work: NDArray[np.int64]) -> None:
    """The next slice of a run with this array of work ends as soon as anything has been done."""
    work[SLICE] = work[DONE] + 1
