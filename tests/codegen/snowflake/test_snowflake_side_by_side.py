"""Convolutions whose neighbouring results are computed side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import graph_of, machine, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph.scale import q_point_scales

RANDOM = settings(deadline=None, max_examples=examples(25), phases=[Phase.explicit, Phase.generate])


def conv(
    planes: int, filters: int, out: tuple[int, int], kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), before: tuple[int, int] = (0, 0), seed: int = 0,
) -> tuple[ops.FixedConv, tuple[int, int, int]]:  # fmt: skip
    """A convolution with results of ``out`` rows and columns, and the shape of its input."""
    rng = np.random.default_rng(seed)
    size = [
        (count - 1) * step + taps - 2 * padding
        for count, step, taps, padding in zip(out, stride, kernel, before, strict=True)
    ]
    layer = ops.FixedConv(
        "conv", ("x",), ("y",),
        rng.integers(-300, 300, (filters, planes, *kernel)).astype(np.int16),
        rng.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
        stride=stride, padding=(*before, *before), shift=9, low=-30000, high=31000,
    )  # fmt: skip
    return layer, (planes, size[0], size[1])


@RANDOM
@given(st.data())
def test_blocks_of_any_size(data: st.DataObject) -> None:
    """Values are those of the convolution, whatever the block, the stride and the padding."""
    draw = data.draw
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    block, stride = draw(pair), draw(pair)
    half = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    kernel = (2 * half[0] + 1, 2 * half[1] + 1)
    before = draw(st.sampled_from(((0, 0), half)))
    count = draw(st.tuples(st.integers(2, 5), st.integers(2, 5)))
    planes, filters = draw(st.sampled_from((1, 3, 16, 32))), draw(st.integers(1, 20))
    out = (4 * block[0] * count[0], block[1] * count[1])
    layer, shape = conv(planes, filters, out, kernel, stride, before, draw(st.integers(0, 99)))
    if min(shape) < 1:
        return
    blocks = ops.FixedConvPixels("conv", ("x",), ("y",), layer, block)
    fixed = graph_of(blocks, {"x": shape, "y": (filters, *out)})
    found = outcome(fixed, machine(draw(st.sampled_from(("snowflake-1cc", "snowflake-4cc")))))
    assert (found.wrong, found.hazards) == (0, ())


@pytest.mark.parametrize("name", ("snowflake-1cc", "snowflake-4cc"))
def test_few_filters_fill_the_vmacs(name: str) -> None:
    """Three filters of sixteen planes leave 13 of 16 vMACs idle; blocks of results more than halve
    the time. The layer's products are still the convolution's."""
    layer, shape = conv(32, 3, (40, 40), (9, 9))
    shapes = {"x": shape, "y": (3, 40, 40)}
    found = outcome(graph_of(layer, shapes), machine(name))
    (entry,) = found.program.layers
    assert entry.macs == 32 * 3 * 81 * 1600
    alone = 81 * 32 / 16 * 1600 / machine(name).clusters.count
    assert found.statistics.cycles / found.statistics.runs < alone / 2
    assert (found.wrong, found.hazards) == (0, ())


def test_blocks_beside_another_tensor() -> None:
    """Results that are concatenated do not lie one behind the other."""
    first, shape = conv(32, 3, (24, 24), (5, 5))
    second, _ = conv(32, 5, (24, 24), (5, 5), seed=1)
    layers = (
        ops.FixedConvPixels("a", ("x",), ("a",), replace(first, outputs=("a",)), (2, 2)),
        ops.FixedConvPixels("b", ("x",), ("b",), replace(second, outputs=("b",)), (1, 3)),
        ops.FixedConcat("both", ("a", "b"), ("y",)),
    )
    shapes = {"x": shape, "a": (3, 24, 24), "b": (5, 24, 24), "y": (8, 24, 24)}
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    fixed = FixedGraph(layers, shapes, ("x",), ("y",), scales, 2)
    found = outcome(fixed, machine("snowflake-4cc"))
    assert (found.wrong, found.hazards) == (0, ())
