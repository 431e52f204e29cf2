"""Operators that move elements, against NumPy; patterns of indices; interpolation matrices."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph import Layer
from tvm_npu.codegen.ops import Join, ResizeNearest, StridedSlice, Transpose, operator_of, resize
from tvm_npu.codegen.ops.move import Axis, FixedMove, Piece, joined, move
from tvm_npu.codegen.ops.resize import (
    ROUNDINGS,
    TRANSFORMATIONS,
    Run,
    interpolation,
    nearest,
    places,
    runs,
)

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def pieces_of(layer: Layer) -> list[Piece]:
    return list(operator_of(layer).moved(layer)[2])  # type: ignore[attr-defined]


def moved(layer: Layer, *arrays: np.ndarray) -> np.ndarray:
    operator = operator_of(layer)
    declared = operator.shapes(layer, [one.shape[1:] for one in arrays], [()])
    (found,) = operator.run_float(layer, arrays, declared)
    (again,) = [
        move(arrays, [piece.normalized() for piece in pieces_of(layer)], declared[0])
    ]
    np.testing.assert_array_equal(found, again)
    assert sum(piece.elements for piece in pieces_of(layer)) == prod(declared[0])
    return found


def walked(axes: list[tuple[int, int]]) -> list[int]:
    """The elements of all indices; those of the last axis change first."""
    return [
        sum(index * stride for index, (_, stride) in zip(indices, axes, strict=True))
        for indices in product(*(range(extent) for extent, _ in axes))
    ]


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([-3, -1, 0, 1, 2, 3, 4, 6, 12]))))
@example([(2, 12), (3, 4), (1, 7), (4, 1)])
@settings(max_examples=examples(60), deadline=None)
def test_joined_axes_walk_the_same_elements(axes: list[tuple[int, int]]) -> None:
    axes = axes[-5:]
    found = joined(axes)
    assert walked(found) == walked(axes)
    assert all(extent > 1 for extent, _ in found)
    for (_, outer), (extent, stride) in pairwise(found):
        assert outer != extent * stride


def counted(*shape: int) -> np.ndarray:
    return np.arange(2 * prod(shape)).reshape(2, *shape)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_transpose(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    x = counted(*shape)
    expected = x.transpose(0, *(axis + 1 for axis in axes))
    np.testing.assert_array_equal(moved(Transpose("l", ("x",), ("y",), shape, axes), x), expected)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_slices_in_both_directions(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    picks = []
    for extent in shape:
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, extent - 1)] * 2)))
        step = data.draw(st.integers(1, 3))
        picks.append(range(begin, end + 1, step))
        if data.draw(st.booleans()):
            picks[-1] = picks[-1][::-1]
    begins, steps, extents = (
        tuple(pick[0] for pick in picks), tuple(pick.step for pick in picks),
        tuple(map(len, picks)),
    )  # fmt: skip
    x = counted(*shape)
    expected = x[np.ix_(range(2), *picks)]
    layer = StridedSlice("l", ("x",), ("y",), shape, begins, steps, extents)
    np.testing.assert_array_equal(moved(layer, x), expected)


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_join(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    axis = data.draw(st.integers(0, len(shape) - 1))
    extents = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    parts = tuple((*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents)
    arrays = [counted(*part) + 1000 * number for number, part in enumerate(parts)]
    names = tuple(f"x{number}" for number in range(len(parts)))
    found = moved(Join("l", names, ("y",), parts, axis), *arrays)
    np.testing.assert_array_equal(found, np.concatenate(arrays, axis + 1))


@given(st.integers(1, 40), st.integers(1, 90), st.data())
@settings(max_examples=examples(80), deadline=None)
def test_runs_are_the_indices(extent: int, out: int, data: st.DataObject) -> None:
    indices = nearest(
        extent, out, data.draw(st.sampled_from(TRANSFORMATIONS)),
        data.draw(st.sampled_from(ROUNDINGS)),
    )  # fmt: skip
    x = counted(2, extent, 3)
    layer = ResizeNearest("l", ("x",), ("y",), (2, extent, 3), indices, (0, 0, 1, 1, 2, 2))
    expected = x[:, :, indices][..., [0, 0, 1, 1, 2, 2]]
    np.testing.assert_array_equal(moved(layer, x), expected)


@pytest.mark.parametrize(("extent", "out", "count"), [(26, 52, 1), (10, 15, 2), (32, 8, 1)])
def test_patterns_that_repeat_are_few(extent: int, out: int, count: int) -> None:
    assert len(runs(nearest(extent, out, "asymmetric", "floor"))) == count


def test_long_axes_are_walked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as there are periods, rows of tens of thousands took seconds."""
    made = []
    monkeypatch.setattr(resize, "Run", lambda *given: made.append(given) or Run(*given))
    runs.cache_clear()
    indices = nearest(9973, 2 * 9973, "asymmetric", "")
    assert len(runs(indices)) == 1
    assert len(made) < 3 * len(indices)
    assert runs(indices) is runs(nearest(9973, 2 * 9973, "asymmetric", ""))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 40))
