"""A run's events as a Chrome trace, which Perfetto and chrome://tracing open.

Processes are groups of units (a TLE, a cluster), threads are units; their slices are called by
layer and tile. Links, and the memory outside of the chip, have lanes that say when something moves
there; counters say how fast each link moves bytes and how full the memories on the chip are. Time
stamps are microseconds of simulated time from the first region's first cycle.
Format: "Trace Event Format" (JSON object form) of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.report.layer_range import TraceError, layer_range
from tvm_npu.report.memory import occupancy, rows_by_layer
from tvm_npu.report.placement import Refusal
from tvm_npu.report.runs import RegionRun
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.events import EventColumn, Events
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.units import LOADED, STORED

MOST_SLICES = 200_000
"""A trace holds no more, about 40 MB: what Perfetto opens at once."""
COUNTER_STEPS = 2_000
"""Of a region's time, for counters; lanes of links show no idle time that is shorter than one."""
_SLICE = '{"ph": "X"'
LAYERS, COUNTERS, CPU, FIRST_GROUP = 1, 2, 3, 4
"""Processes of every trace: the layers, the counters, operators of the CPU."""


@dataclass(frozen=True)
class Trace:
    """``content`` is the JSON. ``slices`` counts those of units; ``coarse`` names the layers of the
    asked range for whose events there was no room."""

    content: bytes
    slices: int
    coarse: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    """Layer number ``layer`` of a region: rows ``chosen`` of its events. ``begin_us`` is when the
    region began."""

    events: Events
    machine: MachineDescription
    layer: int
    chosen: NDArray[np.int64]
    begin_us: float

    @property
    def name(self) -> str:
        return self.events.names.layers[self.layer]

    def column(self, column: EventColumn) -> NDArray[np.int64]:
        return self.events.column(column)[self.chosen]

    def us(self, cycles: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.begin_us + cycles / self.machine.frequency_mhz


def make_trace(
    runs: Sequence[RegionRun],
    refusals: Sequence[Refusal] = (),
    layers: str | None = None,
    most_slices: int = MOST_SLICES,
) -> Trace:
    """Of the first image of ``runs``, which record events; ``layers`` as `layer_range` takes it
    (None: all). All events of a layer go in where there is room, the first one's always; of
    another layer a slice for each unit and stretch of time in which it works, pauses shorter than a
    `COUNTER_STEPS`th of all layers' time not counted."""
    parts = list(_parts(runs))
    if layers is not None:
        chosen = layer_range(layers, [part.name for part in parts])
        parts = [parts[number] for number in chosen]
    whole: list[_Part] = []
    coarse: list[_Part] = []
    lines: list[str] = []
    room, shortest_us = most_slices, _length_us(parts) / COUNTER_STEPS
    for number, part in enumerate(parts):
        fits = not number or len(part.chosen) <= room
        room -= len(part.chosen) if fits else 0
        (whole if fits else coarse).append(part)
        lines += _layer_lines(part, None if fits else shortest_us)
    slices = sum(line.startswith(_SLICE) for line in lines)
    machine, regions = runs[0].session.machine, list(_regions(parts))
    lines = [
        *_metadata(machine),
        *lines,
        *(line for part in regions for line in _link_lines(part)),
        *(line for part in regions for line in _counter_lines(part)),
        *(line for part in _regions(whole) for line in _memory_lines(part)),
        *_cpu_lines(refusals),
    ]
    header = {
        "displayTimeUnit": "ns",
        "otherData": {
            "clock": f"simulated time of {machine.name} at {machine.frequency_mhz:g} MHz; time "
            "stamps are microseconds from the first cycle",
            "machine": machine.name,
            "layers drawn coarsely": ", ".join(part.name for part in coarse) or "none",
        },
    }
    text = json.dumps(header)[:-1] + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
    return Trace(text.encode(), slices, tuple(part.name for part in coarse))


def _length_us(parts: Sequence[_Part]) -> float:
    """From the begin of the first event to the end of the last."""
    some = [part for part in parts if len(part.chosen)]
    ends = [part.us(part.events.end_cycles[part.chosen]).max() for part in some]
    begins = [part.us(part.events.begin_cycles[part.chosen]).min() for part in some]
    return float(max(ends) - min(begins)) if some else 0.0


def _parts(runs: Sequence[RegionRun]) -> Iterator[_Part]:
    begin_us = 0.0
    for run in runs:
        events, machine = run.events, run.session.machine
        if events is None or not len(events):
            raise TraceError("no events were recorded: a trace needs the cycle model")
        for layer, chosen in enumerate(rows_by_layer(events)):
            yield _Part(events, machine, layer, chosen, begin_us)
        begin_us += float(events.end_cycles.max()) / machine.frequency_mhz


def _metadata(machine: MachineDescription) -> Iterator[str]:
    """Names of processes and threads, in the machine's order."""
    groups = list(dict.fromkeys(unit.group for unit in machine.units() if unit.role != "memory"))
    processes = {LAYERS: "layers", COUNTERS: "links and memories", CPU: "CPU operators (not timed)"}
    processes.update({FIRST_GROUP + k: group or machine.name for k, group in enumerate(groups)})
    for number, name in processes.items():
        yield _named("process_name", number, 0, name=name)
        yield _named("process_sort_index", number, 0, sort_index=number)
    for thread, unit in enumerate(_units(machine)):
        process = FIRST_GROUP + groups.index(unit.group)
        yield _named("thread_name", process, thread, name=unit.name)
        yield _named("thread_sort_index", process, thread, sort_index=thread)
    for name, (thread, _) in _link_lanes(machine).items():
        yield _named("thread_name", COUNTERS, thread, name=name)
        yield _named("thread_sort_index", COUNTERS, thread, sort_index=thread)


def _link_lanes(machine: MachineDescription) -> dict[str, tuple[int, int]]:
    """Thread, and bits of the links that are drawn there, by the lane's name."""
    links, first = [link.name for link in machine.links()], len(_units(machine))
    outside = sum(1 << links.index(link.name) for link in (LOADED, STORED))
    masks = {"DRAM": outside, **{name: 1 << bit for bit, name in enumerate(links)}}
    return {name: (first + at, mask) for at, (name, mask) in enumerate(masks.items())}


def _units(machine: MachineDescription) -> list[Any]:
    return [unit for unit in machine.units() if unit.role != "memory"]


def _named(kind: str, process: int, thread: int, **arguments: Any) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": arguments})


def _layer_lines(part: _Part, shortest_us: float | None) -> Iterator[str]:
    """All of its events; with ``shortest_us`` what `_coarse_slices` makes of them."""
    if not len(part.chosen):
        return
    begin = part.us(part.events.begin_cycles[part.chosen])
    end = part.us(part.events.end_cycles[part.chosen])
    first, last = float(begin.min()), float(end.max())
    # Layers overlap where one loads ahead: each is an asynchronous slice of its own.
    name = json.dumps(part.name)
    own = f'"cat": "layer", "id": {part.layer}, "pid": {LAYERS}, "tid": 0, "name": {name}'
    yield f'{{"ph": "b", {own}, "ts": {first:.4f}}}'
    yield f'{{"ph": "e", {own}, "ts": {last:.4f}}}'
    if shortest_us is None:
        yield from _slices(part, begin, end)
    else:
        yield from _coarse_slices(part, begin, end, shortest_us)


def _regions(parts: Sequence[_Part]) -> Iterator[_Part]:
    """The layers of each region as one part: they overlap in time."""
    for events in dict.fromkeys(part.events for part in parts):
        ours = [part for part in parts if part.events is events]
        rows = np.sort(np.concatenate([part.chosen for part in ours]))
        if len(rows):
            yield replace(ours[0], chosen=rows)


def _slices(
    part: _Part, begin: NDArray[np.float64], end: NDArray[np.float64]
) -> Iterator[str]:
    names = part.events.names
    table = part.events.table[part.chosen]
    waits = table[:, EventColumn.WAITS] != 0
    what = _quoted(part)
    lanes = _lanes(part.machine)
    layer = json.dumps(part.name)[1:-1]
    times = np.stack([begin, end - begin], axis=-1)
    blocked = [f'"name": "waits {json.dumps(cause)[1:-1]}'.rstrip() for cause in names.causes]
    ends = {
        row: f'"args": {{"instruction": {row}, "what": {text}, "layer": "{layer}"}}}}'
        for row, text in what.items()
    }
    chosen = table[waits][:, [EventColumn.UNIT, EventColumn.WAITS, EventColumn.ROW]].tolist()
    for (unit, cause, row), (at, length) in zip(chosen, times[waits].tolist(), strict=True):
        yield (
            f'{_SLICE}, {blocked[cause]}", "cat": "wait", {lanes[unit]}, "ts": {at:.4f}, '
            f'"dur": {length:.4f}, {ends[row]}'
        )
    links = [
        json.dumps([link for k, link in enumerate(names.links) if mask >> k & 1])
        for mask in range(1 << len(names.links))
    ]
    streams = {int(stream): stream.name.lower() for stream in Stream}
    work = table[~waits]
    for (unit, _, row, _, stream, over, moved), tile, (at, length) in zip(
        work[:, : EventColumn.MAKER].tolist(), names.tile_texts(work), times[~waits].tolist(),
        strict=True,
    ):  # fmt: skip
        called = f"{layer} [{tile}]" if tile else layer
        extra = ""
        if over:
            extra = f', "bytes": {moved}, "stream": "{streams[stream]}", "links": {links[over]}'
        yield (
            f'{_SLICE}, "name": "{called}", "cat": "work", {lanes[unit]}, "ts": {at:.4f}, '
            f'"dur": {length:.4f}, "args": {{"instruction": {row}, "what": {what[row]}{extra}}}}}'
        )


def _coarse_slices(
    part: _Part, begin: NDArray[np.float64], end: NDArray[np.float64], shortest_us: float
) -> Iterator[str]:
    """What units do in longer stretches; waits are pauses."""
    unit_of, moved, name = part.column(EventColumn.UNIT), part.column(EventColumn.BYTES), part.name
    works = part.column(EventColumn.WAITS) == 0
    for unit, lane in enumerate(_lanes(part.machine)):
        rows = np.flatnonzero(works & (unit_of == unit))
        for own, at, until in _stretches(rows, begin, end, shortest_us):
            arguments = f'{{"events": {len(own)}, "bytes": {moved[own].sum()}}}'
            yield (
                f'{_SLICE}, "name": {json.dumps(name)}, "cat": "work", {lane}, "ts": {at:.4f}, '
                f'"dur": {until - at:.4f}, "args": {arguments}}}'
            )


def _stretches(
    rows: NDArray[np.int64],
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
    shortest_us: float,
) -> Iterator[tuple[NDArray[np.int64], float, float]]:
    """Of ``rows`` the stretches that are more than ``shortest_us`` apart: rows, begin, end."""
    rows = rows[np.argsort(begin[rows], kind="stable")]
    if not len(rows):
        return
    until = np.maximum.accumulate(end[rows])
    apart = np.flatnonzero(begin[rows][1:] - until[:-1] > shortest_us) + 1
    for first, last in zip([0, *apart.tolist()], [*apart.tolist(), len(rows)], strict=True):
        yield rows[first:last], float(begin[rows[first]]), float(until[last - 1])


def _lanes(machine: MachineDescription) -> list[str]:
    """Process and thread of each unit."""
    units = _units(machine)
    groups = list(dict.fromkeys(unit.group for unit in units))
    return [
        f'"pid": {FIRST_GROUP + groups.index(unit.group)}, "tid": {number}'
        for number, unit in enumerate(units)
    ]


def _quoted(part: _Part) -> dict[int, str]:
    """What the instructions of a part are called, as JSON."""
    names = {row: part.events.names.what[row] for row in _rows(part)}
    quoted = {name: json.dumps(name) for name in set(names.values())}
    return {row: quoted[name] for row, name in names.items()}


def _rows(part: _Part) -> list[int]:
    rows: list[int] = np.unique(part.events.table[part.chosen, EventColumn.ROW]).tolist()
    return rows


def _link_lines(part: _Part) -> Iterator[str]:
    """When something moved over a link, and how much: transfers that overlap are one slice."""
    links, moved = part.column(EventColumn.LINKS), part.column(EventColumn.BYTES)
    begin = part.us(part.events.begin_cycles[part.chosen])
    end = part.us(part.events.end_cycles[part.chosen])
    shortest_us = float(end.max() - begin.min()) / COUNTER_STEPS
    for name, (thread, mask) in _link_lanes(part.machine).items():
        over = np.flatnonzero(links & mask)
        for own, at, until in _stretches(over, begin, end, shortest_us):
            yield (
                f'{_SLICE}, "name": {json.dumps(name)}, "cat": "link", "pid": {COUNTERS}, '
                f'"tid": {thread}, "ts": {at:.4f}, "dur": {until - at:.4f}, '
                f'"args": {{"bytes": {moved[own].sum()}, "transfers": {len(own)}}}}}'
            )


def _counter_lines(part: _Part) -> Iterator[str]:
    """Bytes over each link by step of time, a transfer's spread evenly over its time."""
    links, moved = part.column(EventColumn.LINKS), part.column(EventColumn.BYTES)
    begin = part.us(part.events.begin_cycles[part.chosen])
    end = part.us(part.events.end_cycles[part.chosen])
    steps = max(1, min(COUNTER_STEPS, len(links)))
    edges = np.linspace(begin.min(), max(end.max(), begin.min() + 1e-6), steps + 1)
    for number, link in enumerate(part.events.names.links):
        over = (links >> number & 1) == 1
        if over.any():
            rates = spread(begin[over], end[over], moved[over], edges)
            yield from _counter(f"{link}, MB/s", edges, rates)


def _memory_lines(part: _Part) -> Iterator[str]:
    """How full memories are."""
    steps = max(1, min(COUNTER_STEPS, len(part.chosen)))
    for found in occupancy(part.events, part.chosen, part.machine, steps):
        times = part.us(found.edges_cycles)
        yield from _counter(f"{found.part} in use, %", times, 100 * found.share)


def spread(
    begin: NDArray[np.float64],
    end: NDArray[np.float64],
    amount: NDArray[np.int64],
    edges: NDArray[np.float64],
) -> NDArray[np.float64]:
    """``amount`` a unit of time in each step between ``edges``, each spread over begin to end."""
    length = np.maximum(end - begin, 1e-9)
    done = np.zeros(len(edges))
    order = np.sort(np.concatenate([begin, begin + length]))
    slope = np.zeros(len(order))
    np.add.at(slope, np.searchsorted(order, begin), amount / length)
    np.add.at(slope, np.searchsorted(order, begin + length), -amount / length)
    rate = np.cumsum(slope)
    total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(order))])
    done = np.interp(edges, order, total, left=0.0, right=float(total[-1]))
    return np.diff(done) / np.diff(edges)


def _counter(
    name: str, edges: NDArray[np.float64], values: NDArray[np.float64]
) -> Iterator[str]:
    """Only where the value changes; 0 at the end."""
    last = -1.0
    for at, value in zip(edges, [*values, 0.0], strict=True):
        if value != last:
            last = value
            yield (
                f'{{"ph": "C", "name": {json.dumps(name)}, "pid": {COUNTERS}, "ts": {at:.4f}, '
                f'"args": {{"value": {value:.3f}}}}}'
            )


def _cpu_lines(refusals: Sequence[Refusal]) -> Iterator[str]:
    """Operators of the CPU, in the model's order; nobody models how long they take."""
    for number, refusal in enumerate(refusals):
        yield json.dumps(
            {
                "ph": "i", "s": "t", "name": refusal.source or refusal.operator, "cat": "cpu",
                "pid": CPU, "tid": number, "ts": 0,
                "args": {
                    "operator": refusal.operator, "rule": refusal.rule,
                    "costs": "not known" if refusal.cost is None else str(refusal.cost),
                },
            }
        )  # fmt: skip
