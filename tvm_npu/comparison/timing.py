"""Times of inferences on this CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tvm_npu.comparison.task import Cost

LONGEST_S = 20.0
"""No further repetition begins after so long."""


def measured_cost(infer: Callable[[], object], repeats: int) -> Cost:
    """One inference to warm up, then the median and the quartiles of at most ``repeats``. One that
    takes longer than all of them may counts itself: it is not cold for long."""
    begin = time.perf_counter()
    infer()
    times = [time.perf_counter() - begin]
    if times[0] < LONGEST_S:
        times.clear()
        begin = time.perf_counter()
    while len(times) < repeats and time.perf_counter() - begin < LONGEST_S:
        start = time.perf_counter()
        infer()
        times.append(time.perf_counter() - start)
    low, middle, high = (float(1e6 * value) for value in np.percentile(times, (25, 50, 75)))
    return Cost(middle, simulated=False, repeats=len(times), low_us=low, high_us=high)
