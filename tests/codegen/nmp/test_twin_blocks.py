"""Two convolutions of one tensor in front of a pointwise one, as one layer: SqueezeNet's fire
modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, filter_shifts, for_machine, requantizing
from tests.codegen.nmp.test_blocks import Blocking
from tests.codegen.nmp.test_wide_plans import machines, run_drawn
from tests.examples import examples
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, output_extent, q_point_scales
from tvm_npu.codegen.nmp.plan.planning import possible_twin_blocks
from tvm_npu.codegen.ops import FixedBlock, FixedConcat, FixedConv, FixedPool


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
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
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
