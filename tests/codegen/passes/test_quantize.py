"""Q-points, weights, shifts and bounds of the fixed-point graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.codegen.slow_fixed import SlowRun
from tests.examples import examples
from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.fixed_point import (
    MAX_Q_POINT,
    dequantize_tensor,
    largest_q_point,
    quantize_tensor,
)
from tvm_npu.codegen.graph import NO_CLIP, Clip, FixedGraph, Graph, Layer
from tvm_npu.codegen.ops import (
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    FixedConv,
    FixedElementwise,
    FixedPad,
    FixedPool,
    Pad,
    Pool,
    Reshape,
    ScaleShift,
)
from tvm_npu.codegen.ops.operator import MAX_SHIFT, MIN_SHIFT
from tvm_npu.codegen.ops.registry import tied_tensors
from tvm_npu.codegen.ops.weights import ACCUMULATOR_LIMIT
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.qpoints import RESIDUAL_HEADROOM_BITS
from tvm_npu.codegen.passes.quantize import Precision, Ranges, calibrate, quantize
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization
from tvm_npu.sim.nmp.machine import FILTER_SHIFTS

PLANE = (2, 4, 4)


def weights(*shape: int, largest: float = 0.9) -> np.ndarray:
    values = np.random.default_rng(5).uniform(-1, 1, shape)
    return (values * largest / np.abs(values).max()).astype(np.float32)


def conv(
    inputs: tuple[str, ...], y: str, *, largest: float = 0.9, bias: float = 0.0,
    clip: Clip = NO_CLIP,
) -> Conv2d:  # fmt: skip
    offsets = np.full(2, bias, np.float32)
    return Conv2d(
        f"conv_{y}", inputs, (y,), weights(2, 2, 1, 1, largest=largest), offsets, activation=clip
    )


def pool(x: str, y: str) -> Pool:
    return Pool(f"pool_{y}", (x,), (y,), "avg", (1, 1))


def add(a: str, b: str, y: str) -> Elementwise:
    return Elementwise(f"add_{y}", (a, b), (y,), "add")


def fixed_point(
    layers: list[Layer], bounds: dict[str, float], precision: str = "int16", **shapes: tuple
) -> FixedGraph:
    """Quantizes layers over tensors of shape PLANE with symmetric ranges."""
    made = {layer.output for layer in layers}
    inputs = tuple(name for name in bounds if name not in made)
    known = {**dict.fromkeys(bounds, PLANE), **shapes}
    graph = Graph(tuple(layers), known, inputs, (layers[-1].output,))
    ranges = Ranges.from_bounds({name: (-value, value) for name, value in bounds.items()})
    return quantize(graph, ranges, precision)  # type: ignore[arg-type]


@given(st.floats(1e-12, 1e12), st.sampled_from((1, 2)))
def test_largest_q_point_fits_and_the_next_does_not(magnitude: float, element_bytes: int) -> None:
    f = largest_q_point(magnitude, element_bytes)
    largest = 2 ** (8 * element_bytes - 1) - 1
    assert np.floor(magnitude * 2.0**f + 0.5) <= largest
    if f < MAX_Q_POINT:
        assert np.floor(magnitude * 2.0 ** (f + 1) + 0.5) > largest


@pytest.mark.parametrize(
    ("magnitude", "element_bytes", "expected"),
    [(1.0, 2, 14), (0.99, 2, 15), (127.0, 1, 0), (127.5, 1, -1), (127.49, 1, 0), (254.9, 1, -1),
     (255.0, 1, -2), (32767.4, 2, 0), (32767.5, 2, -1), (1e-3, 2, 24), (1e-9, 2, 30), (6.0, 1, 4)],
)  # fmt: skip
def test_largest_q_point(magnitude: float, element_bytes: int, expected: int) -> None:
    assert largest_q_point(magnitude, element_bytes) == expected


def test_pooling_and_layout_keep_the_q_point_and_the_widest_range_wins() -> None:
    layers = [
        pool("x", "a"),
        Pad("pad", ("a",), ("b",), (0, 1, 1), (0, 0, 0)),
        ChannelSlice("slice", ("b",), ("c",), 1),
        Reshape("reshape", ("c",), ("y",)),
    ]
    bounds = {"x": 0.3, "a": 0.3, "b": 3.9, "c": 0.1, "y": 0.1}
    fixed = fixed_point(layers, bounds, b=(2, 5, 5), c=(1, 5, 5), y=(25,))
    assert set(fixed.q_points.values()) == {13}


def test_concatenation_and_addition_tie_their_inputs() -> None:
    layers = [conv(("x",), "a"), conv(("x",), "b"), Concat("cat", ("a", "b"), ("y",))]
    fixed = fixed_point(layers, {"x": 0.9, "a": 1.5, "b": 30.0, "y": 30.0}, y=(4, 4, 4))
    assert fixed.q_points == {"x": 15, "a": 10, "b": 10, "y": 10}
    layers = [conv(("x",), "a"), conv(("x",), "b"), add("a", "b", "y")]
    fixed = fixed_point(layers, {"x": 0.9, "a": 1.5, "b": 30.0, "y": 1.0})
    assert fixed.q_points == {"x": 15, "a": 10, "b": 10, "y": 14}
    (sum_layer,) = (layer for layer in fixed.layers if isinstance(layer, FixedElementwise))
    assert (sum_layer.shift_a, sum_layer.shift_b, sum_layer.shift) == (0, 0, -4)


def test_a_residual_keeps_its_own_q_point() -> None:
    layers = [conv(("x",), "a"), conv(("a", "x"), "y")]
    fixed = fixed_point(layers, {"x": 100.0, "a": 0.5, "y": 100.0})
    second = fixed.layers[1]
    assert isinstance(second, FixedConv)
    assert fixed.q_points == {"x": 8, "a": 15, "y": 8}
    assert (second.weight_q_point, second.accumulator_shift, second.residual_shift) == (15, 0, 22)
    assert second.shift == 15 + 15 - 8


def test_a_residual_finer_than_the_products() -> None:
    layers = [conv(("x", "r"), "y", largest=1000.0)]
    fixed = fixed_point(layers, {"x": 500.0, "r": 1.0, "y": 500.0})
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    assert (fixed.q_points["x"], layer.weight_q_point, fixed.q_points["r"]) == (6, 5, 14)
    assert (layer.accumulator_shift, layer.residual_shift, layer.shift) == (3, 0, 8)


def test_a_negligible_residual_is_no_finer_than_the_sum_can_show() -> None:
    fixed = fixed_point([conv(("x", "r"), "y")], {"x": 3e4, "r": 1e-8, "y": 3e4})
    assert fixed.q_points == {"x": 0, "r": RESIDUAL_HEADROOM_BITS, "y": 0}


def test_a_sum_that_no_weight_q_point_can_bound() -> None:
    layers: list[Layer] = [conv(("x", "r"), "y", largest=2.0**17)]
    with pytest.raises(QuantizationError, match="'conv_y': .* below 70368744177664 .* 'r' at Q-p"):
        fixed_point(layers, {"x": 3e4, "r": 0.9, "y": 1.0})


@pytest.mark.parametrize(("precision", "bits"), [("int16", 16), ("int8", 8)])
def test_zero_tensors_and_weights_are_sane_and_drag_nothing(precision: str, bits: int) -> None:
    layers = [
        conv(("x",), "a"),
        conv(("x",), "b", largest=0.0),
        Concat("cat", ("a", "b"), ("c",)),
        conv(("z",), "y"),
    ]
    bounds = {"x": 0.9, "a": 1e-4, "b": 0.0, "c": 1e-4, "z": 0.0, "y": 0.0}
    fixed = fixed_point(layers, bounds, precision, c=(4, 4, 4))
    assert fixed.q_points["a"] == fixed.q_points["b"] == bits - 1 + 13
    assert fixed.q_points["z"] == bits - 1
    assert isinstance(fixed.layers[1], FixedConv) and not fixed.layers[1].weight.any()


def test_a_large_bias_lowers_the_weight_q_point() -> None:
    fixed = fixed_point([conv(("x",), "y", bias=100.0)], {"x": 0.9, "y": 101.0})
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    assert layer.weight_q_point == 24 - 15
    assert (layer.bias == 100 << 24).all() and layer.bias.dtype == np.int32


def test_weights_leave_room_in_the_accumulator() -> None:
    weight = np.full((1, 2**18, 1, 1), 0.99, np.float32)
    layer = Conv2d("c", ("x",), ("y",), weight, np.zeros(1, np.float32))
    fixed = fixed_point([layer], {"x": 0.9, "y": 0.9}, x=(2**18, 1, 1), y=(1, 1, 1))
    (made,) = fixed.layers
    assert isinstance(made, FixedConv)
    assert made.weight_q_point == 13
    assert int(made.weight.astype(np.int64).sum()) << 15 < ACCUMULATOR_LIMIT
    assert int(made.weight.astype(np.int64).sum()) << 16 >= ACCUMULATOR_LIMIT


def test_clip_bounds_round_and_stay_ordered() -> None:
    def bounds(clip: Clip, limit: float) -> tuple[int, int]:
        layer = fixed_point([conv(("x",), "y", clip=clip)], {"x": 0.9, "y": limit}, "int8").layers[
            0
        ]
        assert isinstance(layer, FixedConv)
        return layer.low, layer.high

    assert bounds(Clip(0.0, np.inf), 6.0) == (0, 127)
    assert bounds(Clip(0.0, 6.0), 6.0) == (0, 96)
    assert bounds(Clip(-0.03125, 0.03125), 6.0) == (0, 1)
    assert bounds(Clip(2.0, 1.0), 6.0) == (16, 16)
    assert bounds(Clip(50.0, 60.0), 6.0) == (127, 127)
    assert bounds(Clip(-np.inf, -50.0), 6.0) == (-128, -128)
    assert bounds(Clip(), 6.0) == (-128, 127)


def test_product_copy_pool_and_fill() -> None:
    layers: list[Layer] = [
        Elementwise("mul", ("x", "z"), ("a",), "mul", Clip(0.0, 6.0)),
        Elementwise("copy", ("a",), ("b",), "copy"),
        Pad("pad", ("b",), ("c",), (0, 0, 0), (0, 0, 1), value=0.75),
        Pool("pool", ("c",), ("y",), "max", (1, 2), activation=Clip(0.5, np.inf)),
    ]
    bounds = {"x": 3.0, "z": 0.9, "a": 6.0, "b": 20.0, "c": 0.7, "y": 6.0}
    fixed = fixed_point(layers, bounds, c=(2, 4, 5))
    mul, copy, pad, pooled = fixed.layers
    assert fixed.q_points == {"x": 13, "z": 15, "a": 12, "b": 10, "c": 10, "y": 10}
    assert isinstance(mul, FixedElementwise) and isinstance(copy, FixedElementwise)
    assert (mul.shift, mul.low, mul.high) == (13 + 15 - 12, 0, 6 << 12)
    assert copy.shift == 12 - 10
    assert isinstance(pad, FixedPad) and pad.value == 0.75 * 2**10
    assert isinstance(pooled, FixedPool)
    assert (pooled.shift, pooled.low, pooled.high) == (0, 1 << 9, 32767)


def test_dense_becomes_a_convolution_over_one_pixel() -> None:
    dense = Dense("d", ("x",), ("y",), weights(3, 8), np.zeros(3, np.float32), source=("gemm",))
    fixed = fixed_point([dense], {"x": 1.0, "y": 2.0}, x=(8,), y=(3,))
    (layer,) = fixed.layers
    assert isinstance(layer, FixedConv)
    assert layer.is_dense and layer.weight.shape == (3, 8, 1, 1) and layer.source == ("gemm",)
    assert layer.weight.dtype == np.int16 and fixed.precision == "int16"


@settings(max_examples=examples(80), deadline=None)
@given(
    graphs(ops=ALL_OPS),
    st.sampled_from((("int16", Q_POINTS_ONLY), ("int8", Q_POINTS_ONLY), ("int8", FILTER_SHIFTS))),
)
def test_random_graphs_run_exactly_and_within_bounds(
    source: Graph, numbers: tuple[Precision, Requantization]
) -> None:
    graph = fuse(source)
    inputs = random_inputs(graph, seed=3)
    try:
        floats = run_float(source, inputs)
        assume(all(np.isfinite(value).all() for value in floats.values()))
        ranges = calibrate(source, [inputs])
        fixed = quantize(graph, ranges, *numbers)
    except QuantizationError as error:
        assume("needs a shift" not in str(error))
        raise
    for layer, origin in zip(fixed.layers, graph.layers, strict=True):
        assert layer.source == origin.source and layer.output == origin.output
        if isinstance(layer, FixedConv):  # averages that keep their digits are convolutions, too
            check_alignment(layer, fixed)
            continue
        for tied in tied_tensors(origin):
            assert len({fixed.q_points[tensor] for tensor in tied}) == 1
    integers = {
        name: quantize_tensor(value, fixed.q_points[name], fixed.element_bytes)
        for name, value in inputs.items()
    }
    fast = run_fixed(fixed, integers)
    for image in range(2):
        slow = SlowRun(fixed, {name: value[image] for name, value in integers.items()})
        assert slow.largest_accumulator < ACCUMULATOR_LIMIT
        for tensor, values in slow.tensors.items():
            np.testing.assert_array_equal(fast[tensor][image], values.astype(np.int64), tensor)


def check_alignment(layer: FixedConv, fixed: FixedGraph) -> None:
    products = fixed.q_points[layer.inputs[0]] + layer.weight_q_point + layer.accumulator_shift
    assert min(layer.accumulator_shift, layer.residual_shift) == 0
    if len(layer.inputs) > 1:
        assert products == fixed.q_points[layer.inputs[1]] + layer.residual_shift
    assert layer.shift == products - fixed.q_points[layer.output]
    assert MIN_SHIFT <= layer.shift <= MAX_SHIFT and layer.low <= layer.high


def digit_classifier() -> tuple[Graph, np.ndarray, np.ndarray]:
    """Random convolutions, then a dense layer fitted by ridge regression to half the digits."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    images = digits.images[:, None].astype(np.float32)
    generator = np.random.default_rng(0)
    first = (generator.standard_normal((24, 1, 3, 3)) / 16).astype(np.float32)
    second = (generator.standard_normal((32, 24, 3, 3)) / 8).astype(np.float32)
    clip, pad = Clip(0.0, np.inf), (1, 1, 1, 1)
    body = (
        Conv2d(
            "c1", ("x",), ("a",), first, np.full(24, 0.1, np.float32), padding=pad, activation=clip
        ),
        Conv2d(
            "c2", ("a",), ("b",), second, np.full(32, 0.1, np.float32), padding=pad, activation=clip
        ),
        Pool("p", ("b",), ("c",), "max", (2, 2), (2, 2)),
        Reshape("r", ("c",), ("d",)),
    )
    shapes = {"x": (1, 8, 8), "a": (24, 8, 8), "b": (32, 8, 8), "c": (32, 4, 4), "d": (512,)}
    features = run_float(Graph(body, shapes, ("x",), ("d",)), {"x": images})["d"].astype(np.float64)
    train = features[:900]
    gram = train.T @ train + 10.0 * np.eye(512)
    weight = np.linalg.solve(gram, train.T @ (2.0 * np.eye(10)[digits.target[:900]] - 1.0)).T
    dense = Dense("fc", ("d",), ("y",), weight.astype(np.float32), np.zeros(10, np.float32))
    graph = Graph((*body, dense), {**shapes, "y": (10,)}, ("x",), ("y",))
    return graph, images, digits.target


