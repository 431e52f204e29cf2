"""Predictions agree with the simulator: layers of well-known networks under many kinds of plans."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.codegen.nmp.fixed_layers import fixed_graph, random_tensors
from tests.codegen.nmp.forced import Forced
from tests.codegen.nmp.plan.plan_reference import conv, dense
from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.graph import (
    FixedGraph,
    FixedLayer,
    Shape,
    Table,
    output_extent,
    q_point_scales,
)
from tvm_npu.codegen.nmp.plan.block import BlockPlan
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.sequence import early_cycles
from tvm_npu.codegen.nmp.plan.window import FlatPlan, WindowPlan
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPool
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.sim.nmp.xnmp import TABLE_ENTRIES, TABLE_SEGMENT_BITS

LAYERS = (
    conv(64, 16, (54, 54), (3, 3), padding=(1, 1, 1, 1)),  # SqueezeNet
    conv(32, 256, (27, 27), (1, 1)),
    conv(192, 48, (27, 27), (1, 1)),
    conv(256, 64, (13, 13), (3, 3), padding=(1, 1, 1, 1)),
    conv(128, 128, (28, 28), (3, 3), padding=(1, 1, 1, 1), stride=(2, 2)),  # ResNet-50
    conv(512, 128, (28, 28), (1, 1), has_residual=True),
    conv(2048, 512, (7, 7), (1, 1)),
    conv(192, 192, (17, 17), (1, 7), padding=(0, 3, 0, 3)),  # InceptionV3
    conv(320, 192, (17, 17), (3, 3), stride=(2, 2)),
    conv(384, 1280, (8, 8), (1, 1)),
    conv(192, 32, (28, 28), (1, 1)),  # MobileNetV2
    conv(96, 576, (14, 14), (1, 1), has_residual=True),
    conv(50, 20, (12, 12), (5, 5)),  # LeNet
    dense(500, 800),
)
DEPTHWISE = conv(384, 384, (14, 14), (3, 3), padding=(1, 1, 1, 1), groups=384)


@dataclass(frozen=True)
class Given:
    """Answers with one plan."""

    answer: ConvPlan
    name: str = "given"

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        return self.answer


def graph_of(problem: ConvProblem) -> FixedGraph:
    generator = np.random.default_rng(0)
    weight = generator.integers(
        -50, 50, (problem.filters, problem.channels // problem.groups, *problem.kernel)
    )
    inputs = ("x", "z") if problem.has_residual else ("x",)
    stored = np.iinfo(np.int8 if problem.element_bytes == 1 else np.int16)
    layer = FixedConv(
        "layer", inputs, ("y",), weight=weight.astype(stored.dtype),
        bias=generator.integers(-1000, 1000, problem.filters).astype(np.int32),
        stride=problem.stride, padding=problem.padding, groups=problem.groups, shift=8,
        low=int(stored.min), high=int(stored.max), is_dense=problem.is_dense,
    )  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (problem.channels, problem.in_rows, problem.in_columns),
        "y": (problem.filters, problem.rows, problem.columns),
    }
    if problem.is_dense:
        shapes = {"x": (problem.channels,), "y": (problem.filters,)}
    if problem.has_residual:
        shapes["z"] = shapes["y"]
    return fixed_graph(layer, shapes, problem.element_bytes)


def measured(graph: FixedGraph, machine: NmpMachine, plan: ConvPlan | None = None) -> float:
    """Cycles of the one layer of ``graph`` on the simulator."""
    program = compile_fixed(graph, machine, Given(plan) if plan else planner("tso"))
    _, statistics = simulate(program, random_tensors(graph, 1))
    return statistics.layers[0].cycles


def check_agreement(pairs: list[tuple[float, float]], mean_error: float = 0.05) -> None:
    """``pairs`` of (predicted, measured) cycles."""
    predicted, real = np.array(pairs).T
    errors: NDArray[np.float64] = np.abs(predicted / real - 1)
    assert errors.mean() <= mean_error, errors
    assert np.corrcoef(predicted, real)[0, 1] >= 0.99


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
@pytest.mark.parametrize("name", ["tso", "exact", "exact-dma"])
def test_plans_of_planners(name: str, machine: str) -> None:
    """With and without the ring, with one buffer and with two."""
    mach = load_nmp_machine(machine)
    pairs = []
    for problem in (*LAYERS, DEPTHWISE):
        plan = planner(name).plan(problem, mach)
        assert isinstance(plan, ConvPlan)
        found = predict(problem, plan, mach).cycles
        pairs.append((found, measured(graph_of(problem), mach, plan)))
    check_agreement(pairs)


def sampled(
    generator: random.Random, problem: ConvProblem, mach: NmpMachine, ring: bool, buffers: int
) -> ConvPlan:
    """Some plan of all TLEs that fits."""
    tles, tlts = mach.cores.tles, mach.cores.tlts_per_tle
    channels = problem.channels
    cuts = [
        (rows, columns, tles // (rows * columns))
        for rows in range(1, tles + 1)
        for columns in range(1, tles + 1)
        if tles % (rows * columns) == 0
    ]

    def part(total: int) -> int:
        return ceil(total / generator.choice((1, 1, 2, 3, 4, 6, 8, 16, 32)))

    while True:
        rows, columns, filters = generator.choice(cuts)
        tlt_rows = generator.choice((1, 1, 2, 4, 8))
        schedule = generator.choice(("IS", "OS", "WS", "kept"))
        most = ceil(ceil(problem.filters / filters) * tlt_rows / tlts)
        plan = ConvPlan(
            "multicast", "KS&OFM", rows, filters,
            "OS" if schedule == "kept" else schedule,  # type: ignore[arg-type]
            most if schedule == "IS" else part(most),
            channels if schedule == "kept" else part(channels),
            part(ceil(ceil(problem.rows / rows) / tlt_rows)), ceil(problem.columns / columns),
            column_slices=columns, tlt_rows=tlt_rows, keeps_in=schedule == "kept",
            ring_in=ring and filters > 1, ring_weights=ring and rows * columns > 1,
            weights=generator.choice(("filters", "tiles")),  # type: ignore[arg-type]
            linear_maps=generator.random() < 0.7, buffers=buffers,  # type: ignore[arg-type]
        )  # fmt: skip
        if check_plan(problem, plan, mach) is None:
            return plan


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("ring", [False, True])
def test_any_plans(ring: bool, buffers: int) -> None:
    """Also plans that no planner would choose, the fastest of a few at a time: with one buffer,
    TLTs that share nothing overlap each other's work, which the model leaves out."""
    mach = load_nmp_machine("nmp-4x8-dual" if buffers == 2 else "nmp-4x8")
    generator = random.Random(3)
    pairs = []
    for problem in LAYERS[:12]:
        plans = [sampled(generator, problem, mach, ring, buffers) for _ in range(6)]
        found, index = min(
            (predict(problem, plan, mach).cycles, index) for index, plan in enumerate(plans)
        )
        pairs.append((found, measured(graph_of(problem), mach, plans[index])))
    check_agreement(pairs, 0.08)


