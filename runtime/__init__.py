"""Runs programs: loads them, drives the simulator, keeps statistics.

Importing this package registers the packed function that compiled TVM modules call, when TVM is
installed; everything else works without TVM.
"""

from __future__ import annotations

from tvm_npu.runtime.packed import (
    clear_sessions,
    find_session,
    last_session,
    register_packed,
    sessions,
    statistics,
)

__all__ = ["clear_sessions", "find_session", "last_session", "sessions", "statistics"]

register_packed()
