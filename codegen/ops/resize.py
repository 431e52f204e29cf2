"""Resizing images: which elements each row and column is made of, and the nearest one as a layer.

Rows and columns are resized independently. *Nearest* moves elements (`ResizeNearest`). *Linear* and
*cubic* interpolation are two matrices, one for rows and one for columns (`Interpolation`). They are
no layer of their own: along an axis they are a 1x1 convolution of the image with that axis in
front. Fixed point thus means: the sum along one axis, exactly, requantized, then along the other
axis, exactly, requantized; the matrices are weights as any others.

Coordinates are computed in float32, as TVM computes them (topi/image/resize.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from math import prod

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import Layer
from tvm_npu.codegen.graph.tensors import FloatArray, Shape
from tvm_npu.codegen.ops.move import Axis, MovingOperator, Piece

TRANSFORMATIONS = (
    "half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn",
)  # fmt: skip
"""How ONNX calls the ways from a row of the output to a place between rows of the input."""
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
EPSILON = np.float32(1e-5)
LONGEST_PERIOD = 64
Rows = NDArray[np.int64]


def places(extent: int, out: int, transformation: str) -> FloatArray:
    """Where each of ``out`` rows lies among ``extent`` ones, [out]."""
    x = np.arange(out, dtype=np.float32)
    scale, half = np.float32(extent) / np.float32(out), np.float32(0.5)
    if transformation == "half_pixel" or (transformation == "pytorch_half_pixel" and out > 1):
        return (x + half) * scale - half
    if transformation == "pytorch_half_pixel":
        return np.zeros(out, np.float32)
    if transformation == "align_corners":
        return np.float32(extent - 1) / np.float32(max(out - 1, 1)) * x
    if transformation == "tf_half_pixel_for_nn":
        return (x + half) * scale
    if transformation != "asymmetric":
        raise GraphError(f"a resize by {transformation!r}; known are {', '.join(TRANSFORMATIONS)}")
    return scale * x


def nearest(extent: int, out: int, transformation: str, rounding: str) -> tuple[int, ...]:
    """The row of the input that each row of the output is."""
    if transformation == "asymmetric" and out % extent == 0:
        return tuple(int(one) for one in np.arange(out) // (out // extent))
    x, half = places(extent, out, transformation), np.float32(0.5)
    if not rounding:
        rounding = "round" if transformation == "align_corners" else "floor"
    if rounding == "round_prefer_floor":
        found = np.ceil(x - half)
    elif rounding in ("round", "round_prefer_ceil"):
        found = np.floor(x + half)
    elif rounding == "floor":
        found = np.floor(x + EPSILON)
    elif rounding == "ceil":
        found = np.ceil(x - EPSILON)
    else:
        raise GraphError(f"a resize that rounds by {rounding!r}; known are {', '.join(ROUNDINGS)}")
    return tuple(int(one) for one in np.clip(found, 0, extent - 1))


@dataclass(frozen=True, eq=False)
class Interpolation:
    """The matrix [out, extent] of linear or cubic interpolation along an axis: row r is the sum of
    ``weights[:, r]`` at the columns ``at[:, r]``, both [taps, out]. At the border taps share a
    column, where their weights add up."""

    at: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def out(self) -> int:
        return int(self.at.shape[1])

    def part(self, begin: int, end: int) -> tuple[int, FloatArray]:
        """Rows ``begin`` to ``end``: their first column that is not 0, and all to the last one.
        The whole matrix may be larger than memory."""
        at = self.at[:, begin:end]
        first = int(at.min())
        matrix = np.zeros((end - begin, int(at.max()) + 1 - first))
        np.add.at(matrix, (np.arange(end - begin), at - first), self.weights[:, begin:end])
        found = matrix.astype(np.float32)
        used = np.flatnonzero(found.any(axis=0))
        return first + int(used[0]), found[:, used[0] : used[-1] + 1]


def interpolation(
    extent: int, out: int, transformation: str, method: str, alpha: float = -0.5
) -> Interpolation:
    """Outside of the image its border goes on. ``alpha`` is the cubic spline's coefficient."""
    x = places(extent, out, transformation).astype(np.float64)
    floor = np.floor(x)
    t = x - floor
    taps: list[tuple[int, NDArray[np.float64]]] = [(0, 1.0 - t), (1, t)]
    if method == "cubic":
        t2, t3 = t * t, t * t * t
        taps = [
            (-1, alpha * (t3 - 2 * t2 + t)),
            (0, (alpha + 2) * t3 - (3 + alpha) * t2 + 1),
            (1, -(alpha + 2) * t3 + (3 + 2 * alpha) * t2 - alpha * t),
            (2, -alpha * t3 + alpha * t2),
        ]
    at = [np.clip(floor.astype(np.int64) + offset, 0, extent - 1) for offset, _ in taps]
    return Interpolation(np.stack(at), np.stack([weight for _, weight in taps]))


