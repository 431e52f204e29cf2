"""Dilated convolutions with fewer taps, and with their rows together: the same integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, output_extent
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.ops.registry import check_shapes
from tvm_npu.codegen.passes.dilation import rows_together, with_live_taps
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import load_nmp_machine


def dilated(
    source: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int],
    dilation: tuple[int, int],
    padding: tuple[int, int, int, int],
    size: Literal[1, 2] = 2,
    residual: bool = False,
) -> FixedGraph:
    random = np.random.default_rng(sum(source))
    weight = random.integers(-9, 9, (filters, source[0], *kernel)).astype(f"i{size}")
    layer = FixedConv(
        "l", ("x", "r")[: 1 + residual], ("y",), weight,
        random.integers(-50, 50, filters).astype("i4"),
        padding=padding, dilation=dilation, shift=3, low=-100, high=100, residual_shift=2,
    )  # fmt: skip
    rows, columns = (
        output_extent(
            source[1 + k], kernel[k], 1, dilation[k], padding[k] + padding[k + 2]
        )
        for k in range(2)
    )
    shapes = {"x": source, "y": (filters, rows, columns)}
    if residual:
        shapes["r"] = shapes["y"]
    scales = q_point_scales(dict.fromkeys(shapes, 4))
    return FixedGraph((layer,), shapes, layer.inputs, ("y",), scales, size)


def integers(fixed: FixedGraph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    return {
        name: random.integers(-128, 128, (1, *fixed.shapes[name])).astype(f"i{fixed.element_bytes}")
        for name in fixed.inputs
    }


@st.composite
def graphs(draw: st.DrawFn) -> FixedGraph:
    number = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    source = (number(1, 3), number(1, 9), number(1, 9))
    kernel, dilation = (number(1, 3), number(1, 3)), (number(1, 6), number(1, 6))
    reach = [(kernel[k] - 1) * dilation[k] for k in range(2)]
    padding = [number(0, reach[k % 2]) for k in range(4)]
    for k in range(2):  # at least one window
        padding[k] += max(0, reach[k] + 1 - source[k + 1] - padding[k] - padding[k + 2])
    return dilated(
        source, 2, kernel, dilation, tuple(padding), draw(st.sampled_from((1, 2))),  # type: ignore[arg-type]
        draw(st.booleans()),
    )


def same(fixed: FixedGraph, other: FixedGraph) -> None:
    check_shapes(other)
    x = integers(fixed)
    np.testing.assert_array_equal(run_fixed(other, x)["y"], run_fixed(fixed, x)["y"])


@given(graphs())
@settings(max_examples=examples(60), deadline=None)
def test_taps_in_the_padding_change_nothing(fixed: FixedGraph) -> None:
    same(fixed, with_live_taps(fixed))


@given(graphs())
@settings(max_examples=examples(60), deadline=None)
def test_rows_that_lie_together_give_the_same(fixed: FixedGraph) -> None:
    layer = fixed.layers[0]
    assert isinstance(layer, FixedConv)
    made = rows_together(layer, fixed.shapes["x"], fixed.shapes["y"])  # type: ignore[arg-type]
    if made is None:
        assert layer.dilation[0] == 1 or layer.weight.shape[2] == 1
        return
    shapes = {**fixed.shapes, **made.shapes}
    scales = q_point_scales(dict.fromkeys(shapes, 4))
    same(fixed, replace(fixed, layers=made.layers, shapes=shapes, scales=scales))


@pytest.mark.parametrize("name", ["nmp-4x8", "zynq-7020", "setup-a", "snowflake-1cc"])
@pytest.mark.parametrize(
    ("dilation", "padding", "macs"),
    [
        ((36, 24), (36, 24, 36, 24), 14 * 14),
        ((11, 13), (9, 10, 8, 12), 9 * 10 * 2),  # the first windows begin inside then
        ((36, 2), (40, 2, 40, 2), 22 * 14 * 3),  # windows in the padding alone
        ((20, 2), (15, 2, 26, 2), 15 * 14 * 3),  # both
    ],
)
def test_machines_of_every_kind_multiply_no_taps_in_the_padding(
    name: str, dilation: tuple[int, int], padding: tuple[int, int, int, int], macs: int
) -> None:
    fixed = dilated((4, 14, 14), 5, (3, 3), dilation, padding)
    machine = load_machine(name)
    program = compile_fixed(fixed, machine)
    assert sum(layer.macs for layer in program.layers) == 4 * 5 * macs
    x = integers(fixed)
    (found,) = Session(program).run_fixed([x[tensor] for tensor in fixed.inputs])
    np.testing.assert_array_equal(found, run_fixed(fixed, x)["y"])


@pytest.mark.parametrize("extent", [33, 60])
def test_wide_dilations_run_on_an_nmp(extent: int) -> None:
    fixed = dilated((4, extent, extent), 4, (3, 3), (36, 36), (36, 36, 36, 36), 2, True)
    x = integers(fixed)
    program = compile_fixed(fixed, load_nmp_machine("nmp-4x8"))
    assert len(program.layers) == (1 if extent == 33 else 5)
    outputs, _ = simulate(program, {name: values[0] for name, values in x.items()})
    np.testing.assert_array_equal(outputs["y"], run_fixed(fixed, x)["y"][0])
