"""Layers that move elements, of kinds and shapes that nobody chose."""

from __future__ import annotations

from hypothesis import strategies as st

from tvm_npu.codegen.graph import Layer, Shape
from tvm_npu.codegen.ops import FixedMove, Join, ResizeNearest, StridedSlice, Transpose, operator_of


@st.composite
def moves(draw: st.DrawFn, most: int = 12) -> FixedMove:
    """A transpose, slice, concatenation or resize; axes have up to ``most`` elements, the first
    one sometimes many more."""
    kind = draw(st.sampled_from((_transpose, _slice, _join, _resize)))
    sizes = draw(st.lists(st.integers(1, most), min_size=3, max_size=3))
    if most > 5:
        sizes[0] = draw(st.sampled_from((sizes[0], 32, 40, 130)))
    layer = kind(draw, tuple(sizes))
    wanted, shape, pieces = operator_of(layer).moved(layer)
    return FixedMove(
        layer.name, layer.inputs, layer.outputs, tuple(piece.normalized() for piece in pieces),
        "move", (*wanted, shape),
    )  # fmt: skip


@st.composite
def factored(draw: st.DrawFn, size: int) -> Shape:
    """(planes, rows, columns) of so many elements."""
    planes = draw(st.sampled_from([one for one in range(1, size + 1) if size % one == 0]))
    rest = size // planes
    rows = draw(st.sampled_from([one for one in range(1, rest + 1) if rest % one == 0]))
    return (planes, rows, rest // rows)


def _transpose(draw: st.DrawFn, shape: Shape) -> Layer:
    """With the first axis in two."""
    first = draw(st.sampled_from([one for one in range(1, shape[0] + 1) if shape[0] % one == 0]))
    parted = (first, shape[0] // first, *shape[1:])
    axes = draw(st.permutations(range(4)))
    return Transpose("l", ("x",), ("y",), parted, tuple(axes))


def _slice(draw: st.DrawFn, shape: Shape) -> Layer:
    picks = []
    for extent in shape:
        begin, end = sorted(draw(st.tuples(*[st.integers(0, extent - 1)] * 2)))
        pick = range(begin, end + 1, draw(st.integers(1, 3)))
        picks.append(pick[::-1] if draw(st.booleans()) else pick)
    return StridedSlice(
        "l", ("x",), ("y",), shape, tuple(one[0] for one in picks),
        tuple(one.step for one in picks), tuple(map(len, picks)),
    )  # fmt: skip


def _join(draw: st.DrawFn, shape: Shape) -> Layer:
    axis = draw(st.integers(0, 2))
    extents = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    shapes = tuple((*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents)
    names = tuple(f"x{number}" for number in range(len(extents)))
    return Join("l", names, ("y",), shapes, axis)


def _resize(draw: st.DrawFn, shape: Shape) -> Layer:
    """By a factor, or any rows and columns."""

    def picked(extent: int) -> tuple[int, ...]:
        if draw(st.booleans()):
            factor = draw(st.integers(1, 3))
            return tuple(at // factor for at in range(factor * extent))
        return tuple(draw(st.lists(st.integers(0, extent - 1), min_size=1, max_size=9)))

    return ResizeNearest("l", ("x",), ("y",), shape, picked(shape[1]), picked(shape[2]))
