"""Pieces of moves by planes and pixels: each element goes where its number says."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.move_cases import factored, moves
from tests.examples import examples
from tvm_npu.codegen.ops import FixedMove
from tvm_npu.codegen.ops.move import Axis, Piece, move
from tvm_npu.codegen.snowflake.plan.pixels import At, PixelPiece, pixel_pieces
from tvm_npu.codegen.snowflake.plan.transfers import Stride, mean_units, strided


def places(piece: PixelPiece) -> list[tuple[At, At]]:
    """(in the source, in the target) of all elements."""

    def at(begin: At, steps: list[At], indices: tuple[int, ...]) -> At:
        ways = list(zip(steps, indices, strict=True))
        return At(
            begin.pixels + sum(step.pixels * index for step, index in ways),
            begin.planes + sum(step.planes * index for step, index in ways),
        )

    sources, targets = [one.source for one in piece.axes], [one.target for one in piece.axes]
    return [
        (at(piece.source_at, sources, indices), at(piece.target_at, targets, indices))
        for indices in product(*(range(one.extent) for one in piece.axes))
    ]


@settings(max_examples=examples(80), deadline=None)
@given(moves(most=5), st.data())
def test_pieces_of_any_planes(layer: FixedMove, data: st.DataObject) -> None:
    """Also where planes are no axis of the move."""
    *sizes, size = map(prod, layer.shapes)
    *planes, target_planes = (data.draw(factored(one))[0] for one in (*sizes, size))
    arrays = [np.arange(one)[None] + 10000 * number for number, one in enumerate(sizes)]
    expected = move(arrays, layer.pieces, (size,))[0].reshape(target_planes, -1)
    found = np.full(expected.shape, -1)
    for one in layer.pieces:
        planes_here = planes[one.source]
        source = arrays[one.source].reshape(planes_here, -1)
        pixels = (source.shape[1], expected.shape[1])
        for piece in pixel_pieces(one, *pixels):
            for read, written in places(piece):
                assert 0 <= read.pixels < pixels[0] and 0 <= written.pixels < pixels[1]
                assert found[written.planes, written.pixels] == -1
                found[written.planes, written.pixels] = source[read.planes, read.pixels]
    np.testing.assert_array_equal(found, expected)


def test_a_run_over_planes_is_cut_once() -> None:
    """What begins and ends inside of planes has three parts: a rest, whole planes, a rest."""
    piece = Piece((Axis(95, 1, 1),), source_offset=7)
    found = list(pixel_pieces(piece, 10, 95))
    assert [prod(axis.extent for axis in one.axes) for one in found] == [3, 90, 2]


@pytest.mark.parametrize(
    ("axes", "words", "runs", "loops"),
    [
        ([(4, 60, 30), (3, 10, 10), (10, 1, 1)], 30, (4, 60, 30), ()),
        ([(4, 50, 30), (3, 20, 10), (10, 1, 1)], 10, (4, 50, 30), ((3, 20, 10),)),
        ([(4, 1, 9), (9, 30, 1)], 1, (9, 30, 1), ((4, 1, 9),)),
        ([(5, -20, 20), (20, 1, 1)], 20, (5, -20, 20), ()),
        ([], 1, (1, 0, 0), ()),
    ],
)
def test_axes_as_transfers(
    axes: list[tuple[int, int, int]],
    words: int,
    runs: tuple[int, int, int],
    loops: tuple[tuple[int, int, int], ...],
) -> None:
    found = strided(Stride(*one) for one in axes)
    assert (found.words, tuple(found.runs), tuple(map(tuple, found.loops))) == (words, runs, loops)


@given(st.integers(1, 200), st.integers(1, 200))
def test_units_that_a_run_touches(words: int, step: int) -> None:
    touched = [
        len({word // 32 for word in range(begin, begin + words)})
        for begin in (number * step for number in range(32))
    ]
    assert mean_units(words, step) == pytest.approx(np.mean(touched))