@pytest.mark.parametrize("machine", ["nmp-4x8", "nmp-4x8-dual"])
def test_convolutions_with_a_window_behind(machine: str) -> None:
    mach = load_nmp_machine(machine)
    pairs = []
    for problem, window, stride, has_weights in (
        (conv(64, 16, (54, 54), (3, 3)), 3, 2, False),
        (conv(96, 16, (56, 56), (1, 1)), 3, 2, True),
        (conv(192, 32, (28, 28), (1, 1)), 3, 1, True),
        (conv(576, 96, (14, 14), (1, 1)), 3, 2, True),
    ):
        padding = int(has_weights)
        extent = output_extent(problem.rows, window, stride, 1, 2 * padding)
        behind = Window(
            extent, extent, (window, window), (stride, stride), (padding, padding), has_weights
        )
        cascaded = replace(problem, window=behind)
        plan = planner("exact").plan(cascaded, mach)
        assert isinstance(plan, ConvPlan)
        graph = cascaded_graph(problem, behind)
        program = compile_fixed(graph, mach, Cascading(plan))
        _, statistics = simulate(program, random_tensors(graph, 1))
        assert len(statistics.layers) == 1
        found = predict(cascaded, plan, mach).cycles
        pairs.append((found, statistics.layers[0].cycles))
    check_agreement(pairs)


