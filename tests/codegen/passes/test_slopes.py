"""Leaky ReLU and PReLU become part of the convolution in front, where a machine has slopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tvm_npu.codegen.graph import RELU, Graph, Layer, Slopes
from tvm_npu.codegen.ops import Conv2d, Elementwise, FixedConv, ScaleShift
from tvm_npu.codegen.ops.registry import OPERATORS
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.slopes import ChannelSlopes, OneSlope
from tvm_npu.codegen.reference import run_fixed, run_float

SHAPE = (4, 5, 6)
ZEROS = np.zeros(4, np.float32)


def leaky(slopes: np.ndarray, *more: Layer, outputs: tuple[str, ...] = ("y",)) -> Graph:
    """conv -> batch norm -> a; a's slopes as the door writes them."""
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((4, 4, 1, 1)).astype(np.float32)
    scale = np.broadcast_to(np.asarray(slopes, np.float32), 4).copy()
    layers = (
        Conv2d("conv", ("x",), ("c",), weight, ZEROS, source=("conv",)),
        ScaleShift("norm", ("c",), ("a",), rng.random(4).astype(np.float32), ZEROS + 0.1),
        ScaleShift("steep", ("a",), ("p",), 1 - scale, ZEROS, source=("act",)),
        Elementwise("relu", ("p",), ("r",), "copy", RELU),
        ScaleShift("scale", ("a",), ("s",), scale, ZEROS),
        Elementwise("sum", ("s", "r"), ("y",), "add"),
        *more,
    )
    tensors = ("x", *(layer.output for layer in layers))
    return Graph(layers, dict.fromkeys(tensors, SHAPE), ("x",), outputs)


EACH = np.array([0.25, -1.5, 1.0, 0.0])


@pytest.mark.parametrize("slopes", [np.array([0.1]), EACH])
def test_slopes_join_the_convolution(slopes: np.ndarray) -> None:
    graph = leaky(slopes)
    (layer,) = fuse(graph).layers
    assert isinstance(layer, Conv2d) and isinstance(layer.activation, Slopes)
    np.testing.assert_allclose(layer.activation.values, slopes, rtol=1e-6)
    assert layer.source == ("conv", "act") and layer.outputs == ("y",)
    x = np.random.default_rng(1).normal(0, 2, (3, *SHAPE)).astype(np.float32)
    want = run_float(graph, {"x": x})["y"]
    np.testing.assert_allclose(run_float(fuse(graph), {"x": x})["y"], want, atol=1e-5)
    for precision, least_db in (("int16", 65.0), ("int8", 26.0)):
        fixed = quantize(fuse(graph), calibrate(fuse(graph), [{"x": x}]), precision)  # type: ignore
        (made,) = fixed.layers
        assert isinstance(made, FixedConv) and made.slopes is not None
        assert made.slopes.tolist() == np.floor(slopes * 2**14 + 0.5).astype(int).tolist()
        found = run_fixed(fixed, {"x": fixed.scales["x"].quantize(x, fixed.element_bytes)})["y"]
        error = fixed.scales["y"].dequantize(found) - want
        assert 10 * np.log10((want**2).sum() / (error**2).sum()) > least_db


def test_machines_without_slopes_get_layers() -> None:
    known = {kind for kind in OPERATORS}
    for slopes, ability in ((np.array([0.1]), OneSlope), (EACH, ChannelSlopes)):
        other = {OneSlope, ChannelSlopes} - {ability}
        assert len(fuse(leaky(slopes), known | {ability}).layers) == 1
        assert len(fuse(leaky(slopes), known | other).layers) > 1


@pytest.mark.parametrize("change", ["output", "reader", "clip", "not whole", "too steep", "bias"])
def test_other_sums_stay(change: str) -> None:
    graph = leaky(np.array([0.1]))
    if change == "output":
        graph = replace(graph, outputs=("y", "a"))
    elif change == "reader":
        more = Elementwise("more", ("a", "x"), ("z",), "mul")
        graph = leaky(np.array([0.1]), more, outputs=("y", "z"))
    elif change == "clip":
        six = replace(graph.layers[3], activation=type(RELU)(0, 6))  # type: ignore[call-arg]
        graph = graph.with_layers((*graph.layers[:3], six, *graph.layers[4:]))
    elif change == "too steep":
        graph = leaky(np.array([1.1]))
    else:
        amount = {"not whole": {"scale": ZEROS + 0.2}, "bias": {"bias": ZEROS + 0.2}}[change]
        graph = graph.with_layers(
            replace(one, **amount) if one.name == "scale" else one for one in graph.layers
        )
    after = fuse(graph)
    assert not any(isinstance(getattr(one, "activation", None), Slopes) for one in after.layers)
