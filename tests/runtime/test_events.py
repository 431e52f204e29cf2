"""Events of runs: they change nothing, and say the same as the statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, for_machine, layers, random_tensors
from tests.codegen.nmp.simulated import small_machine
from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.tiles.tile_cases import CORE_MACHINES, AnyPlan, core_machine, tile_machines
from tests.examples import examples
from tests.runtime.networks import compiled, machine
from tests.sim.event_sums import check_events
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, fixed_graph
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim import event_table
from tvm_npu.sim.events import EventLog
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import TileMachine

PROPERTIES = settings(
    max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of events have to grow."""
    monkeypatch.setattr(event_table, "FIRST_CAPACITY", 2)


def nmps() -> st.SearchStrategy[NmpMachine]:
    memory = st.sampled_from((256, 512, 2048, 8192))
    return st.builds(
        small_machine, st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 3)), memory, memory,
        memory, queue_depth=st.sampled_from((1, 2, 16)),
    )  # fmt: skip


def check(program: Program, arrays: list[np.ndarray], timing: bool) -> None:
    plain, recording = (Session(program, timing=timing) for _ in range(2))
    log = EventLog()
    wanted = plain.run_fixed(arrays)
    found = recording.run_fixed(arrays, events=log)
    for values, same in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(values, same)
    (events,) = log.runs
    assert recording.statistics == plain.statistics and recording.statistics is not None
    names = [layer.name for layer in program.layers]
    check_events(events, recording.statistics, program.machine_description(), names)
    assert timing or not (events.begin_cycles.any() or events.end_cycles.any())
    again = plain.run_fixed(arrays, events=log)
    np.testing.assert_array_equal(again[0], wanted[0])
    assert list(log.runs[1]) == list(events)


def check_layer(fixed: FixedGraph, program: Program, seed: int, timing: bool) -> None:
    tensors = random_tensors(fixed, seed)
    check(program, [tensors[name][None] for name in fixed.inputs], timing)


@given(st.data(), nmps(), st.sampled_from(("tso", "exact", "fixed-ks")), SEEDS, st.booleans())
@PROPERTIES
def test_layers_on_nmps(
    data: st.DataObject, machine: NmpMachine, planner: str, seed: int, timing: bool
) -> None:
    fixed = data.draw(layers(data.draw(st.sampled_from((1, 2)))))
    try:
        program = compile_fixed(fixed, machine, planner)
    except PlanningError:
        reject()
    check_layer(fixed, program, seed, timing)


@given(st.data(), SEEDS, st.booleans())
@PROPERTIES
def test_layers_on_tile_machines(data: st.DataObject, seed: int, timing: bool) -> None:
    """Also machines with a core and a PL-330."""
    drawn = data.draw(layers(data.draw(st.sampled_from((1, 2)))))
    machine = data.draw(tile_machines())
    fixed = for_machine(drawn, machine)
    try:
        program = compile_fixed(fixed, machine, AnyPlan(seed))
    except PlanningError:
        reject()
    check_layer(fixed, program, seed, timing)


@pytest.mark.parametrize("name", CORE_MACHINES)
@given(st.data(), SEEDS)
@settings(PROPERTIES, max_examples=examples(10))
def test_layers_on_core_machines(name: str, data: st.DataObject, seed: int) -> None:
    fixed = data.draw(layers(2))
    try:
        program = compile_fixed(
            fixed, core_machine(name, 4096, (1, 2, 4, 8), 1024), AnyPlan(seed)
        )
    except PlanningError:
        reject()
    check_layer(fixed, program, seed, True)


@given(graphs(), nmps(), tile_machines(), SEEDS)
@settings(PROPERTIES, max_examples=examples(10))
def test_graphs(
    graph: Graph, nmp_machine: NmpMachine, tile_machine: TileMachine, seed: int
) -> None:
    samples, options = random_inputs(graph, seed), CompileOptions(precision="int16")
    made = []
    try:
        ranges = calibrate(graph, [samples])
        for machine, planner in ((nmp_machine, "exact"), (tile_machine, AnyPlan(seed))):
            fixed = fixed_graph(graph, ranges, machine, options)
            made.append((fixed, compile_fixed(fixed, machine, planner)))  # type: ignore[arg-type]
    except (PlanningError, QuantizationError):
        reject()
    for fixed, program in made:
        arrays = [
            quantize_tensor(samples[name][:1], fixed.q_points[name], fixed.element_bytes)
            for name in fixed.inputs
        ]
        check(program, arrays, True)


def test_every_image_is_a_run() -> None:
    small = {f"mb{k}_bytes": 512 for k in range(3)}
    program, _ = compiled(machine(2, 2, memories=small))
    session, log = Session(program), EventLog()
    arrays = [np.full((3, 3, 12, 12), value, np.int16) for value in (1, -2)]
    session.run_fixed(arrays, events=log)
    assert len(log.runs) == 3 and session.statistics is not None
    totals = [events.busy_cycles() for events in log.runs]
    for unit in session.statistics.units:
        if unit.role != "control":
            busy = sum(total[unit.name] for total in totals)
            assert busy == pytest.approx(unit.busy_cycles)
    events = log.runs[0]
    assert events[-1] == list(events)[-1] and events[2:4] == list(events)[2:4]
    names = {name for scope in program.scopes for name in scope}
    found = {name for event in events for name in event.tile}
    assert found and found <= names
