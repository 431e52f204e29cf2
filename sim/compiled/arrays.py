"""Arrays in compiled code, where NumPy's way takes numba long to compile."""

from __future__ import annotations

from typing import Any

from tvm_npu.sim.compiled.decorators import device


@device
def copy_into(target: Any, source: Any) -> None:
    """``target[: len(source)] = source`` for vectors that do not overlap;
    nobody checks that ``target`` is long enough. An assignment of slices checks, and the text of
    its error alone takes numba two seconds."""
    for i in range(len(source)):
        target[i] = source[i]
