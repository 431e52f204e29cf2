"""Any plan that the plan space holds, whoever made it, runs to the bit: every cut over TLEs and
TLTs, schedule, sharing over the ring, weight layout and number of buffers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, note, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, convolutions, fixed_graph, random_tensors
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.codegen.nmp.test_golden import PLAN, Fixed, conv
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.kept_rows import least_tile_rows, may_keep_rows
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.layers import PlannedLayer
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, nmp_machine_from_dict


@dataclass
class Drawn:
    """Answers with whatever Hypothesis draws for a problem, with the same when asked again."""

    data: st.DataObject
    buffers: int
    known: dict[ConvProblem, ConvPlan] = field(default_factory=dict)
    name: str = "drawn"

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        if problem not in self.known:
            self.known[problem] = self.data.draw(plans(problem, machine, self.buffers))
        return self.known[problem]


def run_drawn(
    fixed: FixedGraph, machine: NmpMachine, planner: Drawn, data: st.DataObject
) -> tuple[PlannedLayer, ...]:
    """The layers of a program that ran to the bit; rejects plans that do not fit."""
    inputs = random_tensors(fixed, data.draw(SEEDS))
    try:
        generated = generate(fixed, machine, planner)
    except EmitError as error:
        assert "bytes of" in str(error), error
        reject()
    note(generated.listing())
    program = compile_fixed(fixed, machine, planner)
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(program, inputs, timing=data.draw(st.booleans()))
    for name in fixed.outputs:
        np.testing.assert_array_equal(outputs[name], expected[name][0])
    return generated.planned.layers


def parts(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def plans(draw: st.DrawFn, problem: ConvProblem, machine: NmpMachine, buffers: int) -> ConvPlan:
    """A plan of multicast mode; it may not fit the memories."""
    tles, tlts = machine.cores.tles, machine.cores.tlts_per_tle
    rows = draw(parts(tles))
    columns = draw(parts(tles // rows))
    filters = draw(parts(tles // rows // columns))
    divisors = [d for d in range(1, tlts + 1) if tlts % d == 0]
    tlt_rows = draw(st.sampled_from(divisors))
    tlt_columns = draw(st.sampled_from([d for d in divisors if tlts // tlt_rows % d == 0]))
    schedule = draw(st.sampled_from(("IS", "OS", "WS")))
    channels = problem.channels // problem.groups
    each = -(-(problem.filters // problem.groups) // filters)
    run = -(-each // (tlts // tlt_rows // tlt_columns))
    tile_n = draw(st.integers(1, channels) | st.just(channels))
    plan = ConvPlan(
        "multicast", "KS", rows, filters, schedule,
        run if schedule == "IS" else draw(st.integers(1, run)), tile_n,
        draw(st.integers(1, problem.out_rows)), draw(st.integers(1, problem.out_columns)),
        column_slices=columns, tlt_rows=tlt_rows, tlt_columns=tlt_columns,
        keeps_in=schedule == "OS" and tile_n == channels and draw(st.booleans()),
        ring_in=filters > 1 and draw(st.booleans()),
        ring_weights=rows * columns > 1 and draw(st.booleans()),
        weights=draw(st.sampled_from(("filters", "tiles"))),
        linear_maps=draw(st.booleans()),
        buffers=buffers,  # type: ignore[arg-type]
        macs_first=buffers == 2 and draw(st.booleans()),
    )  # fmt: skip
    if not any(problem.padding) and problem.window is None and draw(st.booleans()):
        plan = replace(plan, in_by_channels=True)
    if may_keep_rows(problem) and draw(st.booleans()):
        tile_r = max(plan.tile_r, least_tile_rows(problem))
        plan = replace(plan, keeps_rows=True, keeps_in=False, tile_r=tile_r)
    return plan


@st.composite
def machines(
    draw: st.DrawFn,
    ports: int,
    sizes: tuple[int, ...] = (256, 512, 2048, 8192),
    tles: tuple[int, ...] = (1, 2, 4),
    tlts: tuple[int, ...] = (1, 2, 3, 4, 8),
) -> NmpMachine:
    """``sizes`` of scratchpads, in bytes."""
    memory = st.sampled_from(sizes)
    machine = small_machine(
        draw(st.sampled_from(tles)), draw(st.sampled_from(tlts)),
        draw(memory), draw(memory), draw(memory), queue_depth=draw(st.sampled_from((1, 2, 16))),
    )  # fmt: skip
    return with_ring(machine, ports)


def with_ring(machine: NmpMachine, ports: int) -> NmpMachine:
    values = machine.model_dump()
    values["memories"]["ports"] = ports
    values["ring"] = {"bytes_per_cycle": 16.0, "hop_cycles": 4.0}
    return nmp_machine_from_dict(values)


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_plan_runs_to_the_bit(element_bytes: int, buffers: int, data: st.DataObject) -> None:
    fixed = data.draw(convolutions(element_bytes))
    machine = data.draw(machines(buffers))
    run_drawn(fixed, machine, Drawn(data, buffers), data)


@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_more_slices_than_rows_columns_and_filters(
    element_bytes: int, data: st.DataObject
) -> None:
    """TLEs with an empty slice load their parts of what the others share, and nothing that they
    do not wait for: `simulate` finds all semaphores at zero in the end."""
    extents = [data.draw(st.integers(1, 2)) for _ in range(4)]
    fixed = pointwise(*extents, element_bytes)
    machine = data.draw(machines(2, (512,), (4, 8), (1, 2)))
    run_drawn(fixed, machine, Drawn(data, 2), data)


@pytest.mark.parametrize("schedule", ["IS", "OS", "WS"])
@pytest.mark.parametrize("cut", [(2, 1, 2), (1, 2, 2), (2, 2, 1), (4, 1, 1), (1, 1, 4)])
@pytest.mark.parametrize("ring_in, ring_weights", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("buffers", [1, 2])
def test_one_element_for_four_tles(
    schedule: str, cut: tuple[int, int, int], ring_in: bool, ring_weights: bool, buffers: int
) -> None:
    rows, columns, filters = cut
    plan = ConvPlan(
        "multicast", "KS", rows, filters, schedule, 1, 1, 1, 1,  # type: ignore[arg-type]
        column_slices=columns, ring_in=ring_in and filters > 1,
        ring_weights=ring_weights and rows * columns > 1, buffers=buffers,  # type: ignore[arg-type]
    )  # fmt: skip
    fixed = pointwise(1, 1, 1, 1, 2)
    machine = with_ring(small_machine(4, 1), buffers)
    inputs = random_tensors(fixed, 1)
    outputs, _ = simulate(compile_fixed(fixed, machine, Fixed(plan)), inputs)
    expected = run_fixed(fixed, {"x": inputs["x"][None]})
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])


def pointwise(
    filters: int, channels: int, rows: int, columns: int, element_bytes: int
) -> FixedGraph:
    dtype = np.int8 if element_bytes == 1 else np.int16
    layer = FixedConv(
        "layer", ("x",), ("y",), source=("op",), shift=2, low=-99, high=99,
        weight=np.arange(1, filters * channels + 1, dtype=dtype).reshape(filters, channels, 1, 1),
        bias=np.arange(filters, dtype=np.int32) * 100,
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, rows, columns), "y": (filters, rows, columns)}
    return fixed_graph(layer, shapes, element_bytes)


def test_one_buffer_of_a_machine_with_one_port() -> None:
    machine = small_machine(tlts=1)
    plan = replace(PLAN, filter_slices=1, buffers=2)
    with pytest.raises(EmitError, match="takes memories.ports = 2"):
        compile_fixed(conv(4, 4, 1, 4), machine, Fixed(plan))