def blocked_graph(problem: ConvProblem, window: Window, filters: int) -> FixedGraph:
    """A convolution, a window behind it, and a pointwise convolution behind that."""
    graph = cascaded_graph(problem, window)
    point = graph_of(conv(filters, problem.filters, (window.rows, window.columns), (1, 1)))
    (last,) = point.layers
    return replace(
        graph,
        layers=(*graph.layers, replace(last, name="point", inputs=("v",), outputs=("w",))),
        shapes={**graph.shapes, "w": point.shapes["y"]},
        outputs=("w",),
        scales=graph.scales | q_point_scales({"w": 8}),
    )


def test_what_goes_over_the_ring_waits_for_the_loads_of_the_next_tile() -> None:
    """A bottleneck of MobileNetV2, cut in height, under a plan whose loads take long."""
    mach = load_nmp_machine("nmp-4x8-dual")
    window = Window(16, 56, (3, 3), (2, 2), (1, 1), has_weights=True)
    graph = blocked_graph(conv(96, 16, (32, 112), (1, 1)), window, 24)
    head = ConvPlan(
        "multicast", "OFM", 4, 1, "WS", 12, 5, 1, 28, ring_weights=True, weights="tiles",
        linear_maps=True, buffers=2,
    )  # fmt: skip
    program = compile_fixed(graph, mach, Forced(BlockPlan(head, 6)))
    (entry,) = program.layers
    _, statistics = simulate(program, random_tensors(graph, 1))
    assert entry.predicted_cycles == pytest.approx(statistics.cycles, rel=0.05)


@dataclass(frozen=True)
class Cascading(Given):
    """Answers with one plan, which it finds much faster than two layers."""

    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        found = planner("tso").plan(problem, machine) if problem.window is None else self.answer
        assert isinstance(found, ConvPlan) and found.prediction is not None
        cycles = 1e12 if problem.window is None else 1.0
        return replace(found, prediction=replace(found.prediction, cycles=cycles))


def cascaded_graph(problem: ConvProblem, window: Window) -> FixedGraph:
    graph = graph_of(problem)
    pads = (*window.padding, *window.padding)
    behind: FixedLayer
    if window.has_weights:
        generator = np.random.default_rng(1)
        behind = FixedConv(
            "window", ("y",), ("v",), stride=window.stride, padding=pads, groups=problem.filters,
            weight=generator.integers(-50, 50, (problem.filters, 1, *window.kernel)).astype(
                np.int16
            ),
            bias=np.zeros(problem.filters, np.int32), shift=8, low=-32768, high=32767,
        )  # fmt: skip
    else:
        behind = pool_layer(window.kernel[0], window.stride[0], window.padding[0], "max", "y", "v")
    return replace(
        graph,
        layers=(*graph.layers, behind),
        shapes={**graph.shapes, "v": (problem.filters, window.rows, window.columns)},
        outputs=("v",),
        scales=graph.scales | q_point_scales({"v": 8}),
    )


def pool_layer(
    kernel: int, stride: int, padding: int, kind: str, source: str = "x", target: str = "y"
) -> FixedPool:
    pads = (padding,) * 4
    return FixedPool(
        "window", (source,), (target,), shift=0, low=-32768, high=32767,
        kind=kind, kernel=(kernel, kernel), stride=(stride, stride),  # type: ignore[arg-type]
        padding=pads, count_include_pad=False, counted_padding=pads,
    )  # fmt: skip


def test_pools_and_elementwise_layers() -> None:
    mach = load_nmp_machine("nmp-4x8")
    graphs = []
    for channels, extent, kernel, stride, padding, kind in (
        (96, 54, 3, 2, 0, "max"),
        (192, 35, 3, 1, 1, "avg"),
        (512, 27, 3, 2, 0, "max"),
        (2048, 8, 8, 1, 0, "avg"),
    ):
        layer = pool_layer(kernel, stride, padding, kind)
        made = output_extent(extent, kernel, stride, 1, 2 * padding)
        shapes: dict[str, Shape] = {"x": (channels, extent, extent), "y": (channels, made, made)}
        graphs.append(fixed_graph(layer, shapes, 2))
    for op, shape in (("add", (512, 28, 28)), ("mul", (64, 14, 14)), ("copy", (64, 54, 54))):
        inputs = ("x",) if op == "copy" else ("x", "z")
        layer_ = FixedElementwise(
            "layer", inputs, ("y",), op=op, shift_a=0, shift_b=0, shift=0,  # type: ignore[arg-type]
            low=-32768, high=32767,
        )  # fmt: skip
        graphs.append(fixed_graph(layer_, dict.fromkeys((*inputs, "y"), shape), 2))
    pairs = []
    for graph in graphs:
        plan = generate(graph, mach, planner("tso")).planned.layers[0].plan
        assert isinstance(plan, WindowPlan | FlatPlan)
        pairs.append((plan.cycles, measured(graph, mach)))
    check_agreement(pairs)


