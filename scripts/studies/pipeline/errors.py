"""Why the benchmark cannot run or did not come out right."""

from __future__ import annotations

from studies.tso.errors import ReproductionError


class BenchError(ReproductionError):
    """The machine cannot run it, or a result is wrong."""
