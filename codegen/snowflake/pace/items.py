"""What a core comes to: transfers and waits, and 64-byte units that a transfer takes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES


class Item(NamedTuple):
    """One of `together`'s kinds, with ``what`` and ``more``."""

    kind: int
    what: int
    more: int = 0


def memory_units(offset: int, size: int, runs: int, step: int) -> int:
    """Units of memory that ``runs`` runs of ``size`` bytes from byte ``offset`` on touch; runs
    without a gap between them are one."""
    if step == size:
        size, runs = size * runs, 1
    return _units(offset % MEMORY_UNIT_BYTES, size, runs, step if runs > 1 else 0)


@lru_cache(maxsize=1 << 14)
def _units(offset: int, size: int, runs: int, step: int) -> int:
    if runs == 1:
        return (offset + size - 1) // MEMORY_UNIT_BYTES - offset // MEMORY_UNIT_BYTES + 1
    begins = offset + step * np.arange(runs, dtype=np.int64)
    last = (begins + size - 1) // MEMORY_UNIT_BYTES
    return int((last - begins // MEMORY_UNIT_BYTES + 1).sum())
