"""Traces hold what the simulator did: every slice is an event, lanes and counters add up."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tests.report.small_runs import MACHINES, REFUSED, recorded
from tests.runtime.networks import machine
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.report.layer_range import TraceError, layer_range
from tvm_npu.report.trace import COUNTER_STEPS, make_trace, spread
from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import EventLog, Events, tile_text
from tvm_npu.tuning.single_layer import random_inputs, single_layer


class Record(BaseModel):
    """An entry of the Trace Event Format, of the phases that are written."""

    model_config = ConfigDict(extra="forbid", strict=True)
    ph: str = Field(pattern="^[XbeCMi]$")
    name: str = Field(min_length=1)
    pid: int
    tid: int = 0
    ts: float | int = 0
    dur: float | None = Field(default=None, ge=0)
    cat: str | None = None
    id: int | None = None
    s: str | None = None
    args: dict[str, Any] = {}


RECORDS = TypeAdapter(list[Record])


def read(content: bytes) -> tuple[list[Record], dict[str, Any]]:
    values = json.loads(content)
    assert values["displayTimeUnit"] == "ns" and "MHz" in values["otherData"]["clock"]
    return RECORDS.validate_python(values["traceEvents"]), values["otherData"]


def of_layers(events: Events) -> list[Any]:
    return [event for event in events if event.layer]


@pytest.mark.parametrize("name", MACHINES)
def test_slices_are_the_events(name: str) -> None:
    run = recorded(name)
    assert run.events is not None
    trace = make_trace([run], [REFUSED])
    records, _ = read(trace.content)
    mhz = run.session.machine.frequency_mhz
    lanes = {r.tid: r.args["name"] for r in records if r.name == "thread_name"}
    slices = [record for record in records if record.ph == "X" and record.cat != "link"]
    wanted = of_layers(run.events)
    assert len(slices) == len(wanted) == trace.slices and not trace.coarse
    found = sorted((lanes[s.tid], round(s.ts * mhz, 1), s.args["instruction"]) for s in slices)
    times = sorted((e.unit, round(e.begin_cycles, 1), e.instruction) for e in wanted)
    for one, other in zip(found, times, strict=True):
        assert one[0] == other[0] and one[1] == pytest.approx(other[1], abs=0.2)
    moved = sum(s.args.get("bytes", 0) for s in slices)
    assert moved == sum(event.bytes for event in wanted) > 0
    assert {s.args["what"] for s in slices} == {event.what for event in wanted}
    layers = {r.name for r in records if r.ph == "b"}
    assert layers == {event.layer for event in wanted}
    for one in slices:
        assert one.cat == "wait" or one.name.split(" [")[0] in layers
    (instant,) = [record for record in records if record.ph == "i"]
    assert instant.name == "soft"


@pytest.mark.parametrize("name", MACHINES)
def test_lanes_do_not_overlap_and_counters_add_up(name: str) -> None:
    run = recorded(name)
    assert run.events is not None
    records, _ = read(make_trace([run]).content)
    lanes: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.ph == "X":
            lanes[record.tid].append(record)
    for found in lanes.values():
        found.sort(key=lambda record: (record.ts, record.dur))
        for one, other in zip(found, found[1:], strict=False):
            assert one.ts + (one.dur or 0) <= other.ts + 1e-3
    for link, streams in run.events.bytes_by_link().items():
        counter = [r for r in records if r.ph == "C" and r.name == f"{link}, MB/s"]
        counter.sort(key=lambda record: record.ts)
        area = sum(
            one.args["value"] * (other.ts - one.ts)
            for one, other in zip(counter, counter[1:], strict=False)
        )
        of_none = sum(e.bytes for e in run.events if not e.layer and link in e.links)
        assert area == pytest.approx(sum(streams.values()) - of_none, rel=0.02, abs=1)
    for record in records:
        if record.name.endswith("in use, %"):
            assert 0 <= record.args["value"] <= 100


@pytest.mark.parametrize("name", MACHINES)
def test_lanes_of_links_cover_their_transfers(name: str) -> None:
    run = recorded(name)
    assert run.events is not None
    records, _ = read(make_trace([run]).content)
    lanes = {r.tid: r.args["name"] for r in records if r.name == "thread_name"}
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.cat == "link":
            assert lanes[record.tid] == record.name
            found[record.name].append(record)
    mhz = run.session.machine.frequency_mhz
    transfers = [event for event in run.events if event.layer and event.links]
    wanted = {link: [e for e in transfers if link in e.links] for link in run.events.names.links}
    wanted["DRAM"] = [e for e in transfers if {"loaded", "stored"} & set(e.links)]
    assert set(found) == {name for name, events in wanted.items() if events}
    ends = max(e.end_cycles for e in run.events) - min(e.begin_cycles for e in run.events)
    for link, slices in found.items():
        assert sum(s.args["bytes"] for s in slices) == sum(e.bytes for e in wanted[link])
        assert sum(s.args["transfers"] for s in slices) == len(wanted[link])
        begins = np.array([s.ts for s in slices])
        for event in wanted[link]:
            own = slices[int(np.searchsorted(begins, event.begin_cycles / mhz + 1e-3) - 1)]
            assert event.end_cycles / mhz <= own.ts + (own.dur or 0) + 1e-3
        idle = [b.ts - a.ts - (a.dur or 0) for a, b in zip(slices, slices[1:], strict=False)]
        assert all(gap > 0.99 * ends / mhz / COUNTER_STEPS for gap in idle)


def test_a_range_of_layers_and_no_more_slices_than_asked_for() -> None:
    run = recorded("nmp")
    names = [layer.name for layer in run.session.program.layers]
    part = make_trace([run], layers=f"{names[1]}:3")
    assert {r.name for r in read(part.content)[0] if r.ph == "b"} == set(names[1:3])
    for wrong in ("nowhere", "0", str(len(names) + 1), f"{names[2]}:{names[0]}", ""):
        with pytest.raises(TraceError, match="layer"):
            layer_range(wrong, names)
    plain = type(run)("region", run.session.program, timing=False)
    with pytest.raises(TraceError, match="needs the cycle model"):
        make_trace([plain])


@pytest.mark.parametrize("name", MACHINES)
def test_layers_without_room_are_drawn_coarsely(name: str) -> None:
    """The first layer's events are all there; of others work without longer pauses is one slice."""
    run = recorded(name)
    assert run.events is not None
    names = [layer.name for layer in run.session.program.layers]
    whole, bounded = make_trace([run]), make_trace([run], most_slices=1)
    (records, other), mhz = read(bounded.content), run.session.machine.frequency_mhz
    assert bounded.coarse == tuple(names[1:]) and names[1] in other["layers drawn coarsely"]
    assert {r.name for r in records if r.ph == "b"} == set(names)
    slices = [r for r in records if r.ph == "X" and r.cat == "work"]
    waits = sum(r.ph == "X" and r.cat == "wait" for r in records)
    assert len(slices) + waits == bounded.slices < whole.slices
    pause_us = (max(e.end_cycles for e in run.events) - min(
        e.begin_cycles for e in run.events)) / mhz / COUNTER_STEPS  # fmt: skip
    for layer in names[1:]:
        events = [e for e in run.events if e.layer == layer and not e.waits]
        own = [r for r in slices if r.name == layer and "events" in r.args]
        assert sum(r.args["events"] for r in own) == len(events)
        assert sum(r.args["bytes"] for r in own) == sum(e.bytes for e in events)
        for lane in {(r.pid, r.tid) for r in own}:
            mine = sorted((r for r in own if (r.pid, r.tid) == lane), key=lambda r: r.ts)
            gaps = [b.ts - a.ts - (a.dur or 0) for a, b in zip(mine, mine[1:], strict=False)]
            assert all(gap > 0.99 * pause_us for gap in gaps)


