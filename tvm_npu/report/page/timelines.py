"""Beginnings of layers as lists that the page's script draws: what each unit did, tile by tile, and
how full memories were over the whole layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_npu.report.memory import occupancy, rows_of_layer
from tvm_npu.report.runs import RegionRun
from tvm_npu.sim.events import EventColumn, Events

MOST_SLICES, MOST_WORK = 700, 200
"""Of a layer on the page, and of them such that are no waits; a trace has all."""
STEPS = 60


def timelines(runs: Sequence[RegionRun]) -> list[dict[str, Any]]:
    """For each layer of ``runs``, in order: ``units``, ``slices`` (unit, begin and cycles, waits,
    label, tile) and ``memory`` (share by part in `STEPS` steps). Empty where nothing was
    recorded."""
    found = []
    for run in runs:
        for number, entry in enumerate(run.session.program.layers):
            one: dict[str, Any] = {"name": entry.name, "units": [], "slices": [], "memory": {}}
            if run.events is not None:
                one.update(_timeline(run, run.events, number))
            found.append(one)
    return found


def _timeline(run: RegionRun, events: Events, layer: int) -> dict[str, Any]:
    rows = rows_of_layer(events, layer)
    if not len(rows):
        return {}
    origin = float(events.begin_cycles[rows[0]])
    works = np.cumsum(events.column(EventColumn.WAITS)[rows] == 0)
    shown = rows[: min(MOST_SLICES, int(np.searchsorted(works, MOST_WORK)) + 1)]
    names = events.names
    units = [names.units[k] for k in np.unique(events.column(EventColumn.UNIT)[shown]).tolist()]
    slices = []
    for index in shown.tolist():
        event = events[index]
        tile = ", ".join(f"{key} {value}" for key, value in event.tile.items())
        what = f"waits: {event.cause}" if event.waits and event.cause else event.what
        label = f"{what} (instruction {event.instruction})"
        if event.bytes:
            label += f", {event.bytes} bytes of {event.stream}"
        begin = round(event.begin_cycles - origin, 1)
        slices.append(
            [units.index(event.unit), begin, round(event.end_cycles - event.begin_cycles, 1),
             int(event.waits), label, "" if event.waits else tile]
        )  # fmt: skip
    memory = {
        one.part: [round(100 * float(share), 1) for share in one.share]
        for one in occupancy(events, rows, run.session.machine, STEPS)
    }
    cycles = float(events.end_cycles[rows].max()) - origin
    return {
        "units": units, "slices": slices, "memory": memory, "cycles": round(cycles, 1),
        "all": len(rows),
    }  # fmt: skip
