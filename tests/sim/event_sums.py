"""Events of a run say the same as its statistics, whatever the kind of machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.events import Event, Events
from tvm_npu.sim.statistics import RunStatistics, Statistics


def same_cycles(found: dict[str, float], part: Statistics, waits: bool) -> None:
    """Control units are busy without events: they issue all the time."""
    for unit in part.units:
        if waits:
            assert found.get(unit.name, 0.0) == pytest.approx(unit.wait_cycles, abs=1e-6)
        elif unit.role != "control":
            assert found.get(unit.name, 0.0) == pytest.approx(unit.busy_cycles, abs=1e-6)


def check_spans(events: Events) -> None:
    """All events at once touch what each of them says, units of a part taken together."""
    spans = events.spans()
    found: dict[int, set[tuple[str, int, int, bool]]] = defaultdict(set)
    for number, part, *touched in zip(
        spans.event, spans.part, spans.begin, spans.end, spans.writes, strict=True
    ):
        begin, end, writes = touched
        found[int(number)].add((spans.parts[part], int(begin), int(end), bool(writes)))
    for number, event in enumerate(events):
        wanted = {
            (access.memory.split()[0], access.begin, access.end, access.writes)
            for access in event.accesses
        }
        assert found.get(number, set()) == wanted, event


def check_events(
    events: Events, statistics: RunStatistics, machine: MachineDescription, layers: Sequence[str]
) -> None:
    """``layers`` are the program's."""
    capacities = {unit.name: unit.capacity_bytes for unit in machine.units()}
    check_spans(events)
    by_unit: dict[str, list[Event]] = defaultdict(list)
    cycles: dict[tuple[str, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    moved: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for event in events:
        by_unit[event.unit].append(event)
        cycles[event.layer, event.waits][event.unit] += event.end_cycles - event.begin_cycles
        for link in event.links:
            if event.bytes:
                moved[link][event.stream] += event.bytes
        for access in event.accesses:
            assert 0 <= access.begin < access.end <= capacities[access.memory]
        if "loaded" in event.links and event.bytes:
            assert any(access.writes for access in event.accesses)
        assert not (event.waits and event.bytes) and event.what
    assert all(name in {*layers, ""} for name, _ in cycles)
    for unit, found in by_unit.items():
        for one, other in zip(found, found[1:], strict=False):
            assert one.end_cycles <= other.begin_cycles + 1e-9, (unit, one, other)
        assert 0 <= found[0].begin_cycles and found[-1].end_cycles <= statistics.cycles + 1e-6
    for layer in statistics.layers:
        for waits in (False, True):
            same_cycles(cycles[layer.name, waits], layer, waits)
    same_cycles(events.busy_cycles(), statistics, waits=False)
    same_cycles(events.wait_cycles(), statistics, waits=True)
    assert {link: dict(found) for link, found in moved.items()} == {
        link: found for link, found in statistics.bytes_by_link.items() if found
    }
    assert events.bytes_by_link() == statistics.bytes_by_link
