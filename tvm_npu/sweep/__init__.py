"""Sweeps: models x machines x planners x precisions, and which machines are worth building.

`run_sweep` runs a `SweepSpec` and gives a `SweepResult`; ``tvm-npu sweep`` is its command.
"""

from __future__ import annotations

from tvm_npu.sweep.run import SweepResult, run_sweep
from tvm_npu.sweep.spec import SweepError, SweepSpec, read_spec

__all__ = ["SweepError", "SweepResult", "SweepSpec", "read_spec", "run_sweep"]


def __dir__() -> list[str]:
    return __all__
