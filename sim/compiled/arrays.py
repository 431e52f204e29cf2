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


@device
def copy_run(target: Any, at: int, source: Any, begin: int, count: int, step: int) -> None:
    """target[at + k] = source[begin + k * step] for k < ``count``, cut to the target's type, for
    vectors that do not overlap; nobody checks that they are long enough.

    A slice is indexed from 0 on, so LLVM sees that no index is negative, and takes many elements
    at once."""
    to = target[at : at + count]
    if step == 1:
        of = source[begin : begin + count]
        for k in range(count):
            to[k] = of[k]
    else:
        for k in range(count):
            to[k] = source[begin + k * step]
