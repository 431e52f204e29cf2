"""Two convolutions of one tensor in front of a pointwise one, as one layer: SqueezeNet's fire
modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    filter_shifts,
    for_machine,
    random_tensors,
    requantizing,
)
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_blocks import Blocking
from tests.codegen.nmp.test_wide_plans import machines, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent, q_point_scales
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.planning import possible_twin_blocks
from tvm_npu.codegen.ops import FixedBlock, FixedConcat, FixedConv, FixedPool
from tvm_npu.codegen.plan.limits import NO_LIMITS
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine


@st.composite
def fires(draw: st.DrawFn, element_bytes: int, with_pool: bool) -> FixedGraph:
    """Two convolutions of one tensor, their concatenation, a pool or none, and a pointwise
    convolution, which may add a residual."""
    low, high = element_limits(element_bytes)
    generator = np.random.default_rng(draw(SEEDS))
    dtype = np.int8 if element_bytes == 1 else np.int16

    def conv(
        name: str, source: str, target: str, shape: tuple[int, ...], **more: object
    ) -> FixedConv:
        filters = shape[0]
        return FixedConv(
            name, (source,), (target,), source=(name,),
            weight=generator.integers(low, high + 1, shape).astype(dtype),
            bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
            filter_shifts=draw(filter_shifts(filters, element_bytes)),
            **{**draw(requantizing(element_bytes)), **more},  # type: ignore[arg-type]
        )  # fmt: skip

    channels = draw(st.integers(1, 7))
    filters = draw(st.integers(1, 5)) * draw(st.sampled_from((1, 2, 4, 8)))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 3)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    span = tuple((taps - 1) * apart for taps, apart in zip(kernel, dilation, strict=True))
    before = tuple(draw(st.integers(0, reach)) for reach in span)
    padding = (*before, *(reach - own for reach, own in zip(span, before, strict=True)))
    extents = (draw(st.integers(1, 11)), draw(st.integers(1, 11)))
    wide = conv(
        "wide", "x", "w", (filters, channels, *kernel), padding=padding, dilation=dilation
    )
    point = conv("narrow", "x", "n", (filters, channels, 1, 1))
    if draw(st.booleans()):
        wide = replace(wide, slopes=np.array([draw(st.integers(1, 32767))]))
    if draw(st.booleans()):  # one end for both
        same = {"shift": wide.shift, "low": wide.low, "high": wide.high, "filter_shifts": None}
        wide, point = replace(wide, slopes=None, filter_shifts=None), replace(point, **same)  # type: ignore[arg-type]
    order = draw(st.permutations(("w", "n")))
    layers: list[FixedLayer] = [wide, point, FixedConcat("both", tuple(order), ("c",))]
    shapes: dict[str, Shape] = {
        "x": (channels, *extents), "w": (filters, *extents), "n": (filters, *extents),
        "c": (2 * filters, *extents),
    }  # fmt: skip
    made = "c"
    if with_pool:
        size = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        stride = (draw(st.integers(1, 3)), draw(st.integers(1, 2)))
        pads = tuple(draw(st.integers(0, size[axis % 2] - 1)) for axis in range(4))
        extents = tuple(
            output_extent(extent, size[axis], stride[axis], 1, pads[axis] + pads[axis + 2])
            for axis, extent in enumerate(extents)
        )  # type: ignore[assignment]
        assume(min(extents) > 0)
        pool = FixedPool(
            "pool", ("c",), ("p",), kind=draw(st.sampled_from(("max", "avg"))), kernel=size,
            stride=stride, padding=pads, count_include_pad=draw(st.booleans()),  # type: ignore[arg-type]
            counted_padding=pads, **{**draw(requantizing(element_bytes)), "shift": 0},  # type: ignore[arg-type]
        )  # fmt: skip
        layers.append(pool)
        made, shapes["p"] = "p", (2 * filters, *extents)
    out = draw(st.integers(1, 20))
    last = conv("last", made, "z", (out, 2 * filters, 1, 1))
    shapes["z"] = (out, *extents)
    inputs: tuple[str, ...] = ("x",)
    if draw(st.booleans()):
        shapes["r"], inputs = shapes["z"], ("x", "r")
        last = replace(
            last, inputs=(made, "r"), accumulator_shift=draw(st.integers(0, 3)),
            residual_shift=draw(st.integers(0, 8)),
        )  # fmt: skip
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph((*layers, last), shapes, inputs, ("z",), scales, element_bytes)


@pytest.mark.parametrize("with_pool", [True, False])
@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(12), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_fire_modules_run_to_the_bit(
    element_bytes: int, buffers: int, with_pool: bool, data: st.DataObject
) -> None:
    fixed = data.draw(fires(element_bytes, with_pool))
    machine = data.draw(machines(buffers))
    fixed = for_machine(fixed, machine)
    assume(possible_twin_blocks(fixed, machine))
    layers = run_drawn(fixed, machine, Blocking(data, buffers), data)
    assert [type(one.layer) for one in layers] == [FixedBlock]
    assert layers[0].layer.twin is not None


FIRE = BlockProblem(
    ConvProblem(
        filters=64, channels=16, groups=1, rows=54, columns=54, in_rows=54, in_columns=54,
        kernel=(3, 3), stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1), element_bytes=2,
        has_twin=True,
    ),
    16,
)  # fmt: skip
"""The second fire module of SqueezeNet 1.0, and the squeeze of the third."""
POOLED = replace(FIRE, head=replace(FIRE.head, window=Window(27, 27, (3, 3), (2, 2), (0, 0))))


def test_the_checker_finds_what_is_wrong_with_a_twin() -> None:
    machine = load_nmp_machine("nmp-4x8")
    plan = plan_block(FIRE, machine, NO_LIMITS, "exact")
    assert isinstance(plan, BlockPlan)
    assert check_block(FIRE, plan, machine) is None
    head = FIRE.head
    outside = replace(FIRE, head=replace(head, padding=(3, 1, -1, 1)))
    assert "inside of the other's windows" in str(check_block(outside, plan, machine))
    kernels = replace(FIRE, head=replace(head, window=Window(54, 54, (1, 1), (1, 1), (0, 0), True)))
    assert "kernels of the window behind a twin" in str(check_block(kernels, plan, machine))
    by_filter = replace(plan.head, schedule="OS", weights="filters", tile_n=4)
    found = check_block(FIRE, replace(plan, head=by_filter), machine)
    assert "weights of a head with a twin is filters" in str(found)
    uneven = replace(plan, passed=3)
    assert "channels of a tile is 16" in str(check_block(FIRE, uneven, machine))


WS_ROWS = ConvPlan(
    "multicast", "OFM", 4, 1, "WS", 8, 12, 4, 54, ring_weights=True, weights="tiles",
    linear_maps=True,
)  # fmt: skip
"""Rows over TLEs; each TLT has 8 pairs of filters, which make 16 channels."""


@pytest.mark.parametrize(
    ("problem", "plan", "memory", "needed"),
    [
        # 12 channels of 6 x 56, and one row and one column behind them
        (FIRE, WS_ROWS, "mb0_bytes", (12 * 6 * 56 + 57) * 2),
        # 9 + 1 taps a pair and channel, and 2 filters over all 128 channels
        (FIRE, WS_ROWS, "mb1_bytes", (8 * 16 * 10 + 2 * 128) * 2),
        (FIRE, WS_ROWS, "mb2_bytes", (16 + 2) * 4 * 54 * 2),
        (FIRE, WS_ROWS, "bias_bytes", (16 + 2) * 4),
        # 16 channels of boxes of 3 x 55 under one row of windows; 3 channels of 5 x 56
        (POOLED, replace(WS_ROWS, tile_n=3, tile_r=1, tile_c=27), "mb0_bytes", 16 * 3 * 55 * 2),
        (
            POOLED, replace(WS_ROWS, tile_n=3, tile_r=1, tile_c=27), "mb2_bytes",
            (16 * 3 * 54 + (16 + 2) * 27) * 2,
        ),
        # one more channel's box, in which a row that is copied may end
        (
            POOLED, replace(WS_ROWS, tile_n=3, tile_r=1, tile_c=27, keeps_rows=True), "mb0_bytes",
            17 * 3 * 55 * 2,
        ),
    ],
)  # fmt: skip
def test_the_checker_counts_what_a_twin_needs(
    problem: BlockProblem, plan: ConvPlan, memory: str, needed: int
) -> None:
    machine = load_nmp_machine("nmp-4x8")
    assert least_bytes(problem, BlockPlan(plan, 1), machine, memory) == needed


def least_bytes(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine, memory: str
) -> int:
    """Of one memory, that the checker finds to be enough."""
    size = 8
    while True:
        memories = machine.memories.model_copy(update={memory: size})
        found = check_block(problem, plan, machine.model_copy(update={"memories": memories}))
        if found is None:
            return size
        assert isinstance(found.value, int)
        size = found.value


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
@pytest.mark.parametrize("with_pool", [False, True])
def test_exact_takes_a_fire_module_as_one_layer(name: str, with_pool: bool) -> None:
    """In as little time as it predicts, and in less than its layers one by one."""
    machine = load_nmp_machine(name)
    fixed = fire_module(with_pool)
    given = random_tensors(fixed, 1)
    expected = run_fixed(fixed, {name: value[None] for name, value in given.items()})["z"][0]
    cycles = {}
    for chosen in ("exact", "exact-dma"):
        program = compile_fixed(fixed, machine, chosen)
        outputs, statistics = simulate(program, given)
        assert np.array_equal(outputs["z"], expected)
        cycles[chosen] = sum(layer.cycles for layer in statistics.layers)
        if chosen == "exact":
            assert [layer.kind for layer in program.layers] == [
                "conv+max_pool+conv+max_pool+conv" if with_pool else "conv+conv+conv"
            ]
            predicted = program.layers[0].predicted_cycles
            assert predicted == pytest.approx(statistics.layers[0].cycles, rel=0.05)
    assert cycles["exact"] < 0.85 * cycles["exact-dma"]


def fire_module(with_pool: bool) -> FixedGraph:
    """`FIRE` or `POOLED`."""
    generator = np.random.default_rng(0)

    def conv(source: str, target: str, shape: tuple[int, ...]) -> FixedConv:
        padding = (shape[2] // 2,) * 4
        return FixedConv(
            target, (source,), (target,), padding=padding, shift=8, low=0, high=32767,
            weight=generator.integers(-50, 50, shape).astype(np.int16),
            bias=generator.integers(-999, 999, shape[0]).astype(np.int32),
        )  # fmt: skip

    layers: list[FixedLayer] = [
        conv("x", "n", (64, 16, 1, 1)), conv("x", "w", (64, 16, 3, 3)),
        FixedConcat("c", ("n", "w"), ("c",)),
    ]  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (16, 54, 54), "n": (64, 54, 54), "w": (64, 54, 54), "c": (128, 54, 54),
        "z": (16, 54, 54),
    }  # fmt: skip
    made = "c"
    if with_pool:
        pool = FixedPool(
            "p", ("c",), ("p",), kind="max", kernel=(3, 3), stride=(2, 2), padding=(0, 0, 1, 1),
            count_include_pad=False, counted_padding=(0, 0, 0, 0), shift=0, low=-32768, high=32767,
        )  # fmt: skip
        layers.append(pool)
        made, shapes["p"], shapes["z"] = "p", (128, 27, 27), (16, 27, 27)
    layers.append(conv(made, "z", (16, 128, 1, 1)))
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(layers), shapes, ("x",), ("z",), scales, 2)
