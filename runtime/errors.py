"""Errors of the runtime part."""

from __future__ import annotations

from tvm_npu.sim.errors import BoundedError


class RunError(BoundedError):
    """A program cannot run with the inputs that it was given."""