@dataclass(frozen=True)
class Run:
    """Some of the rows that a sequence of indices picks: for all values of ``axes`` (extent,
    indices further in the source, rows further in the target), row ``target`` + ... of the target
    is row ``source`` + ... of the source."""

    source: int
    target: int
    axes: tuple[tuple[int, int, int], ...]


@lru_cache(maxsize=64)
def runs(indices: tuple[int, ...], most: int | None = None) -> tuple[Run, ...]:
    """``indices`` (which row of the source each row of the target is) as few runs: a pattern that
    repeats itself, and what is left at both ends. Where these are more than ``most``, some of them,
    ``most`` + 1."""
    made = None if most is None else most + 1
    rows = np.asarray(indices, np.int64)
    best: tuple[Run, ...] | None = None
    as_they_are: tuple[Run, ...] | None = None
    for period in range(1, min(LONGEST_PERIOD, len(rows)) + 1):
        begin, count, further = _repeated(rows, period)
        if count >= 2:
            found = tuple(islice(_periodic(rows, begin, count, (period, further)), made))
        else:
            as_they_are = found = as_they_are or tuple(islice(_steps(rows, 0, (1, 0, 0)), made))
        if best is None or len(found) < len(best):
            best = found
    return best or ()


def _periodic(rows: Rows, begin: int, count: int, step: tuple[int, int]) -> Iterator[Run]:
    """What is before a pattern, the pattern ``count`` times, each time (rows, indices) further,
    and what is behind it."""
    period, further = step
    end = begin + count * period
    yield from _steps(rows[:begin], 0, (1, 0, 0))
    yield from _steps(rows[begin : begin + period], begin, (count, further, period))
    yield from _steps(rows[end:], end, (1, 0, 0))


def _repeated(rows: Rows, period: int) -> tuple[int, int, int]:
    """(begin, count, step): the longest part in which all go on by ``step`` after ``period``, and
    how often it has ``period`` rows."""
    further = rows[period:] - rows[:-period]
    if not len(further):
        return 0, 0, 0
    bounds = _bounds(further)
    longest = int(np.argmax(np.diff(bounds)))
    begin, end = int(bounds[longest]), int(bounds[longest + 1])
    return begin, (end + period - begin) // period, int(further[begin])


def _steps(rows: Rows, target: int, outer: tuple[int, int, int]) -> Iterator[Run]:
    """Parts of ``rows`` that go on by one step each, all of them repeated by ``outer``."""
    begin = 0
    steps = np.diff(rows)
    for bound in _bounds(steps)[1:].tolist():
        if bound > begin:  # else the step to the part before took the only row
            yield Run(
                int(rows[begin]), target + begin, (outer, (bound + 1 - begin, int(steps[begin]), 1))
            )
            begin = bound + 1
    if begin < len(rows):
        yield Run(int(rows[begin]), target + begin, (outer, (1, 0, 1)))


def _bounds(values: Rows) -> Rows:
    """Where parts of equal values begin, and the end."""
    changes = np.flatnonzero(np.diff(values)) + 1
    return np.concatenate([[0], changes, [len(values)]])


@dataclass(frozen=True, eq=False)
class ResizeNearest(Layer):
    """Row r of the output is row ``rows[r]`` of the input, whose shape (C, R, C') is ``shape``;
    columns likewise."""

    shape: Shape
    rows: tuple[int, ...]
    columns: tuple[int, ...]


class ResizeNearestOperator(MovingOperator[ResizeNearest]):
    layer = ResizeNearest
    kind = "resize"

    def moved(self, layer: ResizeNearest) -> tuple[tuple[Shape, ...], Shape, Iterable[Piece]]:
        channels, rows, columns = layer.shape
        shape = (channels, len(layer.rows), len(layer.columns))
        parts = product(runs(layer.rows), runs(layer.columns))
        pieces = [_piece(down, across, layer.shape, shape) for down, across in parts]
        return (layer.shape,), shape, pieces


def _piece(down: Run, across: Run, source: Shape, target: Shape) -> Piece:
    axes = [Axis(source[0], prod(source[1:]), prod(target[1:]))]
    axes += [Axis(n, step * source[2], far * target[2]) for n, step, far in down.axes]
    axes += [Axis(n, step, far) for n, step, far in across.axes]
    return Piece(
        tuple(axes), down.source * source[2] + across.source,
        down.target * target[2] + across.target,
    )  # fmt: skip
