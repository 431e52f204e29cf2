"""Runs of more events than are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.report.small_runs import MACHINES, recorded
from tvm_npu.report.runs import EventRoom, ManyEventsWarning, RegionRun
from tvm_npu.sim import event_table
from tvm_npu.sim.event_table import EventsError


@pytest.mark.parametrize("name", MACHINES)
def test_a_report_goes_on_without_timelines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = recorded(name).session.program
    random = np.random.default_rng(5)
    arrays = [random.normal(size=(1, *slot.shape)) for slot in program.inputs]
    whole = RegionRun("region", program, True)
    monkeypatch.setattr(event_table, "FIRST_CAPACITY", 64)
    monkeypatch.setattr(event_table, "MOST_EVENTS", 64)
    cut = RegionRun("region", program, True, records=True)
    with pytest.warns(ManyEventsWarning, match="region: the run has .* at most 64 are recorded"):
        made = cut.run(arrays)
    for one, other in zip(made, whole.run(arrays), strict=True):
        assert np.array_equal(one, other)
    assert cut.events is None and cut.runs[0].cycles == whole.runs[0].cycles
    assert len(cut.runs) == 1
    cut.run(arrays)  # without another warning


def test_regions_share_room_for_events() -> None:
    first = recorded("setup-a")
    assert first.events is not None
    program, room = first.session.program, EventRoom(len(first.events) + 3)
    random = np.random.default_rng(5)
    arrays = [random.normal(size=(1, *slot.shape)) for slot in program.inputs]
    one, other = (RegionRun(name, program, True, True, room=room) for name in ("a", "b"))
    outputs = one.run(arrays)
    with pytest.warns(ManyEventsWarning, match="region b: its .* and 3 are left"):
        again = other.run(arrays)
    assert one.events is not None and other.events is None
    assert all(np.array_equal(x, y) for x, y in zip(outputs, again, strict=True))
    assert len(one.runs) == len(other.runs) == 1


def test_regions_share_bytes_for_events() -> None:
    first = recorded("nmp")
    assert first.events is not None
    size = first.events.table.nbytes
    room = EventRoom(size_bytes=size + 5)
    room.take(first.events)
    with pytest.raises(EventsError, match=f"take {size:,} bytes: .* and 5 are left"):
        room.take(first.events)


@pytest.mark.parametrize("columns", [20, 63, 200])
def test_tables_are_bounded_by_bytes(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide ones took three times as much as others of as many events."""
    monkeypatch.setattr(event_table, "MOST_EVENT_BYTES", 1 << 24)
    table: dict[str, NDArray[Any]] = event_table.event_room(columns)
    room = 513
    with pytest.raises(EventsError, match="events or more; at most"):
        while True:
            sizes = {name: array.nbytes for name, array in table.items()}
            assert sum(sizes.values()) <= (1 << 24) + 2 * room * 8 * (columns + 2)
            before = len(table["events"])
            table = event_table.grown_events(table["events"], table["event_times"], room)
            assert len(table["events"]) >= before + room
