"""Relay's quantized operators: their scales reach the region, which computes what TVM does."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tvm_npu.codegen.graph import Halves, Scale
from tvm_npu.door.rule_table import SOFTMAX_IS_ROUNDED
from tvm_npu.errors import PartitionError, ScalesApproximatedWarning, SyntheticCalibrationWarning
from tvm_npu.relay import explain, from_tflite, partition_for_npu, region_fixed_graphs
from tvm_npu.relay import operands as of
from tvm_npu.relay.normalize import normalize
from tvm_npu.relay.quantized import with_real_numbers
from tvm_npu.relay.roundings import layouts_apart, rounded

RNG = np.random.default_rng(0)
SCALES = {"x": (0.0157, 3), "a": (0.11, -128), "s": (0.13, -20), "o": (0.21, 7)}


def const(value: object, dtype: str = "float32") -> object:
    return relay.const(np.asarray(value, dtype))


def both(name: str) -> tuple[object, object]:
    step, zero_point = SCALES[name]
    return const(step), const(zero_point, "int32")


def network() -> tvm.IRModule:
    """A convolution per channel, ReLU6 by clipping, a sum, maxima, a classifier, as TVM's
    frontend of TensorFlow Lite spells them."""
    rng = np.random.default_rng(5)
    shape = (1, 8, 8, 3)
    x = relay.var("x", shape=shape, dtype="int8")
    steps = rng.uniform(0.001, 0.01, 4).astype(np.float32)
    weight = rng.integers(-127, 128, (3, 3, 3, 4))
    weight[0, 0, 0] = 127
    x_scale, x_zero = both("x")
    conv = relay.qnn.op.conv2d(
        x, const(weight, "int8"), x_zero, const(0, "int32"), x_scale, const(steps), (3, 3), 4,
        padding=(1, 1, 1, 1), data_layout="NHWC", kernel_layout="HWIO",
    )  # fmt: skip
    biased = relay.nn.bias_add(conv, const(rng.integers(-900, 900, 4), "int32"), axis=3)
    products = const(steps * np.float32(SCALES["x"][0]))
    a = relay.qnn.op.requantize(
        biased, products, const(0, "int32"), *both("a"), axis=3, out_dtype="int8"
    )
    a = relay.clip(a, -128, -60)
    pooled = relay.nn.max_pool2d(a, (3, 3), (1, 1), padding=(1, 1, 1, 1), layout="NHWC")
    s = relay.qnn.op.add(a, pooled, *both("a"), *both("a"), *both("s"))
    peak = relay.nn.max_pool2d(relay.cast(s, "int32"), (8, 8), (8, 8), layout="NHWC")
    flat = relay.reshape(relay.cast(peak, "int8"), (-1, 4))
    dense = relay.qnn.op.dense(
        flat, const(rng.integers(-127, 128, (6, 4)), "int8"), both("s")[1], const(0, "int32"),
        both("s")[0], const(0.02), 6,
    )  # fmt: skip
    o = relay.qnn.op.requantize(
        dense, const(np.float32(SCALES["s"][0]) * np.float32(0.02)), const(0, "int32"), *both("o"),
        out_dtype="int8",
    )  # fmt: skip
    return tvm.IRModule.from_expr(relay.Function([x], o))


def run(mod: tvm.IRModule, target: str, inputs: np.ndarray) -> np.ndarray:
    from tvm.contrib import graph_executor

    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
        library = relay.build(mod, target=target)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    found = []
    for one in inputs:
        executor.run(x=one[None])
        found.append(executor.get_output(0).numpy()[0])
    return np.array(found)


def test_a_quantized_model_runs_with_its_own_scales() -> None:
    mod = network()
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntheticCalibrationWarning)
        marked = partition_for_npu(mod, target="npu/nmp-4x8-scale")
    report = explain(marked)
    assert len(report.regions) == 1 and report.npu_macs == report.total_macs
    (fixed,) = region_fixed_graphs(marked).values()
    said = {name: Scale.from_real([np.float32(step)], [z]) for name, (step, z) in SCALES.items()}
    assert fixed.scales[fixed.inputs[0]] == said["x"]
    assert fixed.scales[fixed.outputs[0]] == said["o"]
    assert set(said.values()) == set(fixed.scales.values())
    inputs = RNG.integers(-128, 128, (12, 8, 8, 3)).astype(np.int8)
    wanted, made = run(mod, "llvm", inputs), run(marked, "npu/nmp-4x8-scale", inputs)
    off = np.abs(made.astype(int) - wanted)
    # TVM rounds both terms of a sum before it adds them.
    assert made.dtype == np.int8 and off.max() <= 3 and (off <= 1).mean() > 0.9
    assert np.ptp(wanted, axis=0).max() > 3


def test_other_machines_say_what_their_q_points_cost() -> None:
    with pytest.warns(ScalesApproximatedWarning, match="nmp-4x8-int8.*has no multiplier.*steps"):
        marked = partition_for_npu(network(), target="npu/nmp-4x8-int8")
    (fixed,) = region_fixed_graphs(marked).values()
    assert all(scale.is_q_point for scale in fixed.scales.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScalesApproximatedWarning)
        partition_for_npu(network(), target="npu/nmp-4x8")


def test_a_softmax_that_is_rounded_stays_on_the_cpu() -> None:
    mod = network()
    logits = relay.qnn.op.dequantize(mod["main"].body, *both("o"))
    share = relay.nn.softmax(logits)
    rounded = relay.qnn.op.quantize(share, const(1 / 256), const(-128, "int32"), out_dtype="int8")
    mod = tvm.IRModule.from_expr(relay.Function(mod["main"].params, rounded))
    marked = partition_for_npu(mod, target="npu/nmp-4x8-scale")
    reasons = {one.operator: one.rule for one in explain(marked).refusals}
    assert reasons["nn.softmax"] == SOFTMAX_IS_ROUNDED
    (fixed,) = region_fixed_graphs(marked).values()
    assert fixed.scales[fixed.outputs[0]].zero_points == (SCALES["o"][1],)


def qdq_network(is_softmax: bool = False) -> tvm.IRModule:
    """A convolution and a sum (or a softmax) between QuantizeLinear and DequantizeLinear."""

    def around(real: object, name: str) -> object:
        return relay.qnn.op.dequantize(quantized(real, name), *both(name))

    x = relay.var("x", shape=(1, 3, 8, 8))
    entry = around(x, "x")
    weight = relay.qnn.op.dequantize(
        const(np.random.default_rng(5).integers(-127, 128, (3, 3, 3, 3)), "int8"), const(0.01),
        const(0, "int32"),
    )  # fmt: skip
    products = relay.nn.conv2d(entry, weight, padding=(1, 1), channels=3, kernel_size=(3, 3))
    a = around(products, "a")
    last = relay.nn.softmax(a, 1) if is_softmax else relay.add(a, entry)
    return tvm.IRModule.from_expr(relay.Function([x], quantized(last, "o")))


def quantized(real: object, name: str) -> object:
    return relay.qnn.op.quantize(real, *both(name), out_dtype="int8")


def test_halves_go_to_even_in_models_of_quantize_and_dequantize() -> None:
    marked = partition_for_npu(qdq_network(), target="npu/nmp-4x8-scale")
    (fixed,) = region_fixed_graphs(marked).values()
    assert {scale.halves for scale in fixed.scales.values()} == {"even"}
    x = RNG.normal(0, 1, (4, 3, 8, 8)).astype(np.float32)
    made, plain = run(marked, "npu/nmp-4x8-scale", x), run(qdq_network(), "llvm", x)
    off = np.abs(made.astype(int) - plain)  # TVM's conv2d in float32, halves away from zero
    assert off.max() <= 1 and (off == 0).mean() > 0.99 and np.ptp(plain) > 9
    marked = partition_for_npu(network(), target="npu/nmp-4x8-scale")
    (other,) = region_fixed_graphs(marked).values()
    assert {scale.halves for scale in other.scales.values()} == {"up"}


@pytest.mark.parametrize("halves", ["up", "even"])
def test_a_change_of_layout_goes_in_front_of_a_rounding(halves: Halves) -> None:
    real = rounded(relay.var("x", shape=(1, 4, 4, 3)), np.array([0.5]), 3, "int8", None, halves)
    made = layouts_apart(relay.layout_transform(real, "NHWC", "NCHW"), [real])
    names = [of.op_name(one) for one in of.post_order(made) if isinstance(one, relay.Call)]
    middle = ["round", "clip"] if halves == "up" else ["clip", "round"]
    assert names == ["layout_transform", "divide", *middle, "multiply"]


def test_a_softmax_that_is_clipped_and_rounded_stays_on_the_cpu() -> None:
    report = explain(partition_for_npu(qdq_network(is_softmax=True), target="npu/nmp-4x8-scale"))
    reasons = {one.operator: one.rule for one in report.refusals}
    assert reasons["nn.softmax"] == SOFTMAX_IS_ROUNDED


def test_a_file_that_is_no_model_is_said_to_be_none() -> None:
    pytest.importorskip("tflite")
    with pytest.raises(PartitionError, match="no TensorFlow Lite model: bytes 4 to 8 of its 9"):
        from_tflite(b"0000ONNX0")


def test_a_window_that_is_too_large_is_refused() -> None:
    """2 KB ask for a pool over 84 million rows, nearly all of them padding."""
    pytest.importorskip("tflite")
    case = Path(__file__).parents[1] / "trust/corpus/tflite-partition/7d2b6939f8b7051f"
    wanted = r"nn.max_pool2d 't3': its window is \[83886079, 2\]; allowed: windows of at most"
    with pytest.raises(PartitionError, match=wanted):
        from_tflite(case.read_bytes())


def test_integers_stay_where_nobody_knows_what_they_mean() -> None:
    """An operator on integers without a real counterpart gets the integers, to the bit."""
    x = relay.var("x", shape=(1, 4), dtype="float32")
    q = relay.qnn.op.quantize(x, const(0.5), const(-3, "int32"), out_dtype="int8")
    odd = relay.bitwise_and(q, const(1, "int8"))
    mod = tvm.IRModule.from_expr(relay.Function([x], odd))
    plain = normalize(mod, None)
    values = np.array([[-1.0, 0.2, 7.3, 200.0]], np.float32)
    found = [run(one, "llvm", values).tolist() for one in (plain, mod)]
    assert found == [[[1, 1, 0, 1]]] * 2


def both_ways(body: object, variable: object, values: np.ndarray) -> list[np.ndarray]:
    """What an expression gives, and what it gives written on real numbers."""
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([variable], body)))
    found = []
    for function in (typed["main"], with_real_numbers(typed["main"])):
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(function))
        run = relay.create_executor("graph", mod=mod, device=tvm.cpu(), target="llvm").evaluate()
        found.append(run(values).numpy())
    return found


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_a_scale_a_channel_of_an_input_is_no_rounding(dtype: str) -> None:
    """Where the axes of equal scales differ, so do the numbers."""
    values = RNG.integers(-100, 100, (1, 3, 3, 2)).astype(dtype)
    variable = relay.var("x", shape=values.shape, dtype=dtype)
    steps = const(RNG.uniform(0.05, 0.9, 3))
    reads = [relay.qnn.op.dequantize(variable, steps, const(0, "int32"), axis) for axis in (1, 2)]
    wanted, found = both_ways(relay.add(*reads), variable, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert np.abs(wanted).max() > 50 * np.abs(steps.data.numpy()).min()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_sums_of_a_convolution_read_at_other_scales_a_channel(layout: str) -> None:
    shape = (1, 3, 4, 4) if layout == "NCHW" else (1, 4, 4, 3)
    values = RNG.integers(-100, 100, shape).astype("int8")
    variable = relay.var("x", shape=shape, dtype="int8")
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    weight = RNG.integers(-100, 100, (4, 3, 1, 1) if layout == "NCHW" else (1, 1, 3, 4))
    steps = RNG.uniform(0.01, 0.09, 4)
    sums = relay.qnn.op.conv2d(
        variable, const(weight, "int8"), const(0, "int32"), const(0, "int32"), const(0.1),
        const(steps), (1, 1), 4, data_layout=layout, kernel_layout=kernel,
    )  # fmt: skip
    axis = layout.index("C")
    for factors in (np.float32(0.1) * steps, steps[::-1]):
        real = relay.qnn.op.dequantize(sums, const(factors), const(0, "int32"), axis)
        wanted, found = both_ways(real, variable, values)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
