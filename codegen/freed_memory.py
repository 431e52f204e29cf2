"""Memory that is freed between two phases of a compilation, and that the C library keeps: weights
of hundreds of megabytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

MAPPED_BYTES = 1 << 30
"""Of addresses, not of memory: more than gaps that models leave in the heap."""
TIDY_BYTES = 1 << 22
"""So much is freed, or grows and leaves its old places behind, before memory goes back."""


def give_back() -> None:
    """Hands freed memory to the system, in a few milliseconds. Once glibc has freed a large array,
    it takes others up to that size, 32 MB at most, from its heap, and keeps what they leave; with
    other C libraries nothing is done."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def growing_bytes() -> bytearray:
    """Empty, and without copies of itself however large it grows. What grows in glibc's heap is
    copied to new places and leaves its old ones behind. What is larger than every gap there gets a
    mapping of its own, keeps it when it shrinks, and is moved by the system without a copy."""
    found = bytearray()
    for size_bytes in (MAPPED_BYTES, 0):  # no page is touched, as `bytearray` itself would
        try:
            _resize(found, size_bytes)
        except MemoryError:  # a limit of the process's addresses
            break
    return found


def _resize(data: bytearray, size_bytes: int) -> None:
    ctypes.pythonapi.PyByteArray_Resize(ctypes.py_object(data), ctypes.c_ssize_t(size_bytes))


class Tidying:
    """`give_back` once in `TIDY_BYTES`, for weights of layers that go one after the other."""

    def __init__(self) -> None:
        self._bytes = 0

    def freed(self, size_bytes: int) -> None:
        """So much has been freed."""
        self._bytes += size_bytes
        if self._bytes >= TIDY_BYTES:
            self._bytes = 0
            give_back()


def array_bytes(value: Any) -> int:
    """Of all arrays in a layer, or in layers."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(array_bytes, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(array_bytes, value))
    if is_dataclass(value) and not isinstance(value, type):
        return sum(array_bytes(getattr(value, one.name)) for one in fields(value))
    return 0


@lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return found
