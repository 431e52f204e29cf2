"""Beginnings of layers as lists that the page's script draws: what each unit did, tile by tile, and
how full memories were over the whole layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.report.memory import occupancy, rows_by_layer
from tvm_npu.report.runs import RegionRun
from tvm_npu.report.shares import Shares, region_shares
from tvm_npu.sim.events import EventColumn, Events
from tvm_npu.sim.streams import Stream

MOST_SLICES, MOST_WORK = 700, 200
"""Of a layer on the page, and of them such that are no waits; a trace has all."""
STEPS = 60


def timelines(runs: Sequence[RegionRun]) -> list[dict[str, Any]]:
    """For each layer of ``runs``, in order: ``units``, ``slices`` (unit, begin and cycles, waits,
    label, tile), ``memory`` (share by part in `STEPS` steps) and ``shares`` (its outputs as
    `report.shares` cuts them, in plain numbers). Empty where nothing was
    recorded."""
    found = []
    for run in runs:
        rows = [] if run.events is None else rows_by_layer(run.events)
        shares = region_shares(run)
        for number, entry in enumerate(run.session.program.layers):
            one: dict[str, Any] = {
                "name": entry.name, "units": [], "slices": [], "memory": {}, "shares": [],
            }  # fmt: skip
            if run.events is not None:
                one.update(_timeline(run, run.events, rows[number]))
                one["shares"] = [_plain(share) for share in shares[number]]
            found.append(one)
    return found


def _plain(share: Shares) -> dict[str, Any]:
    """Makers that made nothing of it are left out."""
    used = np.unique(share.maker_of)
    number_of = np.zeros(len(share.makers), np.int64)
    number_of[used] = np.arange(len(used))
    made = [(share.maker_of == one) for one in used.tolist()]
    return {
        "tensor": share.tensor, "shape": share.shape, "cuts": share.cuts, "tiles": share.tiles,
        "exact": share.exact, "makers": [share.makers[one] for one in used.tolist()],
        "made": [[int(one.sum()), round(100 * float(share.part[one].sum()), 1)] for one in made],
        "maker_of": number_of[share.maker_of].tolist(), "tile": share.tile.reshape(-1).tolist(),
    }  # fmt: skip


def _timeline(run: RegionRun, events: Events, rows: NDArray[np.int64]) -> dict[str, Any]:
    if not len(rows):
        return {}
    origin = float(events.begin_cycles[rows[0]])
    works = np.cumsum(events.column(EventColumn.WAITS)[rows] == 0)
    shown = rows[: min(MOST_SLICES, int(np.searchsorted(works, MOST_WORK)) + 1)]
    names = events.names
    table = events.table[shown]
    begins, ends = events.begin_cycles[shown], events.end_cycles[shown]
    units, of_unit = np.unique(table[:, EventColumn.UNIT], return_inverse=True)
    slices = []
    for unit, values, tile, begin, length in zip(
        of_unit.tolist(), table[:, : EventColumn.MAKER].tolist(), names.tile_texts(table),
        (begins - origin).tolist(), (ends - begins).tolist(), strict=True,
    ):  # fmt: skip
        _, waits, instruction, _, stream, over, moved = values
        cause = names.causes[waits]
        what = f"waits: {cause}" if waits and cause else names.what[instruction]
        label = f"{what} (instruction {instruction})"
        if moved:
            label += f", {moved} bytes of {Stream(stream).name.lower() if over else ''}"
        shown_tile = "" if waits else tile
        slices.append([unit, round(begin, 1), round(length, 1), int(waits > 0), label, shown_tile])
    memory = {
        one.part: [round(100 * float(share), 1) for share in one.share]
        for one in occupancy(events, rows, run.session.machine, STEPS)
    }
    cycles = float(events.end_cycles[rows].max()) - origin
    return {
        "units": [names.units[unit] for unit in units.tolist()], "slices": slices,
        "memory": memory, "cycles": round(cycles, 1), "all": len(rows),
    }  # fmt: skip
