"""Which instructions of a program on one core nothing orders: written from docs/isa-nmp.md,
"Transfers".

Operations of the MAC unit end in their order, transfers too; which of them have ended is known from
semaphores that were waited for. All states that agree with these are kept: numbers of operations
and of transfers that are complete.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tvm_npu.sim.nmp.machine import NmpMachine

Span = tuple[int, int, int]
"""Memory, first byte, byte behind the last; of MB2 elements."""

NEVER = 1 << 60


class Use(NamedTuple):
    """An operation or a transfer: the semaphore that it signals, what it touches, when it issued at
    the latest, in cycles."""

    sem: int
    spans: list[Span]
    issued: int


class Order:
    """``races``: pcs of instructions that may have met what they must not meet; ``certain``: of
    those that have, since nothing else has become complete in so few cycles."""

    def __init__(self, machine: NmpMachine) -> None:
        self._machine = machine
        self._operations: list[Use] = []
        self._transfers: list[Use] = []
        self._complete = {(0, 0)}
        self._signalled = Counter[int]()
        self._taken = Counter[int]()
        self._now = 0
        self.races: set[int] = set()
        self.certain: set[int] = set()

    def step(self, cycles: int) -> None:
        """An instruction that takes no longer has issued."""
        self._now += cycles

    def signal(self, sem: int, count: int) -> None:
        self._signalled[sem] += count

    def wait(self, sem: int, count: int) -> None:
        """So many signals were taken: the core may have waited for them."""
        self._taken[sem] += count
        self._keep({state for state in self._states() if self._enough(sem, *state)})
        self._now += NEVER

    def _enough(self, sem: int, operations: int, transfers: int) -> bool:
        done = [*self._operations[:operations], *self._transfers[:transfers]]
        signals = sum(use.sem == sem for use in done) if sem else 0
        return self._signalled[sem] + signals >= self._taken[sem]

    def _states(self) -> set[tuple[int, int]]:
        """What may be complete by now."""
        low = [min(state[k] for state in self._complete) for k in range(2)]
        every = {(i, j) for i in range(low[0], len(self._operations) + 1)
                 for j in range(low[1], len(self._transfers) + 1)}  # fmt: skip
        return {(i, j) for i, j in every if any(a <= i and b <= j for a, b in self._complete)}

    def _keep(self, states: set[tuple[int, int]]) -> None:
        assert states, "a wait that has ended without its signals"
        self._complete = states

    def operate(self, pc: int, sem: int, spans: list[Span]) -> None:
        """An operation issues when those before it are complete."""
        if any(i < len(self._operations) for i, _ in self._complete):
            self._now += NEVER
        self._keep({(i, j) for i, j in self._states() if i == len(self._operations)})
        first = min(j for _, j in self._complete)
        self._meet(pc, spans, self._transfers[first:], self._machine.dme.setup_cycles)
        self._operations.append(Use(sem, spans, self._now))

    def move(self, pc: int, sem: int, spans: list[Span]) -> None:
        """A transfer issues when the queue has a place."""
        first = len(self._transfers) - self._machine.dme.queue_depth + 1
        if any(j < first for _, j in self._complete):
            self._now += NEVER
        self._keep({(i, j) for i, j in self._states() if j >= first})
        last = min(i for i, _ in self._complete)
        self._meet(pc, spans, self._operations[last:], self._machine.mac.setup_cycles)
        self._transfers.append(Use(sem, spans, self._now))

    def _meet(self, pc: int, spans: list[Span], others: list[Use], least_cycles: float) -> None:
        for other in others:
            if any(self._clash(one, two) for one in spans for two in other.spans):
                self.races.add(pc)
                if self._now - other.issued < least_cycles:
                    self.certain.add(pc)

    def _clash(self, one: Span, other: Span) -> bool:
        if one[0] != other[0] or one[1] >= one[2] or other[1] >= other[2]:
            return False
        if self._machine.memories.ports == 1:
            return True
        return one[1] < other[2] and other[1] < one[2]
