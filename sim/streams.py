"""What a DMA transfer carries; statistics count bytes by stream and direction."""

from __future__ import annotations

from enum import IntEnum


class Stream(IntEnum):
    OTHER = 0
    IN = 1
    WEIGHT = 2
    OUT = 3
    RESIDUAL = 4
    BIAS = 5
    PARTIAL = 6
