"""Quantized graphs: their spelling, their integers, their programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import UnsupportedLayerError
from tvm_npu.codegen.graph import Clip, FixedGraph, Graph, Halves, Layer, Scale
from tvm_npu.codegen.ops import (
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    FixedConv,
    FixedElementwise,
    FixedPool,
    Pool,
    Reshape,
    ScaleShift,
    TableFunction,
)
from tvm_npu.codegen.ops.scaled_weights import integer_weights
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.given_scales import with_given_scales
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.machine_file import load_machine

MACHINE = load_machine("nmp-4x8-scale")
REQUANTIZATION = MACHINE.requantization("int8")


class Quantized:
    """A float graph in the spelling of quantized models; remembers every scale."""

    def __init__(self, seed: int, shape: tuple[int, ...], halves: Halves = "up") -> None:
        self.halves = halves
        self.rng = np.random.default_rng(seed)
        self.layers: list[Layer] = []
        self.shapes = {"x": shape}
        self.said: dict[str, Scale] = {}

    def add(self, layer: Layer, shape: tuple[int, ...]) -> str:
        self.layers.append(layer)
        self.shapes[layer.output] = shape
        return layer.output

    def rounded(self, tensor: str, step: float, zero_point: int) -> str:
        shape, name = self.shapes[tensor], f"{tensor}q{len(self.layers)}"
        ones, low = np.ones(shape[0], np.float32), -128.0 - zero_point
        zeros = np.zeros_like(ones)
        down = ones / np.float32(step)
        self.add(ScaleShift(f"{name}1", (tensor,), (f"{name}1",), down, zeros), shape)
        steps = [
            TableFunction(f"{name}r", ("",), (f"{name}r",), "round"),
            Elementwise(f"{name}c", ("",), (f"{name}c",), "copy", Clip(low, low + 255.0)),
        ]
        last = f"{name}1"
        for one in steps if self.halves == "up" else reversed(steps):
            last = self.add(replace(one, inputs=(last,)), shape)
        up = ones * np.float32(step)
        self.add(ScaleShift(f"{name}4", (last,), (name,), up, zeros), shape)
        self.said[name] = Scale.from_real([np.float32(step)], [zero_point], self.halves)
        return name

    def weights(self, *shape: int, zero_point: int = 0) -> np.ndarray:
        integers = self.rng.integers(-128, 128, shape) - zero_point
        if not zero_point:
            integers = np.clip(integers, -127, 127)
        return integers.astype(np.float32) * np.float32(0.0123)

    def graph(self, *outputs: str) -> Graph:
        return Graph(tuple(self.layers), self.shapes, ("x",), outputs)


def network(seed: int, zero_point: int = 0, halves: Halves = "up") -> Quantized:
    """Convolutions with a border, a sum, a concatenation of two scales, pools, a classifier."""
    q = Quantized(seed, (3, 9, 7), halves)
    rng = q.rng
    x = q.rounded("x", 0.031, int(rng.integers(-100, 100)))
    conv = Conv2d("c", (x,), ("c",), q.weights(6, 3, 3, 3, zero_point=zero_point),
                  rng.normal(0, 1, 6).astype(np.float32), padding=(1, 1, 1, 1))  # fmt: skip
    c = q.rounded(q.add(conv, (6, 9, 7)), 0.2, int(rng.integers(-128, 128)))
    depthwise = Conv2d("d", (c,), ("d",), q.weights(6, 1, 3, 3), np.zeros(6, np.float32),
                       padding=(1, 1, 1, 1), groups=6)  # fmt: skip
    d = q.rounded(q.add(depthwise, (6, 9, 7)), 0.3, int(rng.integers(-128, 128)))
    total = q.add(Elementwise("s", (c, d), ("s",), "add"), (6, 9, 7))
    s = q.rounded(total, 0.35, int(rng.integers(-128, 128)))
    joined = q.add(Concat("j", (s, c), ("j",)), (12, 9, 7))
    j = q.rounded(joined, 0.35, q.said[s].zero_points[0])
    pooled = q.add(Pool("p", (j,), ("p",), "max", (3, 3), (2, 2), (1, 1, 1, 1)), (12, 5, 4))
    mean = q.add(Pool("m", (pooled,), ("m",), "avg", (5, 4)), (12, 1, 1))
    flat = q.add(Reshape("f", (q.rounded(mean, 0.35, q.said[s].zero_points[0]),), ("f",)), (12,))
    dense = Dense("o", (flat,), ("o",), q.weights(5, 12), rng.normal(0, 1, 5).astype(np.float32))
    q.rounded(q.add(dense, (5,)), 0.05, -3)
    return q


def fixed_of(q: Quantized) -> tuple[Graph, FixedGraph]:
    graph = fuse(with_given_scales(q.graph(q.layers[-1].output)))
    return graph, quantize(graph, Ranges(), "int8", REQUANTIZATION)


def test_an_affine_layer_between_scales_rounds_as_real_numbers_do() -> None:
    """All 256 integers of 32 channels; a bias rounded to 127 steps of each weight is off for 17."""
    q = Quantized(3, (32, 16, 16))
    x = q.rounded("x", 0.031, -5)
    gains = q.rng.uniform(-4, 4, 32).astype(np.float32)
    gains[0], bias = 0.0, q.rng.normal(0, 1, 32).astype(np.float32)
    q.rounded(q.add(ScaleShift("a", (x,), ("a",), gains, bias), (32, 16, 16)), 0.043, 7)
    _, fixed = fixed_of(q)
    integers = np.broadcast_to(np.arange(-128, 128).reshape(16, 16), (1, 32, 16, 16))
    real = (integers + 5) * 0.031 * gains[:, None, None] + bias[:, None, None]
    wanted = np.clip(np.floor(real / 0.043 + 0.5) + 7, -128, 127)
    found = run_fixed(fixed, {"x": integers.astype(np.int8)})[fixed.outputs[0]]
    assert (found != wanted).sum() <= 4 and np.abs(found - wanted).max() <= 1


def test_scales_are_read_out_of_the_spelling() -> None:
    q = network(1)
    graph = with_given_scales(q.graph(q.layers[-1].output))
    assert not any(isinstance(one, ScaleShift | TableFunction) for one in graph.layers)
    assert {**graph.scales, **q.said} == graph.scales
    assert graph.scales["x"] == next(iter(q.said.values()))
    assert graph.scales["p"] == graph.scales["j"]  # handed on by the pool


@pytest.mark.parametrize("broken", [0, 1, 2, 3])
def test_another_spelling_is_none(broken: int) -> None:
    """Another factor on the way back, another function, broken bounds, a bias."""
    q = Quantized(0, (3, 4, 4))
    q.rounded("x", 0.5, 3)
    down, rounds, clip, up = q.layers
    changes: list[Layer] = [
        replace(up, scale=up.scale * 2),  # type: ignore[call-arg, attr-defined]
        replace(rounds, function="sqrt"),  # type: ignore[call-arg]
        replace(clip, activation=Clip(-130.5, 124.0)),  # type: ignore[call-arg]
        replace(down, bias=np.ones(3, np.float32)),  # type: ignore[call-arg]
    ]
    made = changes[broken]
    q.layers = [made if one.name == made.name else one for one in q.layers]
    graph = q.graph(q.layers[-1].output)
    assert with_given_scales(graph) is graph


@pytest.mark.parametrize(
    ("seed", "zero_point", "halves"), [(2, 0, "up"), (3, 0, "even"), (4, 60, "up")]
)
def test_simulator_and_float_agree_with_the_reference(
    seed: int, zero_point: int, halves: Halves
) -> None:
    q = network(seed, zero_point, halves)
    graph, fixed = fixed_of(q)
    x = q.rng.integers(-128, 128, (3, 9, 7)).astype(np.int8)
    made = run_fixed(fixed, {"x": x[None]})
    first = fixed.layers[0]
    assert isinstance(first, FixedConv) and (first.weight_zero_point != 0) == (zero_point != 0)
    assert first.fill == graph.scales["x"].zero_points[0] != 0
    outputs, _ = simulate(compile_fixed(fixed, MACHINE), {"x": x})
    name = graph.outputs[0]
    assert np.array_equal(outputs[name], made[name][0])
    # Layer by layer: the float layer on the fixed inputs, rounded, is one step away at most.
    for layer in graph.layers:
        values = {t: graph.scales[t].dequantize(made[t]) for t in layer.inputs}
        shapes = {t: graph.shapes[t] for t in (*layer.inputs, layer.output)}
        one = Graph((layer,), shapes, tuple(dict.fromkeys(layer.inputs)), (layer.output,))
        wanted = graph.scales[layer.output].quantize(run_float(one, values)[layer.output], 1)
        off = np.abs(wanted.astype(int) - made[layer.output])
        assert off.max() <= 1, layer.name
        if not isinstance(layer, Pool):  # averages lie between two integers often
            assert (off == 0).mean() > 0.98, layer.name


def test_one_copy_where_scales_meet() -> None:
    """The second input of the concatenation gets the scale of the first; pools keep theirs."""
    _, fixed = fixed_of(network(5))
    copies = [one for one in fixed.layers if isinstance(one, FixedElementwise) and one.op == "copy"]
    assert [one.weights is not None for one in copies] == [True]
    pools = [one for one in fixed.layers if isinstance(one, FixedPool)]
    assert [one.halves_away for one in pools] == [False, True]


@pytest.mark.parametrize("halves", ["up", "even"])
def test_halves_go_where_the_model_says(halves: Halves) -> None:
    """Filters and sums whose exact results lie in the middle of two integers, and averages of two
    numbers."""
    q = Quantized(10, (2, 8, 8), halves)
    x = q.rounded("x", 0.5, 7)
    gains = np.array([0.5, 0.25], np.float32)
    c = Conv2d("c", (x,), ("c",), gains.reshape(2, 1, 1, 1), np.zeros(2, np.float32), groups=2)
    c_rounded = q.rounded(q.add(c, (2, 8, 8)), 0.5, 12)
    s = q.rounded(q.add(Elementwise("s", (x, x), ("s",), "add"), (2, 8, 8)), 2.0, -1)
    mean = q.add(Pool("m", (s,), ("m",), "avg", (1, 2), (1, 2)), (2, 8, 4))
    q.rounded(mean, 2.0, -1)
    graph = fuse(with_given_scales(q.graph(q.layers[-1].output, c_rounded)))
    fixed = quantize(graph, Ranges(), "int8", REQUANTIZATION)
    data = q.rng.integers(-128, 128, (1, 2, 8, 8)).astype(np.int8)
    made = run_fixed(fixed, {"x": data})
    for tensor, zero_point, gain in ((s, -1, 0.5), (c_rounded, 12, gains[:, None, None])):
        exact = (data.astype(float) - 7) * gain
        wanted = (np.rint(exact) if halves == "even" else np.floor(exact + 0.5)) + zero_point
        assert np.array_equal(made[tensor], wanted) and (exact % 1 == 0.5).any(axis=(0, 2, 3)).all()
    exact = made[s].reshape(1, 2, 8, 4, 2).mean(axis=-1)
    away = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    found = made[fixed.outputs[0]]
    assert np.array_equal(found, np.rint(exact + 1) - 1 if halves == "even" else away)
    program = compile_fixed(fixed, MACHINE)
    outputs, _ = simulate(program, {"x": data[0]})
    assert all(np.array_equal(outputs[name], made[name][0]) for name in fixed.outputs)
    content = program.to_bytes()
    assert (b"halves" in content) == (halves == "even")
    assert Program.from_bytes(content).outputs[0].scale == graph.scales[fixed.outputs[0]]


def test_layers_without_scales_compute_with_q_points() -> None:
    q = Quantized(6, (3, 4, 4))
    x = q.rounded("x", 0.03, 5)
    pooled = q.add(Pool("p", (x,), ("p",), "max", (3, 3), padding=(1, 1, 1, 1)), (3, 4, 4))
    q.rounded(q.add(Elementwise("m", (x, pooled), ("m",), "mul"), (3, 4, 4)), 0.1, -100)
    graph, fixed = fixed_of(q)
    product = next(one for one in fixed.layers if getattr(one, "op", "") == "mul")
    assert all(fixed.scales[t].is_q_point for t in (*product.inputs, product.output))
    data = q.rng.integers(-128, 128, (1, 3, 4, 4)).astype(np.int8)
    (name,) = graph.outputs
    made = graph.scales[name].dequantize(run_fixed(fixed, {"x": data})[name])
    wanted = run_float(graph, {"x": graph.scales["x"].dequantize(data)})[name]
    assert np.abs(made - wanted).max() < 0.5 < np.abs(wanted).max()


def test_functions_have_a_table_between_scales() -> None:
    q = Quantized(9, (3, 4, 4))
    x = q.rounded("x", 0.05, 17)
    q.rounded(q.add(TableFunction("t", (x,), ("t",), "sigmoid"), (3, 4, 4)), 1 / 256, -128)
    graph, fixed = fixed_of(q)
    data = q.rng.integers(-128, 128, (1, 3, 4, 4)).astype(np.int8)
    made = run_fixed(fixed, {"x": data})[graph.outputs[0]]
    wanted = 1 / (1 + np.exp(-(data.astype(float) - 17) * np.float32(0.05)))
    assert np.abs(made - (wanted * 256 - 128)).max() <= 0.501
    outputs, _ = simulate(compile_fixed(fixed, MACHINE), {"x": data[0]})
    assert np.array_equal(outputs[graph.outputs[0]], made[0])


def test_machines_without_multipliers_take_q_points() -> None:
    graph, fixed = fixed_of(network(7))
    plain = load_machine("nmp-4x8-int8")
    near = quantize(graph, Ranges(), "int8", plain.requantization("int8"))
    assert all(scale.is_q_point for scale in near.scales.values())
    compile_fixed(near, plain)
    with pytest.raises(UnsupportedLayerError, match="is for multipliers.*nmp-4x8-int8"):
        compile_fixed(fixed, plain)


def test_integers_of_weights_are_found_again() -> None:
    rng = np.random.default_rng(8)
    steps = rng.uniform(1e-4, 1e-1, 6).astype(np.float32)
    integers = rng.integers(-127, 128, (6, 40))
    integers[:, 0] = 127
    integers[3] = 0
    weight = (integers * steps[:, None].astype(np.float32)).astype(np.float64)
    found, known, zero_point = integer_weights(weight)
    assert np.array_equal(found, integers) and zero_point == 0
    others = [0, 1, 2, 4, 5]
    assert np.array_equal(known[others].astype(np.float32), steps[others])
    wide = rng.integers(-200, 56, (4, 50))
    wide[0, :2] = -200, 55
    found, _, zero_point = integer_weights(wide * np.float64(np.float32(0.5)))
    assert np.array_equal(found, wide) and zero_point == 72
    unknown = rng.normal(0, 1, (3, 30))
    found, known, _ = integer_weights(unknown)
    assert np.abs(found).max() == 127 and np.abs(found * known[:, None] - unknown).max() < 0.02
