"""Which instructions of Snowflake programs nothing orders: written from docs/snowflake.md, "Order".

What an instruction touches are sets of words, each a Python integer with a bit a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

Touched = dict[tuple[str, int], int]
"""By memory and its number (of a CU, of a vMAC, or 0)."""

Place = tuple[int, int]
"""Cluster and row of its code."""

Race = tuple[Place, Place, str]
"""An instruction, a later one that must not run beside it, and the memory."""


def span(begin: int, words: int, runs: int = 1, step: int = 0) -> int:
    """The set of the words of runs."""
    one, found = (1 << words) - 1, 0
    for k in range(runs):
        found |= one << begin + k * step
    return found


@dataclass
class Operation:
    """A vector instruction, a load or a store."""

    unit: str
    row: int
    reads: Touched = field(default_factory=dict)
    writes: Touched = field(default_factory=dict)

    def read(self, memory: str, number: int, words: int) -> None:
        self.reads[memory, number] = self.reads.get((memory, number), 0) | words

    def write(self, memory: str, number: int, words: int) -> None:
        self.writes[memory, number] = self.writes.get((memory, number), 0) | words

    def conflicts(self, later: Operation) -> set[str]:
        """Memories in which ``later`` needs this one to be complete."""
        if self.unit == later.unit:
            return _common(self.writes, later.reads) if self.unit == "vector" else set()
        return (
            _common(self.writes, later.reads) | _common(self.writes, later.writes)
            | _common(self.reads, later.writes)
        )  # fmt: skip


def _common(one: Touched, other: Touched) -> set[str]:
    return {key[0] for key, words in one.items() if words & other.get(key, 0)}


class Order:
    """Operations of a cluster, and how many of each unit are known to be complete."""

    def __init__(self, cluster: int, depths: Mapping[str, int]) -> None:
        self.cluster, self.depths = cluster, depths
        self.issued: dict[str, list[Operation]] = {unit: [] for unit in depths}
        self.known = dict.fromkeys(depths, 0)
        self.since_barrier: list[Operation] = []
        self.races: set[Race] = set()
        self.beside = 0  # operations that issued while another unit may be at work

    def know(self, unit: str, pending: int) -> None:
        """At most so many operations of a unit are incomplete."""
        self.known[unit] = max(self.known[unit], len(self.issued[unit]) - pending)

    def room(self, unit: str) -> None:
        """One more operation has a place in the unit's queue."""
        self.know(unit, self.depths[unit] - 1)

    def issue(self, new: Operation) -> bool:
        """Whether it may run beside one that it must not run beside."""
        found = set[Race]()
        for unit, operations in self.issued.items():
            self.beside += unit != new.unit and self.known[unit] < len(operations)
            for earlier in operations[self.known[unit] :]:
                for memory in earlier.conflicts(new):
                    found.add(((self.cluster, earlier.row), (self.cluster, new.row), memory))
        self.issued[new.unit].append(new)
        if new.unit != "vector":
            self.since_barrier.append(new)
        self.races |= found
        return bool(found)


def between_clusters(orders: list[Order]) -> set[Race]:
    """What one stores and another touches without a barrier in between; forgets it then."""
    found = set[Race]()
    for one, other in permutations(orders, 2):
        for store in one.since_barrier:
            for moved in other.since_barrier:
                both = _common(store.writes, moved.reads)
                if one.cluster < other.cluster:
                    both |= _common(store.writes, moved.writes)
                if "memory" in both:
                    places = (one.cluster, store.row), (other.cluster, moved.row)
                    found.add((*places, "memory"))
    for order in orders:
        order.since_barrier.clear()
    return found
