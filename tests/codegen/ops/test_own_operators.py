"""Several outputs and states, from the float graph to places in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.codegen.ops.own_operators import RunningSum, Split, own_operators
from tvm_npu.codegen.compile import CompileOptions, compile_graph, fixed_graph
from tvm_npu.codegen.errors import GraphError, UnsupportedLayerError
from tvm_npu.codegen.graph import RELU, FixedGraph, Graph, Layer, Scale, State
from tvm_npu.codegen.ops import OPERATORS, Elementwise, FixedConv, FixedElementwise
from tvm_npu.codegen.ops.registry import check_support, kind_of, missing_layers
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.sqnr import layer_sqnr
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization
from tvm_npu.sim.machine_file import load_machine


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with own_operators():
        yield
    assert Split not in OPERATORS


def split_graph() -> Graph:
    """Three parts, of which one is not used; a copy renames another."""
    layers: tuple[Layer, ...] = (
        Elementwise("r", ("x",), ("a",), "copy", RELU, source=("relu",)),
        Split("s", ("a",), ("p", "q", "unused"), source=("split",)),
        Elementwise("m", ("p", "q"), ("m",), "mul", source=("mul",)),
        Elementwise("c", ("q",), ("out",), "copy", source=("identity",)),
    )
    part = (2, 3, 3)
    shapes = {"x": (6, 3, 3), "a": (6, 3, 3), "p": part, "q": part, "unused": part}
    return Graph(layers, {**shapes, "m": part, "out": part}, ("x",), ("m", "out"))


def sum_graph(initial: str | None = "h", final: str | None = "end") -> Graph:
    state = State("state", initial, final)
    inputs = ("x",) if initial is None else ("x", initial)
    outputs = ("y",) if final is None else ("y", final)
    layers = (
        RunningSum("sum", inputs, outputs, states=(state,)),
        Elementwise("r", ("y",), ("z",), "copy", RELU),
    )
    shapes = {"x": (5, 4), "h": (4,), "y": (5, 4), "end": (4,), "z": (5, 4), "state": (4,)}
    shapes = {t: s for t, s in shapes.items() if t in {"x", "y", "z", "state", initial, final}}
    return Graph(layers, shapes, inputs, ("z", *outputs[1:]))


def samples(graph: Graph, count: int, seed: int = 3) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [
        {
            name: random.normal(size=(2, *graph.shapes[name])).astype(np.float32)
            for name in graph.inputs
        }
        for _ in range(count)
    ]


def fixed_inputs(fixed: FixedGraph, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: fixed.scales[n].quantize(sample[n], fixed.element_bytes) for n in fixed.inputs}


def test_several_outputs_from_graph_to_places() -> None:
    graph = split_graph()
    fused = fuse(graph)
    (split,) = (layer for layer in fused.layers if isinstance(layer, Split))
    # The copy is gone: the split writes its second part under the output's name.
    assert [layer.name for layer in fused.layers] == ["r", "s", "m"]
    assert split.outputs == ("p", "out", "unused") and split.source == ("split", "identity")
    sample = samples(graph, 1)[0]
    before, after = run_float(graph, sample), run_float(fused, sample)
    for name in graph.outputs:
        np.testing.assert_array_equal(before[name], after[name])
    np.testing.assert_array_equal(before["q"], np.maximum(sample["x"], 0)[:, 2:4])

    fixed = quantize(fused, calibrate(graph, [sample]), "int16")
    assert len({fixed.q_points[t] for t in (*split.inputs, *split.outputs)}) == 1
    tensors = run_fixed(fixed, fixed_inputs(fixed, sample))
    for name in graph.outputs:
        got = fixed.scales[name].dequantize(tensors[name])
        np.testing.assert_allclose(got, before[name], atol=2e-3)
    assert {entry.tensor for entry in layer_sqnr(graph, fixed, [sample])} >= set(split.outputs)

    storage = plan_storage(fixed)
    source = storage.offsets[split.inputs[0]]
    plane = 2 * 2 * 9
    placed = [storage.offsets[t] - source for t in split.outputs if t not in graph.outputs]
    assert placed == [plane * i for i, t in enumerate(split.outputs) if t not in graph.outputs]
    assert all(kind_of(layer) != "split" for layer in storage.layers)


@pytest.mark.parametrize("initial", ["h", None])
@pytest.mark.parametrize("final", ["end", None])
def test_states_from_graph_to_places(initial: str | None, final: str | None) -> None:
    graph = sum_graph(initial, final)
    (sample,) = samples(graph, 1)
    tensors = run_float(graph, sample)
    start = sample[initial] if initial else np.zeros((2, 4), np.float32)
    slow = start.copy()
    for step in range(5):
        slow = slow + sample["x"][:, step]
        np.testing.assert_allclose(tensors["y"][:, step], slow, rtol=1e-5, atol=1e-6)
    assert "state" not in tensors

    ranges = calibrate(graph, [sample])
    assert "state" not in ranges
    fixed = quantize(fuse(graph), ranges, "int16")
    tied = {"state", "y", *(t for t in (initial, final) if t)}
    assert len({fixed.q_points[tensor] for tensor in tied}) == 1
    made = run_fixed(fixed, fixed_inputs(fixed, sample))
    np.testing.assert_allclose(fixed.scales["y"].dequantize(made["y"]), tensors["y"], atol=5e-3)

    storage = plan_storage(fixed)
    assert storage.state_offsets == {"state": 0} and storage.state_bytes == 128
    assert "state" not in storage.offsets


def test_two_states_do_not_overlap() -> None:
    shapes = {"x": (5, 100), "y": (5, 100), "z": (5, 100), "a": (100,), "b": (100,)}
    layers = (
        RunningSum("one", ("x",), ("y",), states=(State("a"),)),
        RunningSum("two", ("y",), ("z",), states=(State("b"),)),
    )
    graph = Graph(layers, shapes, ("x",), ("z",))
    ranges = Ranges.from_bounds(dict.fromkeys("xyz", (-1.0, 1.0)))
    storage = plan_storage(quantize(graph, ranges, "int16"))
    assert storage.state_offsets == {"a": 0, "b": 256} and storage.state_bytes == 512


@pytest.mark.parametrize(
    ("state", "inputs", "outputs", "message"),
    [
        (State("state", "w"), ("x",), ("y",), "initial value 'w' of state 'state' is not among"),
        (State("state", None, "w"), ("x",), ("y",), "final value 'w' of state 'state' is not"),
        (State("state", "x"), ("x",), ("y",), "state 'state' has shape .4,., its initial value"),
        (State("y"), ("x",), ("y",), "tensor 'y' is written twice"),
        (State("missing"), ("x",), ("y",), "tensor 'missing' has no shape"),
        (State("state"), ("x",), (), "layer 'sum' has no output"),
    ],
)
def test_states_that_contradict_the_graph(
    state: State, inputs: tuple[str, ...], outputs: tuple[str, ...], message: str
) -> None:
    layer = RunningSum("sum", inputs, outputs, states=(state,))
    shapes = {"x": (5, 4), "y": (5, 4), "state": (4,)}
    with pytest.raises(GraphError, match=message):
        Graph((layer,), shapes, ("x",), ("y",))


def test_nobody_else_reads_or_returns_a_state() -> None:
    layer = RunningSum("sum", ("x",), ("y",), states=(State("state"),))
    shapes = {"x": (5, 4), "y": (5, 4), "state": (4,), "z": (4,)}
    reader = Elementwise("r", ("state",), ("z",), "copy")
    with pytest.raises(GraphError, match="'r' reads the state 'state'"):
        Graph((layer, reader), shapes, ("x",), ("z",))
    with pytest.raises(GraphError, match="output 'state' is made by no layer"):
        Graph((layer,), shapes, ("x",), ("state",))


def test_one_output_is_asked_of_a_layer_that_has_two() -> None:
    with pytest.raises(GraphError, match="layer 's' has 2 outputs, not one"):
        _ = Split("s", ("x",), ("a", "b")).output


def test_machines_without_code_refuse_a_layer_by_name() -> None:
    graph = sum_graph()
    fixed = quantize(graph, calibrate(graph, samples(graph, 1)), "int8")
    with pytest.raises(UnsupportedLayerError, match="'sum' .running_sum.*FixedRunningSum.*'tiny'"):
        check_support(fixed.layers, {FixedConv, FixedElementwise}, "tiny")
    with pytest.raises(UnsupportedLayerError, match="layer 'r' .copy."):
        split = split_graph()
        fixed = quantize(fuse(split), calibrate(split, samples(split, 1)), "int8")
        check_support(fixed.layers, {FixedConv}, "tiny")
    assert [one.__name__ for one in missing_layers(RunningSum, {FixedConv})] == ["FixedRunningSum"]
    assert missing_layers(Split, ()) == ()


@pytest.mark.parametrize("name", ["nmp-4x8", "setup-a", "zynq-7020-uncached"])
def test_compiling_refuses_before_it_plans(name: str) -> None:
    graph, machine = sum_graph(), load_machine(name)
    ranges = calibrate(graph, samples(graph, 1))
    with pytest.raises(UnsupportedLayerError, match=f"'sum'.*FixedRunningSum.*{name!r}") as stop:
        compile_graph(graph, ranges, machine)
    assert stop.value.layer == "sum"


@pytest.mark.parametrize(("name", "planner"), [("nmp-4x8", "tso"), ("setup-a", "eplanner")])
def test_several_outputs_run_on_machines(name: str, planner: str) -> None:
    """A split is only layout: every machine takes it, its parts lie where the code reads them."""
    graph, machine = split_graph(), load_machine(name)
    (sample,) = samples(graph, 1)
    ranges, options = calibrate(graph, [sample]), CompileOptions(planner=planner)
    fixed = fixed_graph(graph, ranges, machine, options)
    inputs = fixed_inputs(fixed, sample)
    session = Session(compile_graph(graph, ranges, machine, options))
    results = session.run_fixed([inputs[n] for n in fixed.inputs])
    for tensor, result in zip(fixed.outputs, results, strict=True):
        np.testing.assert_array_equal(result, run_fixed(fixed, inputs)[tensor])


class TestScalesOfTheModel:
    """A graph that says some scales itself."""

    def graph(self, **scales: Scale) -> Graph:
        layers = (
            Elementwise("r", ("x",), ("a",), "copy", RELU),
            Split("s", ("a",), ("p", "q")),
        )
        shapes = {"x": (4, 2, 2), "a": (4, 2, 2), "p": (2, 2, 2), "q": (2, 2, 2)}
        return Graph(layers, shapes, ("x",), ("p", "q"), scales=scales)

    def made(self, step: Requantization = Q_POINTS_ONLY, **scales: Scale) -> FixedGraph:
        ranges = Ranges.from_bounds(dict.fromkeys("xapq", (-1.0, 1.0)))
        return quantize(self.graph(**scales), ranges, "int8", step)

    def test_they_come_before_ranges(self) -> None:
        """An operator that takes no scales computes with Q-points, and copies go to the scales."""
        given, none = self.made(q=Scale.from_q_point(3)), self.made()
        assert given.q_points["q"] == 3 and none.q_points["q"] == 6
        assert given.q_points["a"] == given.q_points["p"] == given.q_points["q@to"]
        assert given.q_points["x"] == none.q_points["x"] == 6
        assert [layer.outputs for layer in given.layers][1:] == [("p", "q@to"), ("q",)]

    def test_two_that_would_be_one_are_two(self) -> None:
        fixed = self.made(p=Scale.from_q_point(3), q=Scale.from_q_point(4))
        assert (fixed.q_points["p"], fixed.q_points["q"]) == (3, 4)

    @pytest.mark.parametrize("step", [Requantization(), Requantization(31)])
    def test_what_the_machine_cannot_do_becomes_the_nearest_q_point(
        self, step: Requantization
    ) -> None:
        """And what the scale's integers cut is cut."""
        fixed = self.made(step, q=Scale.from_real([0.75], [3]))
        # -131 * 0.75 to 124 * 0.75
        assert set(fixed.q_points) == {*"xapq", "q@open"} and fixed.q_points["q"] == 0
        copy = fixed.layers[-1]
        assert isinstance(copy, FixedElementwise) and copy.outputs == ("q",)
        assert (copy.low, copy.high) == (-98, 93)

    def test_scales_that_the_machine_can_do_stay(self) -> None:
        scale = Scale.from_real([0.75])
        fixed = self.made(Requantization(31), q=scale)
        assert fixed.scales["q"] == scale and "q" not in fixed.q_points

    def test_a_scale_of_no_tensor(self) -> None:
        with pytest.raises(GraphError, match="'nobody' has a scale and no shape"):
            self.graph(nobody=Scale.from_q_point(3))
