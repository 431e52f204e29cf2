"""Transposed convolutions on Snowflake machines, against the reference: every bit, and a race
checker that has nothing to say; the input is never expanded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.snowflake.plan import questions
from tvm_npu.codegen.snowflake.plan.transposed import candidates

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])


@st.composite
def transposed_convolutions(draw: st.DrawFn, alike: bool = False) -> FixedGraph:
    """Any kernel, stride (larger than the kernel, too), padding, groups; phases ``alike`` have as
    many results each."""
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
    if alike:
        padding = [number(0, kernel[0] - 1), number(0, kernel[1] - 1), 0, 0]
        more = tuple((padding[i] - kernel[i]) % stride[i] for i in range(2))  # type: ignore[assignment]
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


@settings(RANDOM, max_examples=examples(15))
@given(transposed_convolutions(alike=True), st.sampled_from(MACHINES), st.data())
def test_every_plan_of_random_transposed_convolutions(
    fixed: FixedGraph, name: str, data: st.DataObject
) -> None:
    """Phases one after the other, those of a row side by side, and all: any tiles of any mode."""
    on = machine(name)
    shape = questions.question(fixed.layers[0], fixed.shapes)
    found = list(candidates(shape, on))
    ways = sorted({plan.side_by_side for plan in found})
    if not ways:
        return
    way = data.draw(st.sampled_from(ways))
    plan = data.draw(st.sampled_from([one for one in found if one.side_by_side == way]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "transposed_plan", lambda *_: plan)
        ran = outcome(fixed, on)
    assert (ran.wrong, ran.hazards) == (0, ())
    links, runs = ran.statistics.bytes_by_link, ran.statistics.runs
    assert plan.prediction is not None
    assert links["stored"]["out"] == runs * 2 * np.prod(fixed.shapes["y"])


LINKNET = (
    # planes, size, filters, kernel, stride; the least efficiency
    (32, 64, 20, 2, 2, 0.6), (64, 32, 32, 3, 2, 0.93), (16, 64, 16, 3, 1, 0.9),
    (32, 32, 32, 3, 2, 0.75), (128, 8, 128, 3, 2, 0.8),
)  # fmt: skip


@pytest.mark.parametrize("layer", LINKNET, ids=str)
def test_layers_of_linknet(layer: tuple[int, int, int, int, int, float]) -> None:
    """Few filters fill the vMACs with phases side by side, tiles are large, and the prediction by
    which they were chosen is near."""
    planes, size, filters, kernel, stride, least = layer
    rng = np.random.default_rng(5)
    border, more = (kernel - 1) // 2, stride - 1 if kernel == 3 else 0
    up = ops.FixedTransposedConv(
        "up", ("x",), ("y",),
        rng.integers(-300, 300, (filters, planes, kernel, kernel)).astype(np.int16),
        np.zeros(filters, np.int32), (stride, stride), (border,) * 4, (more, more), shift=9,
        low=-30000, high=30000,
    )  # fmt: skip
    out = (size - 1) * stride + kernel - 2 * border + more
    on = machine("snowflake-1cc")
    fixed = graph_of(up, {"x": (planes, size, size), "y": (filters, out, out)})
    found = outcome(fixed, on)
    assert (found.wrong, found.hazards) == (0, ())
    entry, cycles = found.program.layers[0], found.statistics.cycles / found.statistics.runs
    assert found.planned_cycles[0] == pytest.approx(cycles, rel=0.1)
    assert entry.macs / on.macs_per_cycle(2) >= least * cycles


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
