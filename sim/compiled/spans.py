"""How far the operands of an instruction reach, in numbers that cannot wrap.

Counts and strides of an instruction are numbers that anybody may have written: their products may
need more than 64 bits. Every simulator computes what an operand takes with the functions here,
compares it with the memory before it touches an element, and then loops to the counts that it has
compared. What would be more than `BEYOND` stays there; no memory has so much, so a size that fits
a memory is exact.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from tvm_npu.sim.compiled.decorators import device

BEYOND = 1 << 61
"""The largest number; three of them still have a sum."""


@intrinsic
def _multiply(typing_context: Any, a: Any, b: Any) -> Any:
    """(product modulo 2**64, whether that is not the product)."""
    pair = types.Tuple((types.int64, types.boolean))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        both = builder.smul_with_overflow(*arguments)
        parts = [builder.extract_value(both, place) for place in range(2)]
        return context.make_tuple(builder, pair, parts)

    return pair(types.int64, types.int64), generate


@device
def product(a: int, b: int) -> int:
    """a * b, from -`BEYOND` to `BEYOND`."""
    exact, wrapped = _multiply(a, b)  # type: ignore[call-arg, var-annotated]
    if wrapped or exact > BEYOND or exact < -BEYOND:
        return BEYOND if (a < 0) == (b < 0) else -BEYOND
    return exact  # type: ignore[no-any-return]


@device
def volume(a: int, b: int, c: int) -> int:
    """a * b * c of counts, none negative."""
    if c == 0:
        return 0
    return product(product(a, b), c)


@device
def reach(size: int, count: int, step: int) -> int:
    """Where the last of ``count`` runs ends: each takes ``size``, they begin at 0, ``step``, ...
    None of the three is negative; nothing is reached where there is no run or an empty one."""
    if size == 0 or count == 0:
        return 0
    return min(product(count - 1, step) + size, BEYOND)


@device
def extent(begin: int, size: int, runs: int, step: int) -> tuple[int, int]:
    """Where ``runs`` of a size, a step apart from ``begin`` on, begin and end altogether; the step
    may be negative."""
    far = product(runs - 1, step)
    return begin + min(0, far), begin + max(0, far) + size
