"""Integers of large weights: the same as without blocks, and without copies of all weights."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tvm_npu.codegen.graph import q_point_scales
from tvm_npu.codegen.ops import Conv2d
from tvm_npu.codegen.ops.filter_weights import layer_weights
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization
from tvm_npu.sim.nmp.machine import FILTER_SHIFTS

FILTERS, DEPTH = 1000, 4096


@pytest.mark.parametrize("element_bytes", [1, 2])
@pytest.mark.parametrize("step", [FILTER_SHIFTS, Q_POINTS_ONLY])
@pytest.mark.parametrize("is_turned", [False, True])
def test_large_weights_are_never_copied_as_floats(
    step: Requantization, element_bytes: int, is_turned: bool
) -> None:
    """As float64, with what rounding makes of it, they took eight times their own bytes."""
    generator = np.random.default_rng(element_bytes)
    shape = (DEPTH, FILTERS) if is_turned else (FILTERS, DEPTH)
    weight = generator.normal(0, 0.02, shape).astype(np.float32)
    weight = weight.T if is_turned else weight
    sizes = generator.uniform(0.2, 5, FILTERS).astype(np.float32)
    np.multiply(weight, sizes[:, None], out=weight)
    weight = weight[:, :, None, None]
    layer = Conv2d("c", ("x",), ("y",), weight, generator.normal(0, 1, FILTERS).astype(np.float32))
    numbers = Numbers(q_point_scales({"x": 4, "y": 3}), element_bytes, step)
    tracemalloc.start()
    try:
        found = layer_weights(layer, layer.weight, layer.bias, numbers)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < weight.nbytes
    shifts = np.zeros(FILTERS, int) if found.filter_shifts is None else found.filter_shifts
    q = (found.q_point + shifts).reshape(-1, 1, 1, 1)
    limit = 1 << (8 * element_bytes - 1)
    wanted = np.clip(np.floor(np.ldexp(weight.astype(float), q) + 0.5), -limit, limit - 1)
    np.testing.assert_array_equal(found.weight, wanted)
