"""Runs programs: loads them, drives the simulator, keeps statistics.

Importing this package registers the packed function that compiled TVM modules call, when TVM is
installed; everything else works without TVM.
"""

from __future__ import annotations

from tvm_npu.runtime.packed import (
    clear_sessions,
    last_session,
    register_packed,
    session,
    sessions,
    statistics,
)

__all__ = ["clear_sessions", "last_session", "session", "sessions", "statistics"]

register_packed()
