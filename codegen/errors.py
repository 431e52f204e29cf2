"""Errors of the compiler part: every message names the thing, the value and the limit."""

from __future__ import annotations

from tvm_npu.sim.errors import BoundedError


class CodegenError(BoundedError):
    """Base of everything that `tvm_npu.codegen` raises on purpose."""


class GraphError(CodegenError, ValueError):
    """An NPU graph that contradicts itself."""


class QuantizationError(CodegenError, ValueError):
    """Ranges, weights or options that cannot be turned into fixed point."""


class PlanningError(CodegenError):
    """A layer that no plan of the chosen planner fits; carries the typed infeasible result
    (`plan.problem.Infeasible`) and the layer's name where there are such."""

    def __init__(self, message: str, layer: str | None = None, infeasible: object = None) -> None:
        super().__init__(message)
        self.layer = layer
        self.infeasible = infeasible


class BackendError(CodegenError, ValueError):
    """A kind of machine that no code is generated for; the message lists those that there are."""


class ProgramError(CodegenError, ValueError):
    """A program file that is truncated, altered, foreign or of another version."""


class UnsupportedLayerError(CodegenError):
    """A layer of a type that no code can be emitted for on the machine."""

    def __init__(self, message: str, layer: str) -> None:
        super().__init__(message)
        self.layer = layer


class EmitError(CodegenError):
    """A plan that cannot be turned into instructions for the machine."""


class CapacityError(EmitError):
    """A program that needs more DRAM than the machine has."""

    def __init__(self, message: str, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class InputError(CodegenError, ValueError):
    """Arrays that do not match a graph's inputs: name, shape, element type or batch."""


class CutTermsWarning(UserWarning):
    """A layer adds terms that are larger than its fixed-point form can hold; results change."""
