"""Why the benchmark cannot run or did not come out right."""

from __future__ import annotations

from studies.harness.errors import StudyError


class BenchError(StudyError):
    """The machine cannot run it, or a result is wrong."""
