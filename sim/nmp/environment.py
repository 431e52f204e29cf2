"""What a program finds around it on a core: bytes that it must not touch, and a console.

Compiled code asks here before it stores; `environment_arrays` makes the state that it asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.sim.compiled.reductions import count_below
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.state import Array, State

OVERWRITTEN = -2
"""The operation of a word whose bytes a store has changed."""
BAD_DESCRIPTOR = -9
"""What a write to something else than the console returns (EBADF, as on Linux)."""
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2

Range = tuple[int, int]
"""First byte and the one behind the last."""


@dataclass(frozen=True)
class Environment:
    """``read_only`` bytes refuse stores (None: the code's), ``unreadable`` ones loads, in ranges
    that do not overlap, those of ``stack_guard`` any access of a core. The console keeps the first
    ``console_bytes``; with 0 there is none."""

    read_only: tuple[Range, ...] | None = None
    stack_guard: Range = (0, 0)
    console_bytes: int = 0
    unreadable: tuple[Range, ...] = ()


def environment_arrays(environment: Environment, code: Range) -> dict[str, Array]:
    """The fields of a state that hold an environment; ``code`` is where the program's code lies."""
    read_only = (code,) if environment.read_only is None else environment.read_only
    return dict(
        read_only=np.array(sorted(read_only), np.int64).reshape(-1, 2),
        unreadable=np.array(sorted(environment.unreadable), np.int64).reshape(-1, 2),
        stack_guard=np.array(environment.stack_guard, np.int64),
        console=np.zeros(environment.console_bytes, np.uint8),
        console_count=np.zeros(1, np.int64),
    )


@device
def range_met(ranges: Array, begin: int, end: int) -> int:
    """The first of the ranges that an access to begin..end meets; -1: none."""
    k = count_below(ranges[:, 1], begin + 1)
    return k if k < len(ranges) and ranges[k, 0] < end else -1


@device
def meets_code(s: State, begin: int, end: int) -> bool:
    return begin < s.code_base[0] + 4 * len(s.decoded) and s.code_base[0] < end


@device
def note_stored(s: State, begin: int, end: int) -> None:
    """Words of the code in begin..end are no instructions any more."""
    first = max(0, (begin - s.code_base[0]) >> 2)
    last = min(len(s.decoded), (end - s.code_base[0] + 3) >> 2)
    for row in range(first, last):
        s.decoded[row, 0] = OVERWRITTEN
        s.counters[2] = 1


@device
def put(s: State, offset: int, size: int) -> None:
    """Bytes of DRAM to the console; what finds no room there counts alone."""
    at = s.console_count[0]
    for k in range(min(size, len(s.console) - at)):
        s.console[at + k] = s.dram[offset + k]
    s.console_count[0] = at + size
