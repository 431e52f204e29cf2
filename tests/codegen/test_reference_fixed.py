"""The fixed-point meaning against exact integers in plain loops; rounding and saturation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.slow_fixed import SlowRun
from tests.examples import examples
from tvm_npu.codegen.errors import GraphError, InputError, QuantizationError
from tvm_npu.codegen.fixed_point import (
    ELEMENT_TYPE,
    dequantize_tensor,
    element_limits,
    quantize_tensor,
    requantize,
)
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent, q_point_scales
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool, ScaleShift
from tvm_npu.codegen.ops.arithmetic import convolve
from tvm_npu.codegen.ops.weights import product_type
from tvm_npu.codegen.reference import run_fixed

ELEMENT_BYTES = st.sampled_from((1, 2))


@pytest.mark.parametrize(
    ("acc", "shift", "expected"),
    [
        (5, 1, 3), (-5, 1, -2), (1, 1, 1), (-1, 1, 0), (3, 1, 2), (-3, 1, -1), (6, 2, 2),
        (-6, 2, -1), (5, 2, 1), (-7, 2, -2), (7, 0, 7), (-7, 0, -7), (3, -2, 12), (-3, -2, -12),
        (127, 0, 127), (128, 0, 127), (-128, 0, -128), (-129, 0, -128), (255, 1, 127),
        (253, 1, 127), (252, 1, 126), (-257, 1, -128), (64, -1, 127), (-64, -1, -128),
        (2**62, -31, 127), (-(2**62), -31, -128), (2**63 - 1, 62, 2), (2**63 - 1, 63, 1),
        (-(2**63), 63, -1), (2**63 - 1, 64, 0), (-(2**63), 64, 0), (2**63 - 1, 70, 0),
    ],
)  # fmt: skip
def test_requantize_rounds_half_up_and_saturates(acc: int, shift: int, expected: int) -> None:
    got = requantize(np.array([acc]), shift, -128, 127, 1)
    assert got.dtype == np.int8 and got[0] == expected


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-40, 63), ELEMENT_BYTES, st.data())
def test_requantize_against_integers(
    acc: int, shift: int, element_bytes: int, data: st.DataObject
) -> None:
    smallest, largest = element_limits(element_bytes)
    low, high = sorted(data.draw(st.tuples(*[st.integers(smallest, largest)] * 2)))
    exact = (acc + 2 ** (shift - 1)) >> shift if shift > 0 else acc << -shift
    expected = max(low, min(high, max(smallest, min(largest, exact))))
    assert requantize(np.array([acc]), shift, low, high, element_bytes)[0] == expected
    shifts = np.array([shift, 5, -7])
    several = requantize(np.array([acc, acc, acc]), shifts, low, high, element_bytes)
    assert several[0] == expected


def test_quantize_tensor_rounds_half_up_and_saturates() -> None:
    x = np.array([0.125, -0.125, 0.375, -0.375, 0.124, 40.0, -40.0, np.inf, -np.inf], np.float32)
    got = quantize_tensor(x, 2, 1)
    np.testing.assert_array_equal(got, [1, 0, 2, -1, 0, 127, -128, 127, -128])
    assert got.dtype == np.int8
    np.testing.assert_array_equal(quantize_tensor(np.array([24.0, -40.0]), -4, 2), [2, -2])
    with pytest.raises(QuantizationError, match="1 NaN"):
        quantize_tensor(np.array([1.0, np.nan]), 2, 1)


@given(st.integers(-(2**15), 2**15 - 1), st.integers(-24, 30))
def test_dequantize_is_exact_and_inverse(value: int, q_point: int) -> None:
    real = dequantize_tensor(np.array([value], np.int16), q_point)
    assert real.dtype == np.float32 and float(real[0]) == value * 2.0**-q_point
    assert quantize_tensor(real, q_point, 2)[0] == value


class Case:
    """Draws one layer over random integers of one element type and compares both runs."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.element_bytes = data.draw(ELEMENT_BYTES)
        self.dtype = ELEMENT_TYPE[self.element_bytes]
        self.generator = np.random.default_rng(data.draw(st.integers(0, 2**16)))

    def number(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def integers(self, *shape: int) -> np.ndarray:
        smallest, largest = element_limits(self.element_bytes)
        values = self.generator.integers(smallest, largest, shape, endpoint=True)
        if self.number(0, 3) == 0:
            values = self.generator.choice([smallest, -1, 0, largest], shape)
        return values.astype(self.dtype)

    def finish(self, shift: int) -> dict[str, int]:
        smallest, largest = element_limits(self.element_bytes)
        low = self.data.draw(st.sampled_from((smallest, 0, -5)))
        return {"shift": shift, "low": low, "high": self.number(max(low, 0), largest)}

    def check(self, layer: FixedLayer, shapes: dict[str, Shape]) -> None:
        names = tuple(name for name in shapes if name != "y")
        fixed = FixedGraph(
            (layer,),
            shapes,
            names,
            ("y",),
            q_point_scales(dict.fromkeys(shapes, 0)),
            self.element_bytes,
        )
        inputs = {name: self.integers(2, *shapes[name]) for name in names}
        got = run_fixed(fixed, inputs)["y"]
        assert got.dtype == self.dtype
        for image in range(2):
            slow = SlowRun(fixed, {name: value[image] for name, value in inputs.items()})
            np.testing.assert_array_equal(got[image], slow.tensors["y"].astype(np.int64))


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_convolution(data: st.DataObject) -> None:
    case = Case(data)
    groups = data.draw(st.sampled_from((1, 2, 4)))
    depth, per_group = (1 if groups == 4 else case.number(1, 2)), case.number(1, 2)
    kernel, stride = (case.number(1, 3), case.number(1, 3)), (case.number(1, 2), case.number(1, 3))
    dilation, padding = (case.number(1, 2), case.number(1, 2)), [case.number(-1, 2) for _ in "tlbr"]
    rows = output_extent(6, kernel[0], stride[0], dilation[0], padding[0] + padding[2])
    columns = output_extent(7, kernel[1], stride[1], dilation[1], padding[1] + padding[3])
    if rows < 1 or columns < 1:
        return
    shapes: dict[str, Shape] = {
        "x": (groups * depth, 6, 7),
        "y": (groups * per_group, rows, columns),
    }
    shifts = {}
    if case.number(0, 1):
        shapes["r"] = shapes["y"]
        align = case.number(-12, 12)
        shifts = {"accumulator_shift": max(align, 0), "residual_shift": max(-align, 0)}
    layer = FixedConv(
        "c", tuple(name for name in shapes if name != "y"), ("y",),
        weight=case.integers(groups * per_group, depth, *kernel),
        bias=case.generator.integers(-(2**31), 2**31, groups * per_group).astype(np.int32),
        stride=stride, padding=tuple(padding), dilation=dilation, groups=groups, **shifts,
        **case.finish(case.number(-2, 30)),
    )  # fmt: skip
    case.check(layer, shapes)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_dense(data: st.DataObject) -> None:
    case = Case(data)
    channels, filters = case.number(1, 40), case.number(1, 6)
    layer = FixedConv(
        "d", ("x", "r"), ("y",), weight=case.integers(filters, channels, 1, 1), is_dense=True,
        bias=case.integers(filters).astype(np.int32), residual_shift=case.number(0, 8),
        **case.finish(case.number(0, 24)),
    )  # fmt: skip
    case.check(layer, {"x": (channels,), "r": (filters,), "y": (filters,)})


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    case = Case(data)
    kernel, stride = (case.number(1, 3), case.number(1, 3)), (case.number(1, 2), case.number(1, 2))
    counted = tuple(case.number(0, kernel[axis % 2] - 1) for axis in range(4))
    layer = FixedPool(
        "p", ("x",), ("y",), data.draw(st.sampled_from(("max", "avg"))), kernel, stride, counted,
        data.draw(st.booleans()), counted, **case.finish(0),
    )  # fmt: skip
    rows = output_extent(5, kernel[0], stride[0], 1, counted[0] + counted[2])
    columns = output_extent(6, kernel[1], stride[1], 1, counted[1] + counted[3])
    case.check(layer, {"x": (2, 5, 6), "y": (2, rows, columns)})


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_elementwise(data: st.DataObject) -> None:
    case = Case(data)
    op = data.draw(st.sampled_from(("add", "mul", "copy")))
    shapes: dict[str, Shape] = {"x": (3, 2, 4), "z": (3, 2, 4), "y": (3, 2, 4)}
    if op == "copy":
        del shapes["z"]
    a, b = case.number(0, 9), case.number(0, 9)
    shifts = (a, b) if op == "add" else (0, 0)
    names = tuple(name for name in shapes if name != "y")
    layer = FixedElementwise("e", names, ("y",), op, *shifts, **case.finish(case.number(-9, 20)))
    case.check(layer, shapes)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_pad(data: st.DataObject) -> None:
    case = Case(data)
    amounts = [case.number(-1, 2) for _ in range(6)]
    before, after = tuple(amounts[:3]), tuple(amounts[3:])
    stride = (case.number(1, 3), case.number(1, 3))
    padded = [e + a + b for e, a, b in zip((3, 4, 5), before, after, strict=True)]
    shape = (padded[0], -(-padded[1] // stride[0]), -(-padded[2] // stride[1]))
    layer = FixedPad("p", ("x",), ("y",), before, after, stride, case.number(-128, 127))
    case.check(layer, {"x": (3, 4, 5), "y": shape})


def test_average_of_negative_ties_rounds_up() -> None:
    layer = FixedPool("p", ("x",), ("y",), "avg", (1, 2), (1, 2), shift=0, low=-128, high=127)
    fixed = FixedGraph(
        (layer,),
        {"x": (1, 1, 6), "y": (1, 1, 3)},
        ("x",),
        ("y",),
        q_point_scales({"x": 0, "y": 0}),
        1,
    )
    x = np.array([[[[-1, -2, 1, 2, -128, -127]]]], np.int8)
    np.testing.assert_array_equal(run_fixed(fixed, {"x": x})["y"], [[[[-1, 2, -127]]]])


def test_products_stay_exact_beyond_float32_and_float64() -> None:
    """Each number type is used exactly as far as its integers reach."""

    def chosen(taps: int, weight: int, element_bytes: int) -> type:
        values = np.full((1, 1, 1, 1), weight, ELEMENT_TYPE[element_bytes])
        wide = np.broadcast_to(values, (1, taps, 1, 1))
        layer = FixedConv(
            "c", ("x",), ("y",), weight=wide, bias=np.zeros(1, np.int32), shift=0, low=0, high=1
        )
        return product_type(layer.weight, element_bytes)

    assert chosen(1023, -128, 1) is np.float32
    assert chosen(1024, -128, 1) is np.float64
    assert chosen(2**23 - 1, -(2**15), 2) is np.float64
    assert chosen(2**23, -(2**15), 2) is np.int64


def test_integer_products_beyond_float64() -> None:
    x = np.array([2**40 + 1, 3], np.int64).reshape(1, 2, 1, 1)
    weight = np.array([[2**15 - 1, 1], [-5, 7]], np.int64).reshape(2, 2, 1, 1)
    acc = convolve(x, weight, (1, 1), (0, 0, 0, 0), (1, 1), 1, np.int64)
    expected = [(2**40 + 1) * (2**15 - 1) + 3, -5 * (2**40 + 1) + 21]
    assert acc.reshape(-1).tolist() == expected


def test_unusable_inputs_and_layers() -> None:
    layer = FixedElementwise("e", ("x",), ("y",), "copy", shift=0, low=-128, high=127)
    fixed = FixedGraph(
        (layer,), {"x": (2,), "y": (2,)}, ("x",), ("y",), q_point_scales({"x": 0, "y": 0}), 1
    )
    with pytest.raises(InputError, match="'x' has type int16; expected an array of int8"):
        run_fixed(fixed, {"x": np.zeros((1, 2), np.int16)})
    with pytest.raises(InputError, match="missing"):
        run_fixed(fixed, {})
    foreign = ScaleShift("a", ("x",), ("y",), np.ones(2, np.float32), np.ones(2, np.float32))
    mixed = FixedGraph((foreign,), fixed.shapes, ("x",), ("y",), fixed.scales, 1)  # type: ignore
    with pytest.raises(GraphError, match="ScaleShift is no layer of a fixed-point graph"):
        run_fixed(mixed, {"x": np.zeros((1, 2), np.int8)})
