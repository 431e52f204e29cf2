"""Runs programs: loads them, drives the simulator, keeps statistics.

Whoever imports this package and TVM, in whatever order, has the packed function that compiled TVM
modules call, and threads of TVM's pool that sleep soon. Everything else works without TVM, which is
not imported here.
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
from tvm_npu.runtime.thread_pool import sleep_soon

__all__ = ["clear_sessions", "find_session", "last_session", "sessions", "statistics"]


def __dir__() -> list[str]:
    return __all__


when_imported("tvm", register_packed)
when_imported("tvm", sleep_soon)
