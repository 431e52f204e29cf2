"""Time of programs that share an engine, event by event.

A program is a sequence of actions. What programs ask of the engine is served in the order in which
it is asked for, one transfer after another, and arrives under a key. A program that waits for a key
goes on when enough of it has come.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class Work(NamedTuple):
    """The program itself is busy."""

    cycles: float


class Ask(NamedTuple):
    """The engine shall work for so long; then one more of ``key`` has come."""

    cycles: float
    key: Hashable


class Signal(NamedTuple):
    """One more of ``key`` has come."""

    key: Hashable


class Wait(NamedTuple):
    """Until the first ``many`` of ``key`` that were asked for or signalled have come."""

    key: Hashable
    many: int = 1


Action = Work | Ask | Signal | Wait


def walked_cycles(programs: Sequence[Iterator[Action]]) -> float:
    """When the last program is through; the engine may not be, with what nobody waits for. What
    happens at one time happens in the order of ``programs``. ValueError where programs wait for
    what never comes."""
    return _Walk(programs).cycles()


class _Walk:
    def __init__(self, programs: Sequence[Iterator[Action]]) -> None:
        self.programs = programs
        self.ready = [(0.0, number) for number in range(len(programs))]
        heapify(self.ready)
        self.free = 0.0
        self.come: dict[Hashable, list[float]] = {}
        self.waiting: dict[Hashable, list[tuple[float, int, int]]] = {}

    def cycles(self) -> float:
        end = 0.0
        while self.ready:
            now, number = heappop(self.ready)
            end = max(end, now)
            self._go_on(now, number)
        stuck = sorted(repr(key) for key, entries in self.waiting.items() if entries)
        if stuck:
            raise ValueError(f"programs wait for what never comes: {', '.join(stuck)}")
        return end

    def _go_on(self, now: float, number: int) -> None:
        """Until the program works, waits or ends."""
        for action in self.programs[number]:
            if isinstance(action, Ask):
                self.free = max(self.free, now) + action.cycles
                self._comes(action.key, self.free)
            elif isinstance(action, Signal):
                self._comes(action.key, now)
            elif isinstance(action, Work):
                heappush(self.ready, (now + action.cycles, number))
                return
            else:
                times = self.come.get(action.key, [])
                if len(times) < action.many:
                    entry = (now, number, action.many)
                    self.waiting.setdefault(action.key, []).append(entry)
                    return
                if action.many and times[action.many - 1] > now:
                    heappush(self.ready, (times[action.many - 1], number))
                    return

    def _comes(self, key: Hashable, time: float) -> None:
        times = self.come.setdefault(key, [])
        times.append(time)
        entries = self.waiting.get(key)
        if not entries:
            return
        for since, number, count in entries:
            if len(times) == count:
                heappush(self.ready, (max(since, time), number))
        entries[:] = [one for one in entries if one[2] > len(times)]