@pytest.mark.parametrize(
    ("precision", "lost_points", "agreement"), [("int16", 0.2, 0.998), ("int8", 1.5, 0.97)]
)
def test_accuracy_on_handwritten_digits(
    precision: str, lost_points: float, agreement: float
) -> None:
    graph, images, labels = digit_classifier()
    fixed = quantize(graph, calibrate(graph, [{"x": images[:64]}]), precision)  # type: ignore
    test, expected = images[900:], labels[900:]
    floats = run_float(graph, {"x": test})["y"]
    integers = quantize_tensor(test, fixed.q_points["x"], fixed.element_bytes)
    scores = run_fixed(fixed, {"x": integers})["y"]
    float_accuracy = (floats.argmax(1) == expected).mean()
    assert float_accuracy > 0.9
    assert 100 * (float_accuracy - (scores.argmax(1) == expected).mean()) < lost_points
    assert (floats.argmax(1) == scores.argmax(1)).mean() >= agreement
    error = dequantize_tensor(scores, fixed.q_points["y"]) - floats
    assert np.abs(error).max() < 0.25 * np.abs(floats).max()


def broken(value: float, where: str) -> Conv2d:
    layer = conv(("x",), "y")
    getattr(layer, where).flat[1] = value
    return layer


@pytest.mark.parametrize(
    ("layer", "precision", "message"),
    [
        (broken(np.nan, "weight"), "int16", "'conv_y' has the weight nan"),
        (broken(-np.inf, "bias"), "int16", "'conv_y' has the bias -inf"),
        (conv(("x",), "y"), "int4", "unknown precision 'int4'; known are .'int16', 'int8'."),
        (ScaleShift("bn", ("x",), ("y",), np.ones(2, np.float32), np.ones(2, np.float32)), "int8",
         "'bn': ScaleShift has no fixed-point form; fuse"),
        (conv(("x",), "y", clip=Clip(np.nan, 1.0)), "int8", "'conv_y': the constant nan has no"),
    ],
)  # fmt: skip
def test_unusable_layers(layer: Layer, precision: str, message: str) -> None:
    with pytest.raises(QuantizationError, match=message):
        fixed_point([layer], {"x": 1.0, "y": 1.0}, precision)


def test_unusable_ranges() -> None:
    graph = Graph((conv(("x",), "y"),), {"x": PLANE, "y": PLANE}, ("x",), ("y",))
    with pytest.raises(QuantizationError, match="'y' has no calibration range"):
        quantize(graph, Ranges.from_bounds({"x": (0, 1)}), "int16")
    with pytest.raises(QuantizationError, match="'y' with range .* needs Q-point -25"):
        quantize(graph, Ranges.from_bounds({"x": (0, 1), "y": (0, 1e12)}), "int16")
    with pytest.raises(QuantizationError, match="'conv_y' needs a shift of -38, the limit is -31"):
        quantize(graph, Ranges.from_bounds({"x": (0, 2e11), "y": (0, 1e-9)}), "int16")
