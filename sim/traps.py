"""Why a simulated machine stops against its program's will, whatever its kind.

A kind keeps its own codes and the texts that belong to them: an ``IntEnum`` and a dictionary of
format strings. What it raises is the `Trap` of this module. A code for more work than `sim.limits`
allow is called BUDGET in every kind, one for more instructions RUNAWAY.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from tvm_npu.sim.errors import SimError
from tvm_npu.sim.printable import shown
from tvm_npu.sim.texts import cut

LONGEST_NAME = 200
"""Of a layer, in a message: a file can say names of any length, of each core that waits."""

MOST_WAITERS = 32
"""Named in a message; there may be 512 cores."""


@dataclass(frozen=True)
class Place:
    """Where a unit stands: ``unit`` (as ``core 3``; empty on a machine with one control unit), its
    ``position`` in the code as messages say it (``at 0x40000010``, ``instruction 7``), the number
    ``index`` of the instruction and its ``address`` as far as there are such, the text of the
    ``instruction``, and what it works on: layer, tile indices, values of registers."""

    unit: str = ""
    position: str = ""
    index: int | None = None
    address: int | None = None
    instruction: str = ""
    layer: str = ""
    tile: Mapping[str, int] = field(default_factory=dict)
    registers: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [self.unit, self.position]
        if self.instruction:
            parts.append(f"({self.instruction})")
        if self.layer:
            parts.append(f"in layer {cut(repr(self.layer[:LONGEST_NAME]), LONGEST_NAME)}")
        if self.tile:
            parts.append("tile " + ", ".join(f"{shown(k)}={v}" for k, v in self.tile.items()))
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Waiter:
    """A unit that waits for ever, and what for."""

    place: Place
    waits_for: str

    def __str__(self) -> str:
        return f"{self.place} waits for {self.waits_for}"


class Trap(SimError):
    """A stop: the kind's own ``code``, its ``place``, what is wrong (``detail``); in a deadlock
    ``waiters`` has all units that wait, and ``place`` is the first one's."""

    def __init__(
        self, code: IntEnum, place: Place, detail: str, waiters: tuple[Waiter, ...] = ()
    ) -> None:
        super().__init__(code, place, detail, waiters)
        self.code, self.place, self.detail, self.waiters = code, place, detail, waiters

    @property
    def beyond_work(self) -> bool:
        """Whether the run took more work than it may."""
        return self.code.name == "BUDGET"

    @property
    def beyond_instructions(self) -> bool:
        """Whether the run took more instructions than it may."""
        return self.code.name == "RUNAWAY"

    def __str__(self) -> str:
        if self.waiters:
            named = [str(waiter) for waiter in self.waiters[:MOST_WAITERS]]
            if len(self.waiters) > MOST_WAITERS:
                named.append(f"and {len(self.waiters) - MOST_WAITERS} more wait")
            return "deadlock: " + "; ".join(named)
        text = f"{self.place}: {self.detail}"
        if self.place.registers:
            values = ", ".join(f"{name} {value}" for name, value in self.place.registers.items())
            text += f" [{values}]"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return Trap, (self.code, self.place, self.detail, self.waiters)
