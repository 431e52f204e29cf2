"""compile_fixed and compile_graph: plans, errors, determinism, no work done twice."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from tests.codegen.nmp.simulated import simulate, small_machine
from tvm_npu.codegen.compile import CompileOptions, compile_fixed, compile_graph
from tvm_npu.codegen.errors import EmitError, PlanningError
from tvm_npu.codegen.graph import RELU, FixedGraph, FixedLayer, Graph, q_point_scales
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.ops import Conv2d, Elementwise, FixedConv
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.plan import TileLimits, planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine


def conv(name: str, source: str, channels: int, kernel: int = 3) -> FixedConv:
    pad = kernel // 2
    return FixedConv(
        name, (source,), (name,), weight=np.ones((channels, channels, kernel, kernel), np.int16),
        bias=np.zeros(channels, np.int32), padding=(pad,) * 4, shift=4, low=-9999, high=9999,
    )  # fmt: skip


def chain(count: int, channels: int = 4, kernel: int = 3) -> FixedGraph:
    tensors = ["x", *(f"y{index}" for index in range(count))]
    layers: list[FixedLayer] = [
        conv(made, read, channels, kernel) for read, made in zip(tensors, tensors[1:], strict=False)
    ]
    shapes = {tensor: (channels, 8, 8) for tensor in tensors}
    return FixedGraph(
        tuple(layers), shapes, ("x",), (tensors[-1],), q_point_scales(dict.fromkeys(tensors, 4)), 2
    )


@dataclass
class Counting:
    """The TSO planner, with the questions that it was asked."""

    asked: list[ConvProblem] = field(default_factory=list)
    name: str = "counting"

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        self.asked.append(problem)
        return planner("tso").plan(problem, machine)


def test_equal_layers_are_planned_once() -> None:
    counting = Counting()
    program = compile_fixed(chain(4), small_machine(), counting)
    assert len(program.layers) == 4
    assert len(counting.asked) == 1
    assert program.planner == "counting"


def test_infeasible_layer() -> None:
    fixed = chain(2, kernel=17)
    with pytest.raises(
        PlanningError, match=r"layer 'y0'.*578 bytes of MB1 needed, 128 available"
    ) as caught:
        compile_fixed(fixed, small_machine(mb0=8192, mb1=128))
    assert caught.value.layer == "y0"
    assert isinstance(caught.value.infeasible, Infeasible)
    assert caught.value.infeasible.available_bytes == 128


def test_unknown_planner() -> None:
    with pytest.raises(PlanningError, match="'psychic'"):
        compile_fixed(chain(1), small_machine(), "psychic")


@dataclass(frozen=True)
class Wrong:
    changes: dict[str, object]
    name: str = "wrong"

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan:
        good = ConvPlan("multicast", "KS", 1, 1, "OS", 2, 2, 4, 4)
        return replace(good, **self.changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"row_slices": 2}, "uses 2 TLEs, the machine has 1"),
        ({"tile_r": 8, "tile_c": 8, "tile_n": 4}, "IN tile takes 800 bytes of MB0, which has 512"),
        ({"tile_m": 4, "tile_r": 8, "tile_c": 8, "tile_n": 1}, "OUT tile takes 512 bytes of MB2"),
        ({"schedule": "WS", "tile_n": 1}, "W tile takes 144 bytes of MB1, which has 128"),
        ({"mode": "grouped"}, "the layer has groups = 1; use mode multicast"),
    ],
)
def test_plans_that_the_machine_cannot_run(changes: dict[str, object], named: str) -> None:
    machine = small_machine(tlts=1, mb1=128, mb2=500 // 8 * 8)
    with pytest.raises(EmitError, match=named):
        compile_fixed(chain(1), machine, Wrong(changes))


def test_weights_that_do_not_fit_their_type() -> None:
    layer = replace(conv("y0", "x", 4), weight=np.full((4, 4, 3, 3), 40_000))
    fixed = replace(chain(1), layers=(layer,))
    with pytest.raises(EmitError, match=r"layer 'y0', weights.*40000.*int16"):
        compile_fixed(fixed, small_machine())


def small_graph() -> Graph:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((6, 3, 3, 3)).astype(np.float32)
    layers = (
        Conv2d("c", ("x",), ("t",), weight, np.ones(6, np.float32), padding=(1, 1, 1, 1)),
        Elementwise("r", ("t",), ("y",), "copy", RELU),
    )
    shapes = {"x": (3, 9, 9), "t": (6, 9, 9), "y": (6, 9, 9)}
    return Graph(layers, shapes, ("x",), ("y",))


@pytest.mark.parametrize("precision", [None, "int8"])
def test_compile_graph(precision: str | None) -> None:
    graph = small_graph()
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)
    ranges = calibrate(graph, [{"x": x}])
    options = CompileOptions(precision, limits=TileLimits(max_tile_r=2))  # type: ignore[arg-type]
    machine = small_machine(2, 2)
    program = compile_graph(graph, ranges, machine, options)
    assert program.precision == (precision or "int16")
    assert [layer.kind for layer in program.layers] == ["conv"]  # the clip is fused
    assert program.to_bytes() == compile_graph(graph, ranges, machine, options).to_bytes()
    slot = program.inputs[0]
    q = np.round(np.ldexp(x[0], slot.q_point))
    q = np.clip(q, -(1 << (8 * slot.element_bytes - 1)), (1 << (8 * slot.element_bytes - 1)) - 1)
    outputs, _ = simulate(program, {"x": q.astype(np.int8 if precision else np.int16)})
    real = np.ldexp(outputs["y"].astype(float), -program.outputs[0].q_point)
    tolerance = 0.3 if precision else 0.01
    expected = reference_conv(x[0], graph)
    assert np.abs(real - expected).max() < tolerance


def reference_conv(x: np.ndarray, graph: Graph) -> np.ndarray:
    layer = graph.layers[0]
    assert isinstance(layer, Conv2d)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    total = np.ones((6, 9, 9))
    for i in range(3):
        for j in range(3):
            patch = padded[:, i : i + 9, j : j + 9]
            total += np.einsum("mn,nhw->mhw", layer.weight[:, :, i, j], patch)
    return np.maximum(total, 0)


def test_code_is_a_loop_not_a_trace() -> None:
    """Code size does not depend on how many tiles a layer has."""
    fixed, machine = chain(1), small_machine(mb0=8192, mb1=8192, mb2=8192)
    sizes = {
        len(compile_fixed(fixed, machine, "fixed-os", TileLimits(1, 1, rows, rows)).code)
        for rows in (1, 2, 4)
    }
    assert len(sizes) == 1


def test_plans_and_predictions_are_in_the_layer_table() -> None:
    program = compile_fixed(chain(1), small_machine())
    entry = program.layers[0]
    assert entry.plan is not None and entry.plan["schedule"] in ("IS", "OS", "WS")
    json.dumps(entry.plan)
    inputs = {"x": np.ones((4, 8, 8), np.int16)}
    outputs, statistics = simulate(program, inputs)
    expected = run_fixed(chain(1), {"x": inputs["x"][None]})["y0"][0]
    assert np.array_equal(outputs["y0"], expected)
    assert entry.predicted_cycles is not None
    assert 0.5 < entry.predicted_cycles / statistics.cycles < 1.5
