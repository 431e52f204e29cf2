"""No program of a tile machine or a Snowflake is faster than its region's bound, nor moves less
than compulsory traffic. (NMPs have a bound of their own, and tests of it.)"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, layers
from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.codegen.snowflake.snowflake_cases import convolutions, graph_of, pools
from tests.codegen.snowflake.test_snowflake_behind import Case, cases, chain
from tests.codegen.snowflake.test_snowflake_recurrent import stacked
from tests.codegen.tiles.chain_graphs import Graph as Convolutions
from tests.codegen.tiles.chain_graphs import bottleneck, draw_chain
from tests.codegen.tiles.tile_cases import AnyPlan, core_machine, tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.backend import Images
from tvm_npu.codegen.compile import CompileOptions, Generated, fixed_graph, generate
from tvm_npu.codegen.errors import PlanningError, QuantizationError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Graph, Shape, q_point_scales
from tvm_npu.codegen.graph_bound import GraphBound, useful_macs
from tvm_npu.codegen.ops import FixedConv, FixedPool, FixedReshape, FixedRun
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.plan import Planner
from tvm_npu.codegen.tiles.plan.direct import DirectPlanner
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.statistics import RunStatistics

RANDOM = settings(
    deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
ROUNDING = 1 + 1e-9
SNOWFLAKES = st.sampled_from(("snowflake-1cc", "snowflake-1cu", "snowflake-2cc", "snowflake-4cc"))
BOTH_TAKE = tuple(op for op in ALL_OPS if op not in ("sigmoid", "tanh"))
BOTH_KINDS = ("setup-a", "setup-a-taps", "zynq-7020", "snowflake-1cc", "snowflake-4cc")


def simulated(generated: Generated, seed: int) -> RunStatistics:
    """Of a run that fills the program's batch."""
    fixed, program = generated.planned.fixed, generated.program()
    most = element_limits(fixed.element_bytes)[1] // 32
    rng, dtype = np.random.default_rng(seed), np.dtype(f"i{fixed.element_bytes}")
    shapes = [(program.batch, *fixed.shapes[name]) for name in fixed.inputs]
    session = Session(program)
    session.run_fixed([rng.integers(-most, most + 1, shape).astype(dtype) for shape in shapes])
    assert session.statistics is not None
    return session.statistics


def check(
    fixed: FixedGraph, machine: MachineDescription, planner: str | Planner, seed: int = 0,
    images: Images = "together",
) -> GraphBound:  # fmt: skip
    """Of a program that its bound bounds."""
    generated = generate(fixed, machine, planner, images=images)
    found, statistics = generated.graph_bound, simulated(generated, seed)
    assert found is not None
    assert 0 < found.cycles <= statistics.cycles * ROUNDING
    assert 0 < found.compulsory_bytes <= statistics.moved_bytes
    return found


@RANDOM
@given(st.data(), tile_machines(), st.sampled_from((1, 2)), SEEDS)
def test_no_tiled_layer_is_below(
    data: st.DataObject, machine: MachineDescription, element_bytes: int, seed: int
) -> None:
    fixed = data.draw(layers(element_bytes))
    if any(one.filter_shifts is not None for one in fixed.layers if isinstance(one, FixedConv)):
        reject()
    try:
        found = check(fixed, machine, AnyPlan(seed), seed)
    except PlanningError:
        reject()
    macs = sum(useful_macs(layer, fixed.shapes) for layer in fixed.layers)
    assert found.mac_cycles == pytest.approx(macs / machine.macs_per_cycle(element_bytes))


@st.composite
def runs(draw: st.DrawFn) -> FixedGraph:
    """Chains of all kinds one behind the other."""
    size = (draw(st.integers(3, 9)), draw(st.integers(3, 9)))
    graph = Convolutions((draw(st.integers(1, 5)), *size), draw(st.integers(0, 1 << 20)))
    for turn in range(draw(st.integers(1, 4))):
        draw_chain(draw, graph, f"z{turn}")
    return graph.fixed()


