"""int8 programs with layers in int16: simulator against reference, for layers that nobody chose."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate
from tests.codegen.random_graphs import graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.choose_int16 import choose_int16_layers
from tvm_npu.codegen.compile import (
    CompileOptions,
    compile_fixed,
    compile_graph,
    fixed_graph,
    plan_graph,
)
from tvm_npu.codegen.errors import BackendError, PlanningError, QuantizationError
from tvm_npu.codegen.graph import RELU, FixedGraph, Graph, Layer
from tvm_npu.codegen.int16_costs import Int16Region
from tvm_npu.codegen.ops import Concat, Conv2d, Pool
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import Int16Layers, quantize
from tvm_npu.codegen.plan import planner as named_planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

NMP = load_nmp_machine("nmp-4x8-int8")
INT8 = CompileOptions(precision="int8")


def conv(
    name: str, inputs: tuple[str, ...], weight: np.ndarray, groups: int = 1
) -> Conv2d:
    pad = weight.shape[2] // 2
    bias = np.linspace(-1, 1, len(weight), dtype=np.float32)
    return Conv2d(
        name, inputs, (f"{name}_out",), weight, bias, padding=(pad,) * 4, groups=groups,
        activation=RELU, source=(f"node_{name}",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def network() -> tuple[Graph, Ranges, dict[str, np.ndarray]]:
    """A residual, a max pool, a depthwise layer (which may be a window), a concatenation."""
    random = np.random.default_rng(1)

    def weight(filters: int, channels: int, kernel: int) -> np.ndarray:
        values = random.standard_normal((filters, channels, kernel, kernel))
        return (values / np.sqrt(channels * kernel**2)).astype(np.float32)

    layers: tuple[Layer, ...] = (
        conv("a", ("x",), weight(8, 3, 3)),
        conv("b", ("a_out",), weight(8, 8, 3)),
        conv("c", ("b_out", "a_out"), weight(8, 8, 3)),
        Pool("p", ("c_out",), ("p_out",), "max", (2, 2), (2, 2)),
        conv("d", ("p_out",), weight(16, 8, 1)),
        conv("dw", ("d_out",), weight(16, 1, 3), groups=16),
        Concat("cat", ("dw_out", "p_out"), ("cat_out",)),
        conv("e", ("cat_out",), weight(6, 24, 1)),
    )
    shapes = {
        "x": (3, 12, 12), "a_out": (8, 12, 12), "b_out": (8, 12, 12), "c_out": (8, 12, 12),
        "p_out": (8, 6, 6), "d_out": (16, 6, 6), "dw_out": (16, 6, 6), "cat_out": (24, 6, 6),
        "e_out": (6, 6, 6),
    }  # fmt: skip
    graph = Graph(layers, shapes, ("x",), ("e_out", "b_out"))
    sample = {"x": random.standard_normal((2, 3, 12, 12)).astype(np.float32)}
    return graph, calibrate(graph, [sample]), sample


def integers(fixed: FixedGraph, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: fixed.scales[n].quantize(sample[n][:1], fixed.width_of(n)) for n in fixed.inputs}


def assert_same(
    fixed: FixedGraph, sample: dict[str, np.ndarray], machine: NmpMachine = NMP
) -> None:
    """The program's outputs are the reference's, of the same types."""
    entry = integers(fixed, sample)
    program = compile_fixed(fixed, machine)
    outputs, _ = simulate(program, {name: values[0] for name, values in entry.items()})
    made = run_fixed(fixed, entry)
    for name in fixed.outputs:
        assert outputs[name].dtype == made[name].dtype
        np.testing.assert_array_equal(outputs[name].reshape(made[name].shape), made[name])


def sqnr_db(graph: Graph, fixed: FixedGraph, sample: dict[str, np.ndarray], name: str) -> float:
    wanted = run_float(graph, {n: values[:1] for n, values in sample.items()})[name]
    found = fixed.scales[name].dequantize(run_fixed(fixed, integers(fixed, sample))[name])
    return float(10 * np.log10(np.square(wanted).sum() / np.square(found - wanted).sum()))


@pytest.mark.parametrize(
    "chosen, wide, copies",
    [
        (("a",), {"x"}, ()),
        (("node_b",), {"a_out", "b_out"}, ("a_out@int8", "b_out@int8")),
        (("c",), {"a_out", "b_out"}, ("a_out@int8",)),
        (("dw",), {"d_out"}, ()),
        (("e",), {"dw_out", "p_out@int16", "cat_out", "e_out"}, ("p_out@int16",)),
        (("d", "e"), {"c_out", "p_out", "d_out@none", "dw_out", "cat_out", "e_out"}, ()),
    ],
)
def test_a_layer_in_int16_reads_int16(
    network: tuple[Graph, Ranges, dict[str, np.ndarray]],
    chosen: tuple[str, ...],
    wide: set[str],
    copies: tuple[str, ...],
) -> None:
    graph, ranges, sample = network
    fixed = fixed_graph(graph, ranges, NMP, CompileOptions(int16_layers=chosen))
    found = {tensor for tensor, width in fixed.widths.items() if width == 2}
    assert found == {tensor for tensor in wide if not tensor.endswith("@none")}
    assert sorted(t for t in fixed.widths if "@" in t) == sorted(copies)
    assert_same(fixed, sample)


@pytest.mark.parametrize("tlts, ports", [(1, 1), (2, 2)])
def test_wide_results_of_tiles_that_fill_mb2(tlts: int, ports: int) -> None:
    """With two ports tiles have two buffers; results wider than operands have one."""
    random = np.random.default_rng(1)
    weights = [random.standard_normal((m, n, 3, 3)) / 9 for m, n in ((16, 8), (8, 16))]
    first, second = (weight.astype(np.float32) for weight in weights)
    layers = (conv("a", ("x",), first), conv("b", ("a_out",), second))
    shapes = {"x": (8, 40, 40), "a_out": (16, 40, 40), "b_out": (8, 40, 40)}
    graph = Graph(layers, shapes, ("x",), ("b_out",))
    sample = {"x": random.standard_normal((1, 8, 40, 40)).astype(np.float32)}
    small = NMP.with_cores(1, tlts)
    memories = small.memories.model_copy(update={"ports": ports})
    machine = small.model_copy(update={"memories": memories})
    options = CompileOptions(int16_layers=("b",))
    fixed = fixed_graph(graph, calibrate(graph, [sample]), machine, options)
    assert fixed.layers[0].out_bytes == 2
    assert_same(fixed, sample, machine)


def test_digits_are_gained(network: tuple[Graph, Ranges, dict[str, np.ndarray]]) -> None:
    graph, ranges, sample = network
    int8, one, two, all_ = (
        fixed_graph(graph, ranges, NMP, CompileOptions(int16_layers=layers))
        for layers in ((), ("b",), ("a", "b"), tuple(layer.name for layer in graph.layers))
    )
    decibels = [sqnr_db(graph, fixed, sample, "b_out") for fixed in (int8, one, two, all_)]
    assert decibels[0] + 2 < decibels[1] and decibels[1] + 20 < decibels[2] == decibels[3]
    assert all_.precision == "int16" and one.precision == "int8"
    program = compile_graph(graph, ranges, NMP, CompileOptions(int16_layers=("b",)))
    precisions = {layer.name: layer.precision for layer in program.layers}
    assert precisions["b"] == "int16" and precisions["a"] == "int8" == precisions["e"]


@given(graphs(), st.integers(0, 99), st.data())
@settings(max_examples=examples(12), deadline=None)
def test_random_graphs(graph: Graph, seed: int, data: st.DataObject) -> None:
    sample = random_inputs(graph, seed, batch=1)
    fused = fuse(graph)
    assume(fused.layers)
    chosen = data.draw(st.sets(st.sampled_from([layer.name for layer in fused.layers])))
    try:
        ranges = calibrate(fused, [sample])
        step = NMP.requantization("int8")
        fixed = quantize(fused, ranges, "int8", step, Int16Layers(frozenset(chosen)))
        assert_same(fixed, sample)
    except (QuantizationError, PlanningError):
        reject()


def test_the_choice_keeps_the_loss(
    network: tuple[Graph, Ranges, dict[str, np.ndarray]]
) -> None:
    graph, ranges, sample = network
    none = choose_int16_layers(graph, ranges, NMP, INT8, sample, 0.5)
    assert none.layers == () and none.cycles == none.int8_cycles
    some = choose_int16_layers(graph, ranges, NMP, INT8, sample, none.loss * 0.9)
    assert 0 < len(some.layers) < 6 and some.loss <= none.loss * 0.9 and some.int8_loss == none.loss
    assert some.cycles > some.int8_cycles
    best = choose_int16_layers(graph, ranges, NMP, INT8, sample, 1e-12)
    assert len(best.layers) == 6 and best.loss < some.loss


@pytest.fixture(scope="module")
def block() -> tuple[Graph, Ranges, dict[str, np.ndarray]]:
    """A block of three, which falls apart where one of it is int16, and two layers around it."""
    random = np.random.default_rng(0)

    def weight(filters: int, channels: int, kernel: int) -> np.ndarray:
        values = random.standard_normal((filters, channels, kernel, kernel))
        unlike = np.exp(random.standard_normal((filters, 1, 1, 1)))
        return (values * unlike / np.sqrt(channels * kernel**2)).astype(np.float32)

    layers: tuple[Layer, ...] = (
        conv("first", ("x",), weight(8, 3, 3)),
        conv("expand", ("first_out",), weight(48, 8, 1)),
        conv("dw", ("expand_out",), weight(48, 1, 3), groups=48),
        conv("project", ("dw_out", "first_out"), weight(8, 48, 1)),
        Pool("pool", ("project_out",), ("pool_out",), "max", (2, 2), (2, 2)),
        conv("last", ("pool_out",), weight(16, 8, 3)),
    )
    shapes = {
        "x": (3, 32, 32), "first_out": (8, 32, 32), "expand_out": (48, 32, 32),
        "dw_out": (48, 32, 32), "project_out": (8, 32, 32), "pool_out": (8, 16, 16),
        "last_out": (16, 16, 16),
    }  # fmt: skip
    graph = Graph(layers, shapes, ("x",), ("last_out",))
    sample = {"x": random.standard_normal((2, 3, 32, 32)).astype(np.float32)}
    return graph, calibrate(graph, [sample]), sample


def test_costs_are_those_of_the_plan(
    block: tuple[Graph, Ranges, dict[str, np.ndarray]]
) -> None:
    graph, ranges, sample = block
    planner = LayerPlanner("int8", NMP, named_planner("exact"))

    def cycles(layers: tuple[str, ...]) -> float:
        fixed = fixed_graph(graph, ranges, NMP, CompileOptions("int8", int16_layers=layers))
        return sum(one.predicted_cycles or 0.0 for one in plan_graph(fixed, planner).layers)

    choices = Int16Region(graph, ranges, NMP, INT8, sample).choices()
    assert len(choices) == 7 + 2
    alone = {one.layers: one.cost for one in choices}
    assert alone == {one.layers: cycles(one.layers) - cycles(()) for one in choices}
    assert alone["expand", "dw", "project"] < alone["expand",] + alone["dw",] + alone["project",]


def test_the_choice_is_the_cheapest(
    block: tuple[Graph, Ranges, dict[str, np.ndarray]]
) -> None:
    graph, ranges, sample = block
    region = Int16Region(graph, ranges, NMP, INT8, sample)
    free = [layer.name for layer in graph.layers if layer.name != "pool"]
    tried = [each for count in range(6) for each in combinations(free, count)]
    for share in (0.8, 0.25, 0.1):
        enough = share * region.loss(())
        found = choose_int16_layers(graph, ranges, NMP, INT8, sample, enough)
        cheapest = min(region.cycles(each) for each in tried if region.loss(each) <= enough)
        assert found.loss <= enough and found.cycles == cheapest


def test_machines_of_one_precision_refuse(
    network: tuple[Graph, Ranges, dict[str, np.ndarray]]
) -> None:
    graph, ranges, _ = network
    machine = load_machine("setup-a")
    with pytest.raises(BackendError, match="'setup-a' computes all layers of a program with one"):
        compile_graph(graph, ranges, machine, CompileOptions("int8", int16_layers=("a",)))
