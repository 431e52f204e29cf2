"""How full memories are, against a slow count of every byte."""

from __future__ import annotations

import numpy as np
import pytest

from tests.report.small_runs import MACHINES, recorded
from tvm_npu.report import memory
from tvm_npu.report.memory import capacities, fullest, occupancy, peaks_by_layer, rows_by_layer


@pytest.mark.parametrize("at_once", (7, memory.EVENTS_AT_ONCE))
@pytest.mark.parametrize("name", MACHINES)
def test_peaks_are_the_highest_bytes_of_events(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "EVENTS_AT_ONCE", at_once)
    run = recorded(name)
    assert run.events is not None
    wanted: dict[str, dict[str, int]] = {layer: {} for layer in run.events.names.layers}
    for event in run.events:
        for access in event.accesses:
            part = access.memory.split()[0]
            if part != "dram" and event.layer:
                high = wanted[event.layer].get(part, 0)
                wanted[event.layer][part] = max(high, access.end)
    found = peaks_by_layer(run.events)
    assert dict(zip(run.events.names.layers, found, strict=True)) == wanted
    sizes = capacities(run.session.machine)
    assert all(0 < peak <= sizes[part] for part, peak in fullest(found).items())


@pytest.mark.parametrize("name", ("nmp", "setup-a"))
def test_a_byte_is_in_use_from_its_write_to_its_last_read(name: str) -> None:
    run = recorded(name)
    assert run.events is not None
    layer = 0
    rows = rows_by_layer(run.events)[layer]
    for found in occupancy(run.events, rows, run.session.machine, bins=40):
        size = capacities(run.session.machine)[found.part]
        piece = size // 64
        live = np.zeros((64, 40), bool)
        touched = [
            (event, access)
            for event in run.events
            if event.layer == run.events.names.layers[layer] and not event.waits
            for access in event.accesses
            if access.memory.split()[0] == found.part
        ]
        edges = found.edges_cycles
        for k in range(64):
            writes, reads = [], []
            for event, access in touched:
                if access.begin < (k + 1) * piece and access.end > k * piece:
                    at = event.begin_cycles if access.writes else event.end_cycles
                    side = "right" if access.writes else "left"
                    step = int(np.clip(np.searchsorted(edges, at, side) - 1, 0, 39))
                    (writes if access.writes else reads).append(step)
            for step in range(40):
                later = [read for read in reads if read >= step]
                kept = any(not any(step < w <= read for w in writes) for read in later)
                live[k, step] = kept or step in writes
        np.testing.assert_allclose(found.share, live.mean(axis=0))
