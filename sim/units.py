"""What a machine consists of, for statistics, events and drawings of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["control", "mac", "dma", "memory"]
"""Executes the instructions of others' work; computes; moves data; holds data."""


@dataclass(frozen=True)
class Unit:
    """One unit or memory: ``part`` is what it is (``mac``, ``mb0``), ``number`` which of several.
    ``group`` names what it belongs to together with others (a TLE), ``capacity_bytes`` is a
    memory's size."""

    part: str
    role: Role
    number: int | None = None
    group: str = ""
    capacity_bytes: int = 0

    @property
    def name(self) -> str:
        """``mac 3``, or ``mover`` where there is one only."""
        return self.part if self.number is None else f"{self.part} {self.number}"


@dataclass(frozen=True)
class Link:
    """A way that data takes between memories: ``name`` as in ``loaded`` (keys in files are
    ``loaded_bytes``), ``verb`` for headings, ``meaning`` for sentences (17 bytes ...)."""

    name: str
    verb: str
    meaning: str


LOADED = Link("loaded", "load", "loaded")
STORED = Link("stored", "store", "stored")
"""Between the memory outside of the chip and those on it: links that every machine has."""
