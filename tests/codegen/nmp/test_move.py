"""Layers that move elements on simulated NMPs, bit for bit, whatever the machine."""

from __future__ import annotations

from math import prod
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Layer, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.nmp.plan.move import MovePlan, MoveProblem, move_tile, plan_move
from tvm_npu.codegen.ops import Join, ResizeNearest, StridedSlice, Transpose, operator_of
from tvm_npu.codegen.ops.move import Axis, Piece
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.codegen.ops.resize import nearest
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict


def fixed_graph(
    layer: Layer, inputs: tuple[Shape, ...], element_bytes: Literal[1, 2]
) -> FixedGraph:
    operator = operator_of(layer)
    (shape,) = operator.shapes(layer, inputs, [()])
    shapes = {**dict(zip(layer.inputs, inputs, strict=True)), layer.output: shape}
    scales = q_point_scales(dict.fromkeys(shapes, 5))
    fixed = operator.quantize(layer, Numbers(scales, element_bytes))
    return FixedGraph((fixed,), shapes, layer.inputs, layer.outputs, scales, element_bytes)


def check(
    layer: Layer, inputs: tuple[Shape, ...], size: Literal[1, 2], machine: NmpMachine
) -> float:
    """Cycles."""
    fixed = fixed_graph(layer, inputs, size)
    random = np.random.default_rng(prod(inputs[0]))
    arrays = {
        name: random.integers(-128, 128, shape).astype(np.int8 if size == 1 else np.int16)
        for name, shape in zip(layer.inputs, inputs, strict=True)
    }
    expected = run_fixed(fixed, {name: values[None] for name, values in arrays.items()})
    outputs, statistics = simulate(compile_fixed(fixed, machine), arrays)
    np.testing.assert_array_equal(outputs[layer.output], expected[layer.output][0])
    return statistics.cycles


def without_ring(machine: NmpMachine) -> NmpMachine:
    return nmp_machine_from_dict({**machine.model_dump(), "ring": None})


@st.composite
def machines(draw: st.DrawFn) -> NmpMachine:
    memory = st.sampled_from((128, 512, 8192))
    machine = small_machine(
        draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 3, 8))), draw(memory),
        512, draw(memory), queue_depth=draw(st.sampled_from((1, 16))),
    )  # fmt: skip
    return machine if draw(st.booleans()) else without_ring(machine)


@st.composite
def moves(draw: st.DrawFn) -> tuple[Layer, tuple[Shape, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    kind = draw(st.sampled_from(("transpose", "slice", "join", "resize")))
    if kind == "transpose":
        axes = tuple(draw(st.permutations(range(len(shape)))))
        return Transpose("l", ("x",), ("y",), shape, axes), (shape,)
    if kind == "slice":
        steps = tuple(draw(st.sampled_from((-2, -1, 1, 2, 3, 9))) for _ in shape)
        begins = tuple(0 if step > 0 else n - 1 for step, n in zip(steps, shape, strict=True))
        counts = tuple(-(-n // abs(step)) for step, n in zip(steps, shape, strict=True))
        return StridedSlice("l", ("x",), ("y",), shape, begins, steps, counts), (shape,)
    if kind == "join":
        axis = draw(st.integers(0, len(shape) - 1))
        shapes = tuple(
            (*shape[:axis], draw(st.integers(1, 5)), *shape[axis + 1 :]) for _ in range(2)
        )
        return Join("l", ("x", "r"), ("y",), shapes, axis), shapes
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    rows, columns = (
        nearest(n, draw(st.integers(1, 12)), "half_pixel", "floor") for n in shape[1:]
    )
    return ResizeNearest("l", ("x",), ("y",), shape, rows, columns), (shape,)


@given(moves(), machines(), st.sampled_from((1, 2)))
@settings(max_examples=examples(40), deadline=None)
def test_moves_are_exact(
    case: tuple[Layer, tuple[Shape, ...]], machine: NmpMachine, size: Literal[1, 2]
) -> None:
    check(*case, size, machine)


SHUFFLE = Transpose("l", ("x",), ("y",), (2, 58, 14, 14), (1, 0, 2, 3))
TURN = Transpose("l", ("x",), ("y",), (200, 48), (1, 0))
TWICE = ResizeNearest(
    "l", ("x",), ("y",), (16, 26, 26), *[nearest(26, 52, "asymmetric", "floor")] * 2
)
SUBSAMPLE = StridedSlice("l", ("x",), ("y",), (8, 32, 32), (0, 0, 0), (1, 2, 2), (8, 16, 16))


@pytest.mark.parametrize(
    ("layer", "most"), [(SHUFFLE, 20_000), (TURN, 10_500), (TWICE, 25_000), (SUBSAMPLE, 4_200)]
)
def test_moves_cost_bytes_and_not_bursts_of_single_elements(layer: Layer, most: int) -> None:
    assert check(layer, (layer.shape,), 2, load_nmp_machine("nmp-4x8")) < most  # type: ignore[attr-defined]


def problem(layer: Layer) -> MoveProblem:
    pieces = operator_of(layer).moved(layer)[2]  # type: ignore[attr-defined]
    return MoveProblem(tuple(piece.normalized() for piece in pieces), 2)


def planned(layer: Layer, machine: NmpMachine) -> MovePlan:
    return plan_move(problem(layer), machine)


def test_elements_are_turned_on_the_ring_where_there_is_one() -> None:
    machine = load_nmp_machine("nmp-4x8")
    assert planned(TURN, machine).pieces[0].turned
    assert not planned(SHUFFLE, machine).pieces[0].turned
    alone = planned(TURN, without_ring(machine))
    assert not alone.pieces[0].turned
    assert alone.cycles > 3 * planned(TURN, machine).cycles


def test_repeated_rows_are_loaded_once() -> None:
    piece = Piece((Axis(4, 8, 32), Axis(2, 0, 16), Axis(8, 1, 2), Axis(2, 0, 1)))
    tile = move_tile(piece.axes, (4, 2, 8, 2), True)
    assert (tile.loaded, tile.stored, tile.again) == (32, 64, ((2, 16),))


def test_elements_between_those_that_are_needed_come_along() -> None:
    piece = Piece((Axis(16, 64, 16), Axis(16, 2, 1)))
    tile = move_tile(piece.axes, (4, 16), True)
    assert (tile.load.segments, tile.load.run, tile.loaded) == (4, 31, 124)
    assert move_tile(piece.axes, (4, 16), False).load.run == 1
