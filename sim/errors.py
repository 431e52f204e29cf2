"""Errors of the machine part."""

from __future__ import annotations

LONGEST_MESSAGE = 8000
"""Characters: messages quote what they found, and that may be all of a file."""


def bounded(text: str) -> str:
    """``text``, cut in its middle where it is longer than messages are."""
    if len(text) <= LONGEST_MESSAGE:
        return text
    part = LONGEST_MESSAGE // 2
    return f"{text[:part]} ... {text[-part:]}"


class BoundedError(Exception):
    """An error whose text is cut in its middle where it is long."""

    def __str__(self) -> str:
        return bounded(super().__str__())


class SimError(BoundedError):
    """Base of everything that `tvm_npu.sim` raises on purpose."""


class MachineError(SimError, ValueError):
    """A machine file or name that describes no usable machine."""


class KindError(MachineError):
    """A kind of machine that there is not, or that an installed package fails to provide."""


class IsaError(SimError, ValueError):
    """A field value, word or line of assembly that the instruction set does not have."""


class OutOfReachError(IsaError):
    """Labels that are farther from an instruction than it can say."""

    def __init__(self, message: str, labels: frozenset[str]) -> None:
        super().__init__(message)
        self.labels = labels


class ElfError(SimError, ValueError):
    """An ELF file that the simulated core cannot run."""
