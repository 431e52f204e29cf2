"""Memory that is freed between two phases of a compilation, and that the C library keeps: weights
of hundreds of megabytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache


def give_back() -> None:
    """Hands freed memory to the system, in a few milliseconds. Once glibc has freed a large array,
    it takes others up to that size, 32 MB at most, from its heap, and keeps what they leave; with
    other C libraries nothing is done."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
