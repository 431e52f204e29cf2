"""Transposed convolutions on Snowflake machines, against the reference: every bit, and a race
checker that has nothing to say; the input is never expanded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph, Shape

RANDOM = settings(deadline=None, max_examples=40, phases=[Phase.explicit, Phase.generate])


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> FixedGraph:
    """Any kernel, stride (larger than the kernel, too), padding, groups."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    depth = draw(st.sampled_from((1, 3, 8, 16, 24, 32, 64)))
    filters = draw(st.sampled_from((1, 5, 16, 20, 48, 64, 80)))
    channels, outputs = depth * groups, filters * groups
    if draw(st.sampled_from((False, False, True))):
        channels = outputs = groups = draw(st.sampled_from((4, 16, 40, 64, 96, 130)))
    kernel, stride = (number(1, 5), number(1, 5)), (number(1, 4), number(1, 4))
    size = (number(1, 14), number(1, 14))
    padding = [number(0, kernel[axis % 2] - 1) for axis in range(4)]
    more = (number(0, stride[0] - 1), number(0, stride[1] - 1))
    extents = []
    for i in range(2):
        whole = (size[i] - 1) * stride[i] + kernel[i] + more[i]
        while padding[i] + padding[i + 2] >= whole:
            padding[i] = padding[i + 2] = 0
        extents.append(whole - padding[i] - padding[i + 2])
    layer = ops.FixedTransposedConv(
        "up", ("x",), ("y",),
        rng.integers(-300, 300, (outputs, channels // groups, *kernel)).astype(np.int16),
        rng.integers(-(1 << 20), 1 << 20, outputs).astype(np.int32), stride,
        tuple(padding), more, groups,  # type: ignore[arg-type]
        shift=number(-1, 12), low=-30000, high=number(1000, 32767),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (channels, *size), "y": (outputs, *extents)}  # type: ignore[dict-item]
    return graph_of(layer, shapes)


@RANDOM
@given(transposed_convolutions(), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_transposed_convolutions(fixed: FixedGraph, name: str, seed: int) -> None:
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


def test_layer_of_the_paper_is_near_its_bound() -> None:
    """3x3, stride 2, 32x32x64 to 64 planes (the compiler's paper, section 9.1): no product with a
    zero between the input's rows, which would take four times as long, and each word of the input
    comes once, but for the rows that two tiles share."""
    rng = np.random.default_rng(5)
    layer = ops.FixedTransposedConv(
        "up", ("x",), ("y",), rng.integers(-300, 300, (64, 64, 3, 3)).astype(np.int16),
        np.zeros(64, np.int32), (2, 2), (1, 1, 1, 1), (1, 1), shift=9, low=-30000, high=30000,
    )  # fmt: skip
    on = machine("snowflake-1cc")
    fixed = graph_of(layer, {"x": (64, 32, 32), "y": (64, 64, 64)})
    found = outcome(fixed, on)
    assert (found.wrong, found.hazards) == (0, ())
    macs = found.program.layers[0].macs
    assert macs == 64 * 64 * (32 + 32 + 31) ** 2
    bound_cycles = macs / on.macs_per_cycle(2)
    assert found.statistics.cycles == pytest.approx(bound_cycles, rel=0.04)
    two = outcome(fixed, machine("snowflake-2cc"))
    assert (two.wrong, two.hazards) == (0, ())
    assert two.statistics.cycles < 0.6 * found.statistics.cycles
