"""What a run may take of the host, whatever the program says: for programs of other people."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from tvm_npu.sim.errors import SimError
from tvm_npu.sim.texts import shown

MOST_WORK = 1 << 40
"""Products, elements and bytes of a run: minutes to an hour of simulation."""

MOST = (1 << 63) - 1
"""Of any limit: what the simulators' counters hold."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_PART = re.compile(r"(?P<name>[a-z_]+)=(?P<number>[0-9]{1,19})(?P<unit>[kmgt]?)", re.IGNORECASE)


class LimitError(SimError):
    """A program or machine that needs more than the limits say."""


@dataclass(frozen=True)
class Limits:
    """``work`` bounds what a run does: products, elements and bytes that instructions work on,
    each one; ``instructions`` the instructions of all control units (None: the kind's own limit).
    ``dram_bytes`` bounds the program's image, ``host_bytes`` the memory that one simulated device
    takes here, both None for no other limit than the machine's."""

    work: int = MOST_WORK
    instructions: int | None = None
    dram_bytes: int | None = None
    host_bytes: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None and item.default is None:
                continue
            if type(value) is not int or not 1 <= value <= MOST:
                raise LimitError(
                    f"limit {item.name} is {shown(value)}; a whole number from 1 to {MOST}"
                )

    @classmethod
    def parse(cls, text: str) -> Limits:
        """``work=1g,host_bytes=512m``: names and numbers; k, m, g and t are powers of 1024. Raises
        LimitError."""
        if not isinstance(text, str):
            raise LimitError(f"limits are a {type(text).__name__}; expected a text like work=1g")
        known = [item.name for item in fields(cls)]
        found: dict[str, int] = {}
        for part in text.split(","):
            match = _PART.fullmatch(part.strip())
            if match is None or match["name"] not in known:
                raise LimitError(
                    f"limit {part.strip()[:80]!r}; write NAME=NUMBER, k, m, g or t behind it, with "
                    f"one of {', '.join(known)}"
                )
            if match["name"] in found:
                raise LimitError(f"limit {match['name']} is given twice; give it once")
            found[match["name"]] = int(match["number"]) * _UNITS[match["unit"].lower()]
        return replace(cls(), **found)  # type: ignore[arg-type]

    def lowered(self, instructions: int) -> Limits:
        """With ``instructions`` where that is fewer than it has. Raises LimitError."""
        both = replace(self, instructions=instructions)
        return self if (self.instructions or MOST) < instructions else both

    def check_memory(self, what: str, dram_bytes: int, host_bytes: int) -> None:
        """LimitError when a program needs more than it may."""
        for name, needed in (("dram_bytes", dram_bytes), ("host_bytes", host_bytes)):
            allowed = getattr(self, name)
            if allowed is not None and needed > allowed:
                raise LimitError(
                    f"{what} needs {needed} bytes, limit {name} allows {allowed}; raise it for a "
                    "program that you trust"
                )


DEFAULT = Limits()


def check_limits(limits: object) -> None:
    """LimitError for what are no limits."""
    if not isinstance(limits, Limits):
        raise LimitError(
            f"limits are a {type(limits).__name__}; expected Limits, such as "
            "Limits.parse('work=1g')"
        )
