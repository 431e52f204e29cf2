"""Which part of a window lies inside of a map, for runs of results that are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain


@dataclass(frozen=True)
class Piece:
    """``count`` inputs from ``first`` on, which lie from place ``at`` of a tile on; place 0 is
    under tap 0 of the tile's first result."""

    at: int
    first: int
    count: int


@dataclass(frozen=True)
class Axis:
    """A window operation along rows or columns: ``size`` of the input, ``out`` of the result."""

    size: int
    out: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    """Padding in front of the first."""

    def first(self, at: int) -> int:
        """Input index under tap 0 of result ``at``; negative in the padding."""
        return at * self.stride - self.before

    def taps(self, at: int) -> tuple[int, int]:
        """(first tap inside of the input, how many are)."""
        begin = self.first(at)
        low = max(0, -(begin // self.dilation)) if begin < 0 else 0
        high = min(self.kernel, (self.size - 1 - begin) // self.dilation + 1)
        return low, max(0, high - low)

    def inputs(self, begin: int, count: int) -> tuple[int, int]:
        """(first input, how many) that results from ``begin`` on touch."""
        low = self.first(begin)
        high = self.first(begin + count - 1) + (self.kernel - 1) * self.dilation + 1
        first = min(max(low, 0), self.size)
        return first, max(0, min(high, self.size) - first)

    def span(self, count: int) -> int:
        """Inputs under ``count`` results, padding included."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    # --- tiles of `count` results, which hold what taps touch and nothing between ----------------

    def tap_step(self, count: int) -> int:
        """From what a tap touches to what the next one does in a tile."""
        return min(self.dilation, (count - 1) * self.stride + 1)

    def tile_span(self, count: int) -> int:
        """Inputs of a tile, padding included."""
        return (count - 1) * self.stride + (self.kernel - 1) * self.tap_step(count) + 1

    def pieces(self, begin: int, count: int, step: int) -> tuple[Piece, ...]:
        """What results from ``begin`` on touch, padding left out, for a tile whose `tap_step` is
        ``step``: one piece, or where taps are nearer in the tile than in the input one a tap."""
        if step == self.dilation:
            first, size = self.inputs(begin, count)
            return (Piece(first - self.first(begin), first, size),)
        found = []
        for tap in range(self.kernel):
            low = self.first(begin) + tap * self.dilation
            first, end = max(low, 0), min(low + (count - 1) * self.stride + 1, self.size)
            if first < end:
                found.append(Piece(tap * step + first - low, first, end - first))
        return tuple(found)

    def held(self, begin: int, count: int) -> tuple[int, int]:
        """(place of the first, how many) of the `pieces` of a tile of these results: places follow
        each other."""
        step = self.tap_step(count)
        if step == self.dilation:
            first, size = self.inputs(begin, count)
            return first - self.first(begin), size
        pieces = self.pieces(begin, count, step)
        return (pieces[0].at if pieces else 0), sum(piece.count for piece in pieces)

    def largest(self, begin: int, count: int, size: int) -> int:
        """Inputs that the largest tile holds (`held`), of ``count`` results from ``begin`` on in
        tiles of ``size``."""
        size = min(size, count)
        # The first tile behind the padding in front: where it ends in front of that at the end, no
        # other tile of as many results holds more.
        at = begin - min(0, self.first(begin) // (size * self.stride)) * size
        whole = at + size <= begin + count
        if whole and self.first(at) + self.span(size) <= self.size:
            return self.held(at, size)[1]
        return max(self.held(*part)[1] for part in cut(begin, count, size))

    @property
    def has_no_border(self) -> bool:
        """No window touches padding."""
        end = self.first(self.out - 1) + (self.kernel - 1) * self.dilation + 1
        return self.before <= 0 and end <= self.size

    @property
    def covers(self) -> bool:
        """Every window touches the input."""
        return _covers(self)


@lru_cache(maxsize=4096)
def _covers(axis: Axis) -> bool:
    before = min(axis.out, max(0, -(-axis.before // axis.stride)))
    # From here on the last tap is behind the input.
    inside = axis.size - 1 - (axis.kernel - 1) * axis.dilation + axis.before
    behind = min(axis.out, max(before, inside // axis.stride + 1))
    near = chain(range(before), range(behind, axis.out))
    return all(axis.taps(at)[1] for at in near)


Taps = tuple[int, int]


@dataclass(frozen=True)
class Run:
    """``count`` results in a row with the same taps; one entry a part (a CU), None where a part has
    no such result. ``begin`` counts from the part's first."""

    begin: int
    count: int
    taps: tuple[Taps | None, ...]
    counted: tuple[int, ...]
    """What `counts` says of each part's results; 0 without it."""


def runs(
    axis: Axis, parts: Sequence[tuple[int, int]], counts: Callable[[int], int] | None = None
) -> tuple[Run, ...]:
    """Results that are computed at the same time in several parts, each (begin, count) of the
    axis's results, cut into runs."""
    if counts is None:
        return _runs(axis, tuple(parts))
    return _counted(axis, tuple(parts), counts)


@lru_cache(maxsize=4096)
def _runs(axis: Axis, parts: tuple[tuple[int, int], ...]) -> tuple[Run, ...]:
    return _counted(axis, parts, lambda at: 0)


def _counted(
    axis: Axis, parts: tuple[tuple[int, int], ...], counts: Callable[[int], int]
) -> tuple[Run, ...]:
    found: list[Run] = []
    for local in range(max(count for _, count in parts)):
        taps = tuple(
            axis.taps(begin + local) if local < count else None for begin, count in parts
        )
        counted = tuple(
            counts(begin + local) if local < count else 0
            for begin, count in parts
        )
        if found and (found[-1].taps, found[-1].counted) == (taps, counted):
            last = found[-1]
            found[-1] = Run(last.begin, last.count + 1, taps, counted)
        else:
            found.append(Run(local, 1, taps, counted))
    return tuple(found)


def dealt(total: int, parts: int) -> tuple[tuple[int, int], ...]:
    """(begin, count) of ceil(total / parts) results each; the last parts have fewer or none."""
    size = -(-total // parts)
    return tuple(
        (min(part * size, total), max(0, min(size, total - part * size))) for part in range(parts)
    )


def even_sizes(total: int) -> Iterator[int]:
    """Sizes of tiles that cut ``total`` evenly, the largest first."""
    size = total
    while size > 1:
        yield size
        parts = -(-total // (size - 1))  # the fewest of which each is smaller
        size = -(-total // parts)
    yield 1


@lru_cache(maxsize=1 << 14)
def cut(begin: int, count: int, size: int) -> tuple[tuple[int, int], ...]:
    """``count`` results from ``begin`` in tiles of ``size``."""
    return tuple(
        (begin + at, min(size, count - at)) for at in range(0, count, size)
    )
