"""Runs programs: loads them, drives the simulator, keeps statistics.

Whoever imports this package and TVM, in whatever order, has the packed function that compiled TVM
modules call. Everything else works without TVM, which is not imported here.
"""

from __future__ import annotations

from tvm_npu.runtime.after_import import when_imported
from tvm_npu.runtime.packed import (
    clear_sessions,
    find_session,
    last_session,
    register_packed,
    sessions,
    statistics,
)

__all__ = ["clear_sessions", "find_session", "last_session", "sessions", "statistics"]


def __dir__() -> list[str]:
    return __all__


when_imported("tvm", register_packed)
