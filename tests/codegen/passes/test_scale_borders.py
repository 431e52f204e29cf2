"""Quantized graphs where numbers meet that one given scale does not have: paddings, tensors of
several scales joined without one of their own, the integer -128."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.nmp.simulated import simulate
from tests.codegen.passes.test_given_scales import MACHINE, REQUANTIZATION, Quantized
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import Scale
from tvm_npu.codegen.ops import Concat, Conv2d, Maximum, Pad, Pool
from tvm_npu.codegen.ops.scaled_weights import with_whole_biases
from tvm_npu.codegen.passes.calibrate import TensorRange, calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.given_scales import with_given_scales
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.scales import covering
from tvm_npu.codegen.reference import run_float

SHAPE = (2, 5, 4)


def two_scales(q: Quantized) -> tuple[str, str]:
    x = q.rounded("x", 0.03, 20)
    return q.rounded(x, 0.001, 0), x


def summed(q: Quantized, tensor: str) -> None:
    """A convolution behind ``tensor``, which has no scale of its own, and its rounding."""
    channels, *extents = q.shapes[tensor]
    conv = Conv2d("c", (tensor,), ("c",), q.weights(3, channels, 1, 1), np.zeros(3, np.float32))
    q.rounded(q.add(conv, (3, *extents)), 0.05, -3)


def joined(q: Quantized) -> None:
    summed(q, q.add(Concat("j", two_scales(q), ("j",)), (4, 5, 4)))


def largest(q: Quantized) -> None:
    fine, x = two_scales(q)
    around = q.add(Pool("w", (x,), ("w",), "max", (3, 3), padding=(1, 1, 1, 1)), SHAPE)
    summed(q, q.add(Maximum("m", (fine, around), ("m",)), SHAPE))


def padded(q: Quantized) -> None:
    x = q.rounded("x", 0.01, 120)
    summed(q, q.add(Pad("p", (x,), ("p",), (0, 1, 2), (0, 0, 1), value=1.5), (2, 6, 7)))


def padded_and_rounded(q: Quantized) -> None:
    x = q.rounded("x", 0.01, 120)
    p = q.add(Pad("p", (x,), ("p",), (0, 1, 2), (0, 0, 1), value=1.5), (2, 6, 7))
    q.rounded(p, 0.02, 0)


def averaged(q: Quantized) -> None:
    """Zeros around the map are counted; of another row the pool counts nothing."""
    pool = Pool(
        "p", (q.rounded("x", 0.03, 90),), ("p",), "avg", (3, 3), (2, 2), (1, 2, 2, 1), True,
        (1, 2, 1, 1),
    )  # fmt: skip
    q.rounded(q.add(pool, (2, 3, 3)), 0.03, 90)


def averaged_of_more(q: Quantized) -> None:
    """Means lie within a scale that does not hold what they are made of."""
    x = q.rounded("x", 0.03, 20)
    conv = Conv2d("c", (x,), ("c",), q.weights(2, 2, 1, 1), np.zeros(2, np.float32))
    pool = Pool("p", (q.add(conv, SHAPE),), ("p",), "avg", (3, 3), padding=(1, 1, 1, 1))
    q.rounded(q.add(pool, SHAPE), 0.02, 3)


MAKES = (joined, largest, padded, padded_and_rounded, averaged, averaged_of_more)


@pytest.mark.parametrize("make", MAKES)
def test_no_number_is_cut(make: Callable[[Quantized], None]) -> None:
    q = Quantized(7, SHAPE)
    make(q)
    graph = fuse(with_given_scales(q.graph(q.layers[-1].output)))
    x = np.float32(0.03) * q.rng.integers(-60, 60, (1, *SHAPE))
    x = x.astype(np.float32)
    fixed = quantize(graph, calibrate(graph, [{"x": x}]), "int8", REQUANTIZATION)
    integers = fixed.scales["x"].quantize(x, 1)
    outputs, _ = simulate(compile_fixed(fixed, MACHINE), {"x": integers[0]})
    (name,) = graph.outputs
    wanted = run_float(q.graph(name), {"x": fixed.scales["x"].dequantize(integers)})[name][0]
    off = np.abs(fixed.scales[name].dequantize(outputs[name][None])[0] - wanted)
    step = float(fixed.scales[name].steps[0])
    assert off.max() < 2.5 * step and np.ptp(wanted) > 20 * step


def test_a_scale_that_spans_all_where_none_given_does() -> None:
    fine, coarse = (Scale.from_real([step], [zero]) for step, zero in ((0.01, 0), (0.1, 128 - 1)))
    assert covering([TensorRange(-0.5, 1.2)], [coarse, fine]) == fine
    assert covering([TensorRange(-9.0, 0.0)], [fine, coarse]) == coarse
    made = covering([TensorRange(-9.0, 0.0), TensorRange(1.0, 16.5)], [fine, coarse])
    np.testing.assert_allclose(made.steps, 0.1, rtol=1e-6)
    assert made.zero_points == (-38,)


def test_integers_of_minus_128_beside_biases_between_steps() -> None:
    integers, steps = with_whole_biases(np.array([[-128, 3]]), np.array([0.5]), np.array([0.3]))
    assert integers.tolist() == [[-128, 3]] and steps.tolist() == [0.5]
