"""How full the memories of a machine are: the highest byte used by layer, and bytes that hold what
is still needed, over the time of a layer. Made of events; kinds that do not say which bytes their
events touch give none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.events import EventColumn, Events, Spans
from tvm_npu.sim.statistics import DRAM

ADDRESS_BINS = 64
"""Pieces of a memory that are told apart in `occupancy`."""
EVENTS_AT_ONCE = 1 << 14
"""Of which spans are made: those of an event may take several hundred bytes."""


def capacities(machine: MachineDescription) -> dict[str, int]:
    """Bytes of one memory of each part on the chip."""
    return {
        unit.part: unit.capacity_bytes
        for unit in machine.units()
        if unit.role == "memory" and unit.part != DRAM
    }


def peaks_by_layer(events: Events) -> list[dict[str, int]]:
    """For each layer the bytes of a memory of each part up to the highest one used."""
    parts = events.names.spans_of(events.table[:0]).parts
    highest = np.zeros((len(events.names.layers) + 1, len(parts)), np.int64)
    for first in range(0, len(events), EVENTS_AT_ONCE):
        table = events.table[first : first + EVENTS_AT_ONCE]
        spans = events.names.spans_of(table)
        layers = table[:, EventColumn.LAYER][spans.event]
        np.maximum.at(highest, (layers, spans.part), spans.end)
    kept = [(number, part) for number, part in enumerate(parts) if part != DRAM]
    return [
        {part: int(row[number]) for number, part in kept if row[number]} for row in highest[:-1]
    ]


@dataclass(frozen=True, eq=False)
class Occupancy:
    """Of a part's memories over ``edges_cycles`` [T + 1]: ``share`` [T] of their bytes, all units
    together, hold something that is still read before it is written again."""

    part: str
    edges_cycles: NDArray[np.float64]
    share: NDArray[np.float64]


def rows_by_layer(events: Events) -> list[NDArray[np.int64]]:
    """For each layer its events, waits included."""
    layers = np.ascontiguousarray(events.column(EventColumn.LAYER))
    order = np.argsort(layers, kind="stable")
    bounds = np.searchsorted(layers[order], np.arange(len(events.names.layers) + 1))
    return [order[begin:end] for begin, end in zip(bounds, bounds[1:], strict=False)]


def occupancy(
    events: Events, chosen: NDArray[np.int64], machine: MachineDescription, bins: int = 160
) -> list[Occupancy]:
    """Of each part on the chip while the events ``chosen`` run, in ``bins`` steps."""
    chosen = chosen[events.column(EventColumn.WAITS)[chosen] == 0]
    if not len(chosen):
        return []
    begin, end = events.begin_cycles[chosen], events.end_cycles[chosen]
    edges = np.linspace(begin.min(), max(end.max(), begin.min() + 1e-9), bins + 1)
    spans = events.names.spans_of(events.table[chosen])
    sizes = capacities(machine)
    step_of = (edges, begin[spans.event], end[spans.event])
    return [
        Occupancy(part, edges, _live(spans, spans.part == number, step_of, sizes[part]))
        for number, part in enumerate(spans.parts)
        if part in sizes and (spans.part == number).any()
    ]


def _live(
    spans: Spans,
    of_part: NDArray[np.bool_],
    times: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
    capacity_bytes: int,
) -> NDArray[np.float64]:
    edges, begin, end = times
    bins = len(edges) - 1
    first = np.clip(np.searchsorted(edges, begin, "right") - 1, 0, bins - 1)
    last = np.clip(np.searchsorted(edges, end, "left") - 1, 0, bins - 1)
    low = spans.begin * ADDRESS_BINS // capacity_bytes
    high = np.minimum(-(-spans.end * ADDRESS_BINS // capacity_bytes), ADDRESS_BINS)

    def touched(chosen: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.bool_]:
        steps = np.zeros((ADDRESS_BINS + 1, bins), np.int64)
        np.add.at(steps, (low[chosen], at[chosen]), 1)
        np.add.at(steps, (high[chosen], at[chosen]), -1)
        return np.cumsum(steps[:-1], axis=0) > 0

    written = touched(of_part & spans.writes, first)
    read = touched(of_part & ~spans.writes, last)
    live = np.zeros((ADDRESS_BINS, bins), np.bool_)
    needed = np.zeros(ADDRESS_BINS, np.bool_)
    for step in range(bins - 1, -1, -1):
        needed |= read[:, step]
        live[:, step] = needed | written[:, step]
        needed &= ~written[:, step]
    share: NDArray[np.float64] = live.mean(axis=0)
    return share


def fullest(layers: list[dict[str, int]]) -> Mapping[str, int]:
    """The highest byte that any layer uses, by part."""
    parts = dict.fromkeys(part for layer in layers for part in layer)
    return {part: max(layer.get(part, 0) for layer in layers) for part in parts}
