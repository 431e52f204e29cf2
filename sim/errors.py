"""Errors of the machine part."""

from __future__ import annotations


class SimError(Exception):
    """Base of everything that `tvm_npu.sim` raises on purpose."""


class MachineError(SimError, ValueError):
    """A machine file or name that describes no usable machine."""


class KindError(MachineError):
    """A kind of machine that there is not, or that an installed package fails to provide."""


class IsaError(SimError, ValueError):
    """A field value, word or line of assembly that the instruction set does not have."""


class ElfError(SimError, ValueError):
    """An ELF file that the simulated core cannot run."""
