"""Runs programs: loads them, drives the simulator, keeps statistics.

Importing this package registers the packed function that compiled TVM modules call, when TVM is
installed; everything else works without TVM. Processes of pipelines set ``TVM_NPU_WITHOUT_TVM``
so as to import TVM only for stages that need it.
"""

from __future__ import annotations

import os

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


if "TVM_NPU_WITHOUT_TVM" not in os.environ:
    register_packed()
