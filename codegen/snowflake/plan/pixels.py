"""Pieces of moves (`codegen.ops.move`) on tensors whose channels lie beside each other: every axis
goes on by so many planes and so many pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tvm_npu.codegen.ops.move import Axis, Piece


class At(NamedTuple):
    """Pixels and planes further on."""

    pixels: int
    planes: int

    def words(self, pitch: int) -> int:
        """Where from one pixel to the next it is ``pitch`` words."""
        return self.pixels * pitch + self.planes


@dataclass(frozen=True)
class PixelAxis:
    """As `Axis`."""

    extent: int
    source: At
    target: At

    @property
    def is_repeat(self) -> bool:
        """All of its indices show the same element of the source."""
        return self.source == (0, 0)


@dataclass(frozen=True)
class PixelPiece:
    """As `Piece`; axes with the longest ways in the target come first."""

    axes: tuple[PixelAxis, ...]
    source_at: At
    target_at: At
    source: int


def pixel_pieces(piece: Piece, source: int, target: int) -> Iterator[PixelPiece]:
    """``piece``, cut so that no axis goes from the last pixel of a plane to the next plane;
    ``source`` and ``target`` are the pixels of a plane."""
    waiting = [piece]
    while waiting:
        one = waiting.pop()
        cut = _cut(one, one.source_offset, [axis.source for axis in one.axes], source) or _cut(
            one, one.target_offset, [axis.target for axis in one.axes], target
        )
        if cut:
            waiting += reversed(cut)
            continue
        axes = [
            PixelAxis(axis.extent, _steps(axis.source, source), _steps(axis.target, target))
            for axis in one.axes
        ]
        yield PixelPiece(
            tuple(sorted(axes, key=lambda axis: axis.target, reverse=True)),
            _place(one.source_offset, source), _place(one.target_offset, target), one.source,
        )  # fmt: skip


def _place(element: int, pixels: int) -> At:
    plane, pixel = divmod(element, pixels)
    return At(pixel, plane)


def _steps(step: int, pixels: int) -> At:
    """Both in the step's direction."""
    planes, rest = divmod(abs(step), pixels)
    return At(rest, planes) if step >= 0 else At(-rest, -planes)


def _cut(piece: Piece, offset: int, steps: Sequence[int], pixels: int) -> list[Piece]:
    """Parts of ``piece``, whose axes go on by ``steps`` from ``offset`` in a tensor with
    ``pixels`` in a plane; nothing where all stays inside of planes."""
    first = offset % pixels
    along = [_steps(step, pixels).pixels for step in steps]
    ways = [(axis.extent - 1) * way for axis, way in zip(piece.axes, along, strict=True)]
    low = first + sum(min(0, way) for way in ways)
    high = first + sum(max(0, way) for way in ways)
    if low >= 0 and high < pixels:
        return []
    longest = max(range(len(ways)), key=lambda number: abs(ways[number]))
    extent, way = piece.axes[longest].extent, along[longest]
    plane = pixels // abs(way) if pixels % way == 0 else 0
    if 0 < plane < extent and extent % plane == 0:
        return [_split(piece, longest, plane)]
    inside = (pixels - 1 - first) // way + 1 if way > 0 else first // -way + 1
    if first == 0 < way and plane:
        inside = extent // plane * plane
    if not 0 < inside < extent:
        inside = extent // 2
    return _halves(piece, longest, inside)


def _split(piece: Piece, number: int, inner: int) -> Piece:
    """An axis as two, the second with ``inner`` indices."""
    axis = piece.axes[number]
    outer = Axis(axis.extent // inner, axis.source * inner, axis.target * inner)
    two = (outer, replace(axis, extent=inner))
    return replace(piece, axes=(*piece.axes[:number], *two, *piece.axes[number + 1 :]))


def _halves(piece: Piece, number: int, first: int) -> list[Piece]:
    """The first indices of an axis and the others."""
    axis = piece.axes[number]

    def part(begin: int, count: int) -> Piece:
        mine = replace(axis, extent=count)
        return replace(
            piece, axes=(*piece.axes[:number], mine, *piece.axes[number + 1 :]),
            source_offset=piece.source_offset + begin * axis.source,
            target_offset=piece.target_offset + begin * axis.target,
        )  # fmt: skip

    return [part(0, first), part(first, axis.extent - first)]
