"""`tvm_npu.sim.printable`, as the commands name it."""

from __future__ import annotations

from tvm_npu.sim.printable import one_line, shown

__all__ = ["one_line", "shown", "told_of"]


def told_of(path: object, error: Exception) -> str:
    """One line about a file that is named in front of it, and so not again."""
    return one_line(str(error).removeprefix(f"{path}: ").removeprefix(f"{path} "))