def test_tiles_of_many_events_are_those_of_each() -> None:
    window = (3, 3), (2, 2), (1, 1), (1, 1, 0, 0)
    problem = ConvProblem(24, 8, 1, 12, 12, 24, 24, *window, element_bytes=2)
    graph, log = single_layer(problem), EventLog()
    session = Session(compile_fixed(graph, machine()))
    inputs = random_inputs(graph)
    session.run_fixed([inputs[name] for name in graph.inputs], events=log)
    events = log.runs[0]
    found = events.names.tile_texts(events.table)
    assert found == [tile_text(event.tile) for event in events]
    assert len(set(found)) > 3


def test_layers_are_found_by_names_that_they_consist_of() -> None:
    names = ("a+b", "c", "c+d", "e+a")
    assert layer_range("b", names) == range(0, 1) and layer_range("c", names) == range(1, 2)
    assert layer_range("b:d", names) == range(0, 3)
    with pytest.raises(TraceError, match="no layer 'a'"):  # two layers have it
        layer_range("a", names)


def test_amounts_are_spread_over_their_time() -> None:
    random = np.random.default_rng(3)
    begin = random.uniform(0, 90, 50)
    end = begin + random.choice([0.0, 0.5, 7.0], 50)
    amount = random.integers(1, 1000, 50)
    edges = np.linspace(0, 100, 12)
    found = spread(begin, end, amount, edges) * np.diff(edges)
    wanted = [
        sum(
            total * max(0.0, min(until, right) - max(at, left)) / max(until - at, 1e-9)
            for at, until, total in zip(begin, np.maximum(end, begin + 1e-9), amount, strict=True)
        )
        for left, right in zip(edges, edges[1:], strict=False)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
