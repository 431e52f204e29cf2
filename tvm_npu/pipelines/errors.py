"""Errors of pipelines before they run: every message names the thing, the value and the limit."""

from __future__ import annotations

from tvm_npu.errors import NpuError


class ChainError(NpuError, ValueError):
    """A chain of layers that cannot be cut into stages: no layers, or a negative figure."""


class ConfigurationError(NpuError, ValueError):
    """Stages that do not cover a chain of layers, or places that do not exist or are used twice."""


class PlatformError(NpuError, ValueError):
    """A platform file that cannot be used: key, value and limit are in the message."""


class SearchError(NpuError, ValueError):
    """A search that does not exist, or a budget, seed or option that it cannot work with."""


class FleetError(NpuError, ValueError):
    """Machines, frames or a policy that a fleet cannot be simulated with."""
