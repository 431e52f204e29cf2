"""Errors and warnings of tuning."""

from __future__ import annotations

from tvm_npu.codegen.errors import CodegenError, PlanningError


class TuningLogError(CodegenError, ValueError):
    """A tuning log that is corrupt, foreign, of another version, or in use; names file and line."""


class ResumeError(TuningLogError):
    """A log whose trials are not those that the same tuner with the same seed makes."""


class MissingPackageError(CodegenError):
    """A package of an extra that is not installed."""


class EmptySpaceError(PlanningError):
    """A layer for which no plan was found by drawing."""


class MeasureError(CodegenError):
    """A plan that cannot be measured: it does not compile, traps or does not end. A tuner notes it
    and goes on."""


class TuningLogWarning(UserWarning):
    """A log whose last line was cut off."""


class UntunedWarning(UserWarning):
    """A layer that the tuning log holds no trial of."""