def test_runs_are_made_up_to_one_more_than_asked_for(indices: list[int], most: int) -> None:
    whole = runs(tuple(indices))
    found = runs(tuple(indices), most)
    assert found == whole if len(whole) <= most else len(found) == most + 1


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_matrices_reproduce_a_ramp_inside_and_constants_everywhere(
    method: str, transformation: str
) -> None:
    found = interpolation(9, 14, transformation, method, -0.75 if method == "linear" else -0.5)
    matrix = np.zeros((found.out, 9))
    for begin, end in ((0, 5), (5, 14)):
        column, part = found.part(begin, end)
        assert part[:, 0].any() and part[:, -1].any()
        matrix[begin:end, column : column + part.shape[1]] = part
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-6)
    x = places(9, 14, transformation)
    inside = (x >= 1) & (x <= 7)
    assert inside.sum() > 5
    np.testing.assert_allclose((matrix @ np.arange(9))[inside], x[inside], atol=1e-4)


def test_a_matrix_of_a_long_axis_takes_memory_for_a_part_alone() -> None:
    found = interpolation(1 << 20, 1 << 21, "half_pixel", "linear")
    column, part = found.part(1 << 20, (1 << 20) + 4)
    assert column == (1 << 19) - 1
    np.testing.assert_array_equal(
        part, [[0.25, 0.75, 0, 0], [0, 0.75, 0.25, 0], [0, 0.25, 0.75, 0], [0, 0, 0.75, 0.25]]
    )


@pytest.mark.parametrize(
    "layer",
    [
        Transpose("l", ("x",), ("y",), (2, 3), (0, 0)),
        StridedSlice("l", ("x",), ("y",), (2, 3), (0, 1), (1, 2), (2, 2)),
        Join("l", ("x", "r"), ("y",), ((2, 3), (3, 3)), 1),
    ],
)
def test_layers_that_fit_no_shape(layer: Layer) -> None:
    with pytest.raises(GraphError, match="layer 'l'"):
        operator_of(layer).shapes(layer, [(2, 3)], [()])


def test_what_a_move_was_not_made_for() -> None:
    layer = FixedMove("l", ("x",), ("y",), (), "transpose", ((2, 3), (3, 2)))
    with pytest.raises(GraphError, match=r"moves elements of \[\(2, 3\)\]"):
        operator_of(layer).shapes(layer, [(3, 2)], [()])
    outside = Piece((Axis(3, -1, 1),), source_offset=1)
    with pytest.raises(GraphError, match="elements -1 to 1 of 6"):
        move([counted(6)], [outside], (3,))


def test_unknown_ways_to_resize() -> None:
    with pytest.raises(GraphError, match="'elsewhere'; known are half_pixel"):
        places(4, 8, "elsewhere")
    with pytest.raises(GraphError, match="'up'; known are"):
        nearest(4, 9, "half_pixel", "up")
