"""Weights with a Q-point a filter."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import QuantizationError, UnsupportedLayerError
from tvm_npu.codegen.graph import Graph, q_point_scales
from tvm_npu.codegen.ops import Conv2d, FixedConv
from tvm_npu.codegen.ops.filter_weights import filter_weights
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.sim.nmp.machine import FILTER_SHIFTS, load_nmp_machine

Q_IN, Q_OUT, Q_RESIDUAL = 5, 3, 9


def made(weight: np.ndarray, bias: np.ndarray, residual: bool = False) -> FixedConv:
    inputs = ("x", "r") if residual else ("x",)
    layer = Conv2d("c", inputs, ("y",), weight.astype(np.float32), bias.astype(np.float32))
    scales = q_point_scales({"x": Q_IN, "y": Q_OUT, "r": Q_RESIDUAL})
    numbers = Numbers(scales, 1, FILTER_SHIFTS)
    found = filter_weights(layer, layer.weight, layer.bias, numbers)
    return FixedConv(
        "c", inputs, ("y",), found.weight, found.bias, shift=found.shift, low=-128, high=127,
        accumulator_shift=found.accumulator_shift, residual_shift=found.residual_shift,
        weight_q_point=found.q_point, filter_shifts=found.filter_shifts,
    )  # fmt: skip


def test_each_filter_has_its_own_q_point() -> None:
    generator = np.random.default_rng(3)
    largest = np.array([1, 0.1, 0.003, 0.0]).reshape(4, 1, 1, 1)
    weight = generator.uniform(-1, 1, (4, 6, 3, 3)) * largest
    conv = made(weight, np.array([0.5, -0.25, 0.125, 1.0]))
    assert conv.filter_shifts is not None
    assert conv.filter_shifts.tolist() == [0, 3, 8, 0]
    q = conv.weight_q_point + conv.filter_shifts
    restored = conv.weight * 2.0 ** -q[:, None, None, None].astype(float)
    for m in range(3):
        assert np.abs(restored[m] - weight[m]).max() <= np.abs(weight[m]).max() / 100
    assert (conv.bias * 2.0 ** -(Q_IN + q)).tolist() == [0.5, -0.25, 0.125, 1.0]
    assert conv.shift == Q_IN + conv.weight_q_point - Q_OUT


def test_a_residual_meets_every_accumulator() -> None:
    weight = np.array([1.0, 2.0**-8])[:, None, None, None] * np.ones((2, 1, 1, 1))
    conv = made(weight, np.zeros(2), residual=True)
    assert conv.filter_shifts is not None and conv.filter_shifts.tolist() == [0, 8]
    sums = Q_IN + conv.weight_q_point + conv.filter_shifts + conv.accumulator_shift
    assert (conv.residual_shift + conv.filter_shifts == sums - Q_RESIDUAL).all()
    assert conv.residual_shift >= 0


def test_biases_and_shifts_keep_to_the_word() -> None:
    """A bias that does not fit 26 bits takes digits from the weights, a shift that does not fit 6
    bits too."""
    conv = made(np.full((2, 1, 1, 1), 0.5), np.array([3000.0, 0.0]))
    assert np.abs(conv.bias).max() < 2**25
    assert conv.bias[0] * 2.0 ** -(Q_IN + conv.weight_q_point) == 3000.0
    conv = made(np.array([1e3, 1e-20])[:, None, None, None], np.zeros(2))
    assert conv.filter_shifts is not None and conv.filter_shifts.max() <= 63


def test_values_that_no_q_point_holds() -> None:
    with pytest.raises(QuantizationError, match="filter 1 has no weight Q-point.*26 bits"):
        made(np.ones((2, 1, 1, 1)), np.array([0.0, 1e30]))
    with pytest.raises(QuantizationError, match="has the weight nan"):
        made(np.array([[[[np.nan]]]]), np.zeros(1))


def test_machines_that_shift_all_filters_alike_refuse() -> None:
    layer = Conv2d(
        "c", ("x",), ("y",), np.ones((2, 2, 1, 1), np.float32), np.zeros(2, np.float32)
    )
    graph = Graph((layer,), {"x": (2, 3, 3), "y": (2, 3, 3)}, ("x",), ("y",))
    ranges = Ranges.from_bounds({"x": (-1, 1), "y": (-2, 2)})
    fixed = quantize(graph, ranges, "int8", FILTER_SHIFTS)
    assert compile_fixed(fixed, load_nmp_machine("nmp-4x8"))
    with pytest.raises(UnsupportedLayerError, match="'c' has a Q-point a filter.*nmp-4x8-paper"):
        compile_fixed(fixed, load_nmp_machine("nmp-4x8-paper"))
