"""Moved elements on tile machines, transposed convolutions and reflections among them: every bit
the reference's, in transfers that every kind of mover can do."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, fixed_graph, random_tensors
from tests.codegen.snowflake.move_cases import moves
from tests.codegen.tiles.test_tile_differential import check
from tests.codegen.tiles.tile_cases import tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Layer
from tvm_npu.codegen.ops import (
    FixedMove,
    FixedReflectPad,
    FixedTransposedConv,
    ResizeNearest,
    Transpose,
    operator_of,
)
from tvm_npu.codegen.ops.move import Axis, Piece
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.moves import MOST_LOOPS, MoveShape, move_tiles, runs_of_tile
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

ElementBytes = Literal[1, 2]


def graph_of(layer: FixedMove, size: ElementBytes) -> FixedGraph:
    names = (*layer.inputs, layer.output)
    return fixed_graph(layer, dict(zip(names, layer.shapes, strict=True)), size)


@settings(max_examples=examples(40), deadline=None)
@given(moves(), tile_machines(), st.sampled_from((1, 2)), SEEDS)
def test_moves(layer: FixedMove, machine: TileMachine, size: ElementBytes, seed: int) -> None:
    fixed = graph_of(layer, size)
    check(fixed, random_tensors(fixed, seed), machine, seed)


@st.composite
def reflections(draw: st.DrawFn) -> FixedGraph:
    channels, rows, columns = (draw(st.integers(1, most)) for most in (5, 9, 9))
    most = (rows - 1, columns - 1)
    top, left, bottom, right = (draw(st.integers(0, most[side % 2])) for side in range(4))
    layer = FixedReflectPad("l", ("x",), ("y",), (top, left, bottom, right))
    padded = (channels, rows + top + bottom, columns + left + right)
    return fixed_graph(layer, {"x": (channels, rows, columns), "y": padded}, 2)


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> FixedGraph:
    groups, depth, filters = (draw(st.integers(1, most)) for most in (2, 3, 3))
    kernel, stride, size = ((draw(st.integers(1, n)), draw(st.integers(1, n))) for n in (4, 3, 6))
    padding = tuple(draw(st.integers(0, kernel[side % 2] - 1)) for side in range(4))
    more = (draw(st.integers(0, stride[0] - 1)), draw(st.integers(0, stride[1] - 1)))
    extents = [
        (size[axis] - 1) * stride[axis] + kernel[axis] + more[axis]
        - padding[axis] - padding[axis + 2]
        for axis in range(2)
    ]  # fmt: skip
    if min(extents) < 1:
        padding, extents = (0, 0, 0, 0), [
            (size[axis] - 1) * stride[axis] + kernel[axis] + more[axis] for axis in range(2)
        ]  # fmt: skip
    random = np.random.default_rng(draw(SEEDS))
    layer = FixedTransposedConv(
        "l", ("x",), ("y",),
        random.integers(-128, 128, (filters * groups, depth, *kernel)).astype(np.int8),
        random.integers(-9999, 9999, filters * groups).astype(np.int32), stride,
        padding, more, groups, shift=draw(st.integers(0, 8)), low=-128, high=127,  # type: ignore[arg-type]
    )  # fmt: skip
    shapes = {"x": (depth * groups, *size), "y": (filters * groups, *extents)}
    return fixed_graph(layer, shapes, 1)  # type: ignore[arg-type]


@settings(max_examples=examples(25), deadline=None)
@given(
    st.one_of(reflections(), transposed_convolutions()),
    st.sampled_from((tile_machine(), load_machine("zynq-7020"))), SEEDS,
)  # fmt: skip
def test_layers_that_become_moves(fixed: FixedGraph, machine: TileMachine, seed: int) -> None:
    check(fixed, random_tensors(fixed, seed), machine, seed)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=4))
@example([(500, 60), (9, 5)])
@example([(3, 9000), (1500, 2)])
@example([(65, 600), (257, 2)])
@example([(2, 2), (5, 9), (3, 2), (4, 1)])
@example([(2, 19), (4, 5), (3, 1)])
@example([(2, 3), (4, 1)])
def test_transfers_bring_each_element_to_its_place(axes: list[tuple[int, int]]) -> None:
    """Whatever the strides; and runs of one transfer go forwards, in as many loops as a DMA
    controller's program has room for."""
    while np.prod([extent for extent, _ in axes]) > 20000:
        axes.pop()
    want = np.zeros(1, np.int64)
    for extent, stride in axes:
        want = (want[:, None] + stride * np.arange(extent)).reshape(-1)
    got = np.full(len(want), -1)
    for one in runs_of_tile(axes):
        assert one.inner == 1 or one.stride_inner >= one.run
        assert one.outer == 1 or one.stride_outer >= one.inner * one.stride_inner
        assert one.outer * -(-one.inner // 256) <= MOST_LOOPS
        outside = (
            one.outside + one.stride_outer * np.arange(one.outer)[:, None, None]
            + one.stride_inner * np.arange(one.inner)[:, None] + np.arange(one.run)
        ).reshape(-1)  # fmt: skip
        got[one.on_chip : one.on_chip + len(outside)] = outside
    np.testing.assert_array_equal(got, want)


def test_the_order_on_chip_is_the_one_that_takes_less_time() -> None:
    """A transpose of few channels loads them as they lie, one of few pixels stores them so."""
    machine = load_machine("setup-a")
    for channels, pixels, first in ((3, 800, 1), (800, 3, 0)):
        piece = Piece((Axis(pixels, 1, channels), Axis(channels, pixels, 1)))
        found = move_tiles(MoveShape((piece,), 4), machine)  # type: ignore[arg-type]
        assert not isinstance(found, Infeasible) and found.pieces[0].order[0] == first


LARGE = (1100, 6, 4)
TRANSPOSE = Transpose("l", ("x",), ("y",), LARGE, (2, 0, 1))
TWICE = ResizeNearest(
    "l", ("x",), ("y",), LARGE, *(tuple(at // 2 for at in range(2 * n)) for n in LARGE[1:])
)


@pytest.mark.parametrize("name", ["setup-a", "zynq-7020"])
@pytest.mark.parametrize("layer", [TRANSPOSE, TWICE], ids=["transpose", "resize"])
def test_large_maps(layer: Layer, name: str) -> None:
    """More rows of runs than a DMA controller's program has room for, and more than one tile."""
    (source,), target, pieces = operator_of(layer).moved(layer)
    fixed = graph_of(FixedMove("l", ("x",), ("y",), tuple(pieces), "move", (source, target)), 1)
    inputs = random_tensors(fixed, 1)
    (found,) = Session(compile_fixed(fixed, load_machine(name))).run_fixed([inputs["x"][None]])
    (want,) = operator_of(layer).run_float(layer, [inputs["x"][None]], [target])
    np.testing.assert_array_equal(found, want)