def test_weights_that_come_early_count_in_the_layer_before() -> None:
    """A pool, then a fully connected layer: TLTs ask for its first W tiles in front of the pool's
    last stores."""
    mach = load_nmp_machine("nmp-4x8-dual")
    behind = graph_of(dense(1000, 512))
    graph = replace(
        behind,
        layers=(pool_layer(6, 1, 0, "avg", "p", "x"), *behind.layers),
        shapes={"p": (512, 6, 6), "x": (512, 1, 1), "y": (1000,)},
        inputs=("p",),
        scales=behind.scales | q_point_scales({"p": 8}),
    )
    generated = generate(graph, mach, planner("exact"))
    entries = generated.program().layers
    _, statistics = simulate(generated.program(), random_tensors(graph, 1))
    for entry, layer in zip(entries, statistics.layers, strict=True):
        assert entry.predicted_cycles == pytest.approx(layer.cycles, rel=0.05)
    alone = generated.planned.layers[0].plan.cycles
    assert statistics.layers[0].cycles > 1.3 * alone
    early = early_cycles(*generated.planned.layers, mach)
    assert generated.planned.layers[0].predicted_cycles == pytest.approx(alone + early)


def test_tlts_that_are_through_first_load_in_front_of_what_is_left() -> None:
    """LeNet's convolutions with its pools, under plans of least traffic: half of the TLTs have two
    filters and half three, and what the first load early holds up the ring of the others."""
    mach = load_nmp_machine("nmp-4x8-dual")
    first = cascaded_graph(conv(20, 1, (28, 28), (5, 5)), Window(12, 12, (2, 2), (2, 2), (0, 0)))
    behind = graph_of(conv(50, 20, (12, 12), (5, 5)))
    last = replace(behind.layers[0], name="last", inputs=("v",), outputs=("w",))
    graph = replace(
        first,
        layers=(*first.layers, last, pool_layer(2, 2, 0, "max", "w", "p")),
        shapes={**first.shapes, "w": (50, 8, 8), "p": (50, 4, 4)},
        outputs=("p",),
        scales=first.scales | q_point_scales({"w": 8, "p": 8}),
    )
    program = compile_fixed(graph, mach, "exact-traffic")
    _, statistics = simulate(program, random_tensors(graph, 1))
    assert len(program.layers) == 2
    for entry, layer in zip(program.layers, statistics.layers, strict=True):
        assert entry.predicted_cycles == pytest.approx(layer.cycles, rel=0.05)


def test_small_layers_wait_for_their_words_and_their_code() -> None:
    mach = load_nmp_machine("nmp-4x8")
    for problem in (dense(96, 24), dense(24, 96), dense(80, 40), conv(16, 8, (14, 14), (1, 1))):
        program = compile_fixed(graph_of(problem), mach, "exact")
        cycles = measured(graph_of(problem), mach, planner("exact").plan(problem, mach))
        assert program.layers[0].predicted_cycles == pytest.approx(cycles, rel=0.1)


def test_tables_are_loaded_in_front_of_a_layer() -> None:
    """Under a plan of several channel steps, whose TLTs begin together anyway."""
    mach = load_nmp_machine("nmp-4x8")
    graph = graph_of(conv(240, 40, (14, 14), (1, 1)))
    values = np.zeros(TABLE_ENTRIES[2], np.int16)
    layer = replace(graph.layers[0], table=Table(values, 0, TABLE_SEGMENT_BITS[2]))  # type: ignore[call-arg]
    with_table = replace(graph, layers=(layer,))
    predicted, simulated = [], []
    for one in (graph, with_table):
        program = compile_fixed(one, mach, "fixed-ks")
        predicted.append(program.layers[0].predicted_cycles or 0.0)
        simulated.append(simulate(program, random_tensors(one, 1))[1].layers[0].cycles)
    longer = simulated[1] - simulated[0]
    assert longer > 1000
    assert predicted[1] - predicted[0] == pytest.approx(longer, rel=0.3)
