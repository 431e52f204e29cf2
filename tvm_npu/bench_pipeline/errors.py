"""Why the benchmark cannot run or did not come out right."""

from __future__ import annotations

from tvm_npu.reproduce.errors import ReproductionError


class BenchError(ReproductionError):
    """The machine cannot run it, or a result is wrong."""
