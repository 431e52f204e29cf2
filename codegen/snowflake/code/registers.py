"""Registers for virtual ones: by how long each is alive, over loops too."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_npu.codegen.snowflake.code.nodes import FIRST_VIRTUAL, ONE, Instr

BANK_OFFSET, BANK_PLACE, SPARE = ONE - 3, ONE - 2, ONE - 1
"""Registers that the change of banks uses; SPARE is also what fills delay slots, and is never
read but there."""
USABLE = BANK_OFFSET
"""Scalar registers 0 to USABLE - 1 are for blocks."""


class OutOfRegisters(Exception):
    """A block has more values alive at a time than there are registers."""


def assigned(
    ops: Sequence[Instr | None], loops: Sequence[tuple[int, int]]
) -> dict[int, int]:
    """A scalar register for each virtual one. ``loops`` are (first, last) positions, branch and
    delay slots included; a value from outside that a loop uses lives until its end."""
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    for position, op in enumerate(ops):
        if op is None:
            continue
        for register in op.sources:
            if register >= FIRST_VIRTUAL:
                end[register] = position
        if op.dest >= FIRST_VIRTUAL:
            begin.setdefault(op.dest, position)
            end.setdefault(op.dest, position)
            end[op.dest] = max(end[op.dest], position)
    for register, first in begin.items():
        changed = True
        while changed:
            changed = False
            for low, high in loops:
                if first < low <= end[register] < high:
                    end[register] = high
                    changed = True
    free = list(range(USABLE - 1, -1, -1))
    active: list[tuple[int, int]] = []
    places: dict[int, int] = {}
    for register in sorted(begin, key=lambda one: (begin[one], one)):
        still = []
        for last, place in active:
            if last <= begin[register]:
                free.append(place)
            else:
                still.append((last, place))
        active = still
        if not free:
            raise OutOfRegisters
        place = free.pop()
        places[register] = place
        active.append((end[register], place))
    return places
