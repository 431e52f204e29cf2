"""Runs of more events than are kept."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.small_runs import MACHINES, recorded
from tvm_npu.report.runs import EventRoom, ManyEventsWarning, RegionRun
from tvm_npu.sim import event_table


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
