"""What the units of a machine did when: the events of a run, for traces and views of memories.

A simulator records events only when it is given a sink; then it hands over all events of a run at
its end, as `Events`: columns for whoever sums and draws many of them, and a sequence of `Event`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.streams import Stream


class EventColumn(IntEnum):
    """Columns of the table that simulators fill. UNIT counts the machine's units that are no
    memories; WAITS is 0 or the number of what the unit waits for in `Names.causes`; ROW is the
    instruction's number in the code, LAYER its layer; LINKS has a bit for each of the machine's
    links. Where a store to the memory outside of the chip writes, if its machine says it: RUN_BYTES
    bytes from BEGIN on, counted from the machine's base address, RUNS times, RUN_STEP apart, and
    all of those GROUPS times, GROUP_STEP apart; MAKER counts in `Names.makers`. Behind these
    columns each kind has its own."""

    UNIT = 0
    WAITS = 1
    ROW = 2
    LAYER = 3
    STREAM = 4
    LINKS = 5
    BYTES = 6
    MAKER = 7
    BEGIN = 8
    RUN_BYTES = 9
    RUNS = 10
    RUN_STEP = 11
    GROUPS = 12
    GROUP_STEP = 13
    OWN = 14


@dataclass(frozen=True)
class Access:
    """Bytes begin..end of a memory (a unit's name) that an event reads or writes. In DRAM they
    count from the machine's base address."""

    memory: str
    begin: int
    end: int
    writes: bool


@dataclass(frozen=True, eq=False)
class Spans:
    """What many events read and write, a row each, as `Access` says it of one; ``part`` [K] counts
    in ``parts``, ``event`` [K] the rows of the table. Units of a part are not told apart."""

    parts: tuple[str, ...]
    event: NDArray[np.int64]
    part: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    writes: NDArray[np.bool_]

    @staticmethod
    def joined(parts: tuple[str, ...], columns: Sequence[tuple[Any, ...]]) -> Spans:
        """Of (events, part, begin, end, writes) [each N or one value]; empty ones are left out."""
        rows = [np.stack(np.broadcast_arrays(*(np.asarray(c, np.int64) for c in one)), axis=-1)
                for one in columns]  # fmt: skip
        table = np.concatenate([np.zeros((0, 5), np.int64), *rows])
        table = table[table[:, 3] > table[:, 2]]
        event, part, begin, end, writes = table.T
        return Spans(parts, event, part, begin, end, writes != 0)


def no_spans(table: NDArray[np.int64]) -> Spans:
    """Of machines that do not say what their events read and write."""
    return Spans.joined((), ())


@dataclass(frozen=True)
class Event:
    """One unit from ``begin_cycles`` to ``end_cycles``: busy with the instruction number
    ``instruction``, called ``what``, or, when ``waits``, blocked by it. ``tile`` are the indices of
    the tile it belongs to. A transfer moves ``bytes`` of ``stream`` over each of ``links``.
    ``cause`` is what a unit waits for, on machines that tell."""

    unit: str
    begin_cycles: float
    end_cycles: float
    waits: bool
    what: str
    instruction: int
    layer: str
    tile: Mapping[str, int] = field(default_factory=dict)
    stream: str = ""
    links: tuple[str, ...] = ()
    bytes: int = 0
    accesses: tuple[Access, ...] = ()
    cause: str = ""


def tile_text(tile: Mapping[str, int]) -> str:
    """As ``row 3, column 0``; empty for no tile."""
    return ", ".join([f"{name} {index}" for name, index in tile.items()])


@dataclass(frozen=True, eq=False)
class Names:
    """What the numbers in a table of events mean. ``what`` [I] is by instruction; ``tile_of`` and
    ``accesses_of`` take a row of the table, ``spans_of`` a whole one. ``causes`` begins with "",
    for events that are no waits. ``tiles_of`` is `tile_texts` where a kind can do that faster than
    row by row. ``makers`` are the parts of a machine that share a layer's results
    (cores, compute units)."""

    units: tuple[str, ...]
    links: tuple[str, ...]
    layers: tuple[str, ...]
    what: Sequence[str]
    tile_of: Callable[[NDArray[np.int64]], Mapping[str, int]]
    accesses_of: Callable[[NDArray[np.int64]], tuple[Access, ...]]
    causes: tuple[str, ...] = ("", "")
    spans_of: Callable[[NDArray[np.int64]], Spans] = no_spans
    makers: tuple[str, ...] = ()
    tiles_of: Callable[[NDArray[np.int64]], list[str]] | None = None

    def tile_texts(self, table: NDArray[np.int64]) -> list[str]:
        """The tile of each row in words (`tile_text`)."""
        if self.tiles_of is not None:
            return self.tiles_of(table)
        return [tile_text(self.tile_of(row)) for row in table]


class Events(Sequence[Event]):
    """The events of one run, by their begin, then by unit. ``table`` [N, columns] has
    `EventColumn`s, ``begin_cycles`` and ``end_cycles`` are [N]."""

    def __init__(
        self, names: Names, table: NDArray[np.int64], times: NDArray[np.float64]
    ) -> None:
        """``times`` is [N, 2]: begin, end."""
        order = np.lexsort((table[:, EventColumn.UNIT], times[:, 1], times[:, 0]))
        self.names = names
        self.table = table[order]
        self.begin_cycles = times[order, 0]
        self.end_cycles = times[order, 1]

    def column(self, column: EventColumn) -> NDArray[np.int64]:
        return self.table[:, column]

    def spans(self) -> Spans:
        """Bytes of memories that all events read and write."""
        return self.names.spans_of(self.table)

    def busy_cycles(self) -> dict[str, float]:
        """Cycles of each unit's events that are no waits, summed."""
        return self._cycles(self.column(EventColumn.WAITS) == 0)

    def wait_cycles(self) -> dict[str, float]:
        return self._cycles(self.column(EventColumn.WAITS) != 0)

    def wait_cycles_by_cause(self, layer: str | None = None) -> dict[str, dict[str, float]]:
        """Cycles that each unit waited, by what it waited for; units that never did are left out.
        Of all layers unless one is named."""
        waits, found = self.column(EventColumn.WAITS), {}
        of_layer = np.full(len(self), True)
        if layer is not None:
            of_layer = self.column(EventColumn.LAYER) == self.names.layers.index(layer)
        for number, cause in enumerate(self.names.causes):
            if number:
                cycles = self._cycles((waits == number) & of_layer)
                found[cause] = {unit: total for unit, total in cycles.items() if total}
        units = [unit for unit in self.names.units if any(unit in of for of in found.values())]
        return {
            unit: {cause: of[unit] for cause, of in found.items() if unit in of} for unit in units
        }

    def _cycles(self, chosen: NDArray[np.bool_]) -> dict[str, float]:
        cycles = np.bincount(
            self.column(EventColumn.UNIT)[chosen],
            (self.end_cycles - self.begin_cycles)[chosen],
            minlength=len(self.names.units),
        )
        return dict(zip(self.names.units, cycles.tolist(), strict=True))

    def bytes_by_link(self) -> dict[str, dict[str, int]]:
        """As in statistics: bytes by stream for each link."""
        found = {}
        streams, moved = self.column(EventColumn.STREAM), self.column(EventColumn.BYTES)
        for number, link in enumerate(self.names.links):
            over = (self.column(EventColumn.LINKS) >> number) & 1
            sums = {s: int(moved[(streams == s) & (over == 1)].sum()) for s in Stream}
            found[link] = {s.name.lower(): total for s, total in sums.items() if total}
        return found

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...

    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        if isinstance(index, slice):
            return [self._event(k) for k in range(len(self))[index]]
        return self._event(range(len(self))[index])

    def __iter__(self) -> Iterator[Event]:
        return (self._event(k) for k in range(len(self)))

    def _event(self, index: int) -> Event:
        row, names = self.table[index], self.names
        unit, waits, instruction, layer, stream, links, moved = row[: EventColumn.MAKER].tolist()
        return Event(
            unit=names.units[unit],
            begin_cycles=float(self.begin_cycles[index]),
            end_cycles=float(self.end_cycles[index]),
            waits=bool(waits),
            what=names.what[instruction],
            instruction=instruction,
            layer=names.layers[layer] if layer < len(names.layers) else "",
            tile=names.tile_of(row),
            stream=Stream(stream).name.lower() if links else "",
            links=tuple(link for k, link in enumerate(names.links) if links >> k & 1),
            bytes=moved,
            accesses=names.accesses_of(row),
            cause=names.causes[waits],
        )


class EventSink(Protocol):
    """Where the events of runs go."""

    def record(self, events: Events) -> Any:
        """Takes the events of one run that has ended; not called for one that trapped."""


class EventLog:
    """A sink that keeps the events of all runs."""

    def __init__(self) -> None:
        self.runs: list[Events] = []

    def record(self, events: Events) -> None:
        self.runs.append(events)