@RANDOM
@given(runs(), st.sampled_from(("exact", "exact-traffic", "exact-layers")), SEEDS)
def test_no_run_of_chains_is_below(fixed: FixedGraph, planner: str, seed: int) -> None:
    check(fixed, tile_machine((4096, 2048, 8192), (4, 4, 4, 8)), planner, seed)


@RANDOM
@given(st.one_of(convolutions(), convolutions(far=5), pools()), SNOWFLAKES, SEEDS)
def test_no_layer_of_a_snowflake_is_below(fixed: FixedGraph, name: str, seed: int) -> None:
    try:
        check(fixed, load_machine(name), "exact", seed)
    except PlanningError as error:
        assert "covers no" in str(error)


@RANDOM
@given(cases(), SNOWFLAKES, st.sampled_from(("exact", "exact-layers", "exact-traffic")), SEEDS)
def test_no_maxima_behind_a_convolution_are_below(
    case: Case, name: str, planner: str, seed: int
) -> None:
    check(chain(case, seed), load_machine(name), planner, seed)


@RANDOM
@given(
    st.sampled_from(("lstm", "gru")), st.lists(st.sampled_from((1, 5, 16, 40)), min_size=2,
    max_size=3), st.integers(1, 4), st.booleans(), SNOWFLAKES,
)  # fmt: skip
def test_no_recurrent_layer_is_below(
    cell: str, extents: list[int], steps: int, begins: bool, name: str
) -> None:
    fixed = stacked(cell, tuple(extents), steps, 1, begins, True, name=name)
    check(fixed, load_machine(name), "exact")


@RANDOM
@given(graphs(8, BOTH_TAKE), st.sampled_from(BOTH_KINDS), st.booleans(), SEEDS)
def test_no_graph_is_below(graph: Graph, name: str, together: bool, seed: int) -> None:
    machine = load_machine(name)
    options = CompileOptions(images="together" if together or "4cc" not in name else "apart")
    try:
        ranges = calibrate(graph, [random_inputs(graph, seed)])
        fixed = fixed_graph(graph, ranges, machine, options)
        generated = generate(fixed, machine, "exact", images=options.images)
    except (PlanningError, QuantizationError):
        reject()
    found, statistics = generated.graph_bound, simulated(generated, seed)
    assert found is not None
    assert found.cycles <= statistics.cycles * ROUNDING
    assert found.compulsory_bytes <= statistics.moved_bytes


# --- by hand ------------------------------------------------------------------------------------


def test_a_bottleneck_by_hand() -> None:
    """A plan reaches it to the byte but for biases; padding counts for no product."""
    fixed, machine = bottleneck(24, 60, 14), load_machine("setup-a")
    found = check(fixed, machine, "exact-traffic")
    weights, met = 24 * 60 + 60 * 9 + 60 * 24, (14 * 3 - 2) ** 2
    assert found.compulsory_bytes == 4 * (2 * 24 * 14 * 14 + weights)
    assert found.mac_cycles == (2 * 24 * 60 * 14 * 14 + 60 * met) / 256
    assert found.traffic_cycles == pytest.approx(found.compulsory_bytes / 58.8)
    assert found.cycles == found.mac_cycles > found.traffic_cycles


def test_what_runs_as_one_layer_counts_as_its_parts() -> None:
    """The same whether layers are joined or not."""
    graph = Convolutions((24, 14, 14), 1)
    for turn in range(4):
        graph.conv(24 if turn % 2 else 48)
    machine = load_machine("setup-a")
    one, other = (
        generate(graph.fixed(), machine, planner) for planner in ("exact-traffic", "exact-layers")
    )
    assert any(isinstance(layer, FixedRun) for layer in one.planned.fixed.layers)
    assert len(other.planned.fixed.layers) == 4 and one.graph_bound == other.graph_bound


def conv(name: str, source: str, target: str, shape: tuple[int, ...], **more: Any) -> FixedConv:
    weight = np.ones(shape, np.int16)
    bias, limits = np.zeros(shape[0], np.int32), {"shift": 4, "low": -99, "high": 99}
    return FixedConv(name, (source,), (target,), weight, bias, **limits, **more)


