"""At which places in lines of a buffer the operands of vector instructions begin, and how many
lines they touch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from tvm_npu.codegen.snowflake.code.nodes import Instr
from tvm_npu.sim.snowflake.isa import LANES


class Places(NamedTuple):
    """Words ``first``, ``first`` + ``step`` and so on, counted in a line; all equally often."""

    first: int
    step: int

    @property
    def all(self) -> list[int]:
        return [(self.first + at) % LANES for at in range(0, LANES, self.step)]


ANY = Places(0, 1)


class Origins:
    """From which immediates the addresses of a block's operands are made: where they begin, and by
    what loops move them on. Blocks that differ in immediates only have the same."""

    def __init__(self, ops: Sequence[Instr]) -> None:
        begins: dict[int, list[int] | None] = {}
        steps: dict[int, list[int]] = {}
        moved = {op.dest: index for index, op in enumerate(ops) if op.sources == (op.dest,)}
        for index, op in enumerate(ops):
            if op.dest < 0 or moved.get(op.dest) == index:
                continue
            begins[op.dest] = _begin(index, op, begins)
            steps[op.dest] = [moved[op.dest]] if op.dest in moved else []
            if op.mnemonic != "mov":
                steps[op.dest] += [step for one in op.sources for step in steps.get(one, ())]
        self._known = {
            register: (begins.get(register), steps.get(register, []))
            for op in ops
            if op.mnemonic in ("mac", "max")
            for register in op.sources
        }

    def places(self, ops: Sequence[Instr]) -> dict[int, Places]:
        """Of the operands of traces, by their registers."""
        found = {}
        for register, (begin, steps) in self._known.items():
            if begin is None:
                found[register] = ANY
                continue
            first = sum([ops[index].immediate for index in begin]) % LANES
            step = gcd(LANES, *[ops[index].immediate for index in steps])
            found[register] = Places(first, step)
        return found


def _begin(index: int, op: Instr, begins: dict[int, list[int] | None]) -> list[int] | None:
    """The instructions whose immediates add up to what number ``index`` writes, but for whole
    lines; None where nobody knows."""
    if op.mnemonic == "movi":
        return [index]
    if op.mnemonic == "mov" and 1 << max(0, op.immediate) >= LANES:
        return []
    if op.mnemonic not in ("addi", "add"):
        return None
    found = [index] if op.mnemonic == "addi" else []
    for register in op.sources:
        part = begins.get(register)
        if part is None:
            return None
        found += part
    return found


@lru_cache(maxsize=4096)
def lines(words: int, places: Places) -> float:
    """Lines that ``words`` touch, on average over their ``places``."""
    return sum(-(-(place + words) // LANES) for place in places.all) / len(places.all)


@lru_cache(maxsize=4096)
def lines_of_both(words: int, first: Places, second: Places) -> float:
    """Lines of the operand that touches more."""
    some, others = (-(-(np.array(one.all) + words) // LANES) for one in (first, second))
    return float(np.maximum.outer(some, others).mean())
