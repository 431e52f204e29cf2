"""Runs of more events than are kept."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.small_runs import MACHINES, recorded
from tvm_npu.report.runs import ManyEventsWarning, RegionRun
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