def in_turn(made: list[FixedLayer], shapes: dict[str, Shape]) -> FixedGraph:
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(made), shapes, made[0].inputs, made[-1].outputs, scales, 2)


@pytest.mark.parametrize("name", BOTH_KINDS)
def test_results_that_nothing_looks_at_count_for_nothing(name: str) -> None:
    """A pool leaves rows and columns out, whose products a plan may leave out, too, with those
    values of the input that only they look at; a residual is read where its sum is looked at."""
    first = conv("first", "x", "a", (8, 4, 1, 1))
    first = replace(first, inputs=("x", "r"), residual_shift=2)
    pool = FixedPool(
        "pool", ("a",), ("b",), "max", (1, 1), (2, 3), shift=0, low=-99, high=99
    )
    fixed = in_turn(
        [first, pool], {"x": (4, 7, 7), "r": (8, 7, 7), "a": (8, 7, 7), "b": (8, 4, 3)}
    )
    machine = load_machine(name)
    found, places = check(fixed, machine, "exact"), 4 * 3
    values = 4 * places + 8 * places + 8 * 4 + 8 * places
    assert found.compulsory_bytes == machine.stored_element_bytes("int16") * values
    peak = machine.macs_per_cycle(2) * machine.core_count
    assert found.mac_cycles == pytest.approx(8 * 4 * places / peak)
    whole = replace(fixed, outputs=("a", "b"))
    assert check(whole, machine, "exact").mac_cycles == pytest.approx(8 * 4 * 49 / peak)


def test_taps_that_meet_only_padding_need_not_come() -> None:
    fixed = in_turn(
        [conv("one", "x", "y", (8, 4, 3, 3), padding=(1, 1, 1, 1))],
        {"x": (4, 1, 1), "y": (8, 1, 1)},
    )
    found = check(fixed, load_machine("snowflake-1cc"), "exact")
    assert found.compulsory_bytes == 2 * (4 + 8 * 4 + 8)
    assert found.mac_cycles == 8 * 4 / 256


def test_inputs_behind_views_count_where_all_is_read() -> None:
    """Fully connected layers read what they flatten; of what else takes it nothing is known."""
    flat = FixedReshape("flat", ("x",), ("f",))
    dense = conv("dense", "f", "y", (5, 64, 1, 1), is_dense=True)
    shapes: dict[str, Shape] = {"x": (4, 4, 4), "f": (64,), "y": (5,)}
    machine = load_machine("setup-a")
    assert check(in_turn([flat, dense], shapes), machine, "exact").compulsory_bytes == 4 * (
        64 + 5 * 64 + 5
    )


@pytest.mark.parametrize("name", ("snowflake-2cc", "snowflake-4cc"))
def test_an_image_a_cluster(name: str) -> None:
    """Weights come once for all images."""
    machine, graph = load_machine(name), Convolutions((16, 14, 14), 2, 2)
    graph.conv(32, 3)
    together = check(graph.fixed(), machine, "exact")
    apart = check(graph.fixed(), machine, "exact", images="apart")
    assert apart.mac_cycles == machine.core_count * together.mac_cycles
    weights = 2 * 16 * 32 * 9
    assert apart.compulsory_bytes - weights == machine.core_count * (
        together.compulsory_bytes - weights
    )


def test_a_core_may_fetch_by_itself() -> None:
    """A plan without the DMA controller, or with nothing to multiply: still bounded."""
    pool = FixedPool("pool", ("x",), ("y",), "max", (2, 2), (2, 2), shift=0, low=-99, high=99)
    for name in ("zynq-7020", "zynq-7020-uncached"):
        machine = core_machine(name, 65536, (4, 4, 4, 4), 4096)
        graph = Convolutions((8, 9, 9), 1, 2)
        graph.conv(8, 3)
        generated = generate(graph.fixed(), machine, DirectPlanner())
        found, statistics = generated.graph_bound, simulated(generated, 1)
        assert found is not None and 0 < found.cycles <= statistics.cycles
        alone = check(graph_of(pool, {"x": (8, 16, 16), "y": (8, 8, 8)}), machine, "exact")
        assert alone.mac_cycles == 0 < alone.traffic_cycles
