"""Pooling: tiles by channels, rows and columns that fill the memories."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.sizes import Sizes, even, largest, sizes
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class WindowShape:
    """A layer whose every result channel comes from one input channel through a window."""

    channels: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    """In front of rows and columns."""
    element_bytes: int

    def inside(self, axis: int, begin: int, count: int) -> tuple[int, int, int]:
        """Input rows (axis 0) or columns (1) under ``count`` result ones from ``begin``: (first
        inside the input, how many are inside, how many lie in front of it)."""
        size = (self.in_rows, self.in_columns)[axis]
        low = begin * self.stride[axis] - self.padding[axis]
        high = low + (count - 1) * self.stride[axis] + self.kernel[axis]
        first = min(max(low, 0), size)
        return first, max(min(high, size) - first, 0), max(-low, 0)

    def most_inside(self, axis: int, count: int) -> int:
        """A bound of what is inside under any ``count`` result rows or columns."""
        size = (self.in_rows, self.in_columns)[axis]
        return min((count - 1) * self.stride[axis] + self.kernel[axis], size)


@dataclass(frozen=True)
class WindowTiles:
    """Tiles of ``tile_channels`` channels, ``tile_r`` rows and ``tile_c`` columns of the result;
    edge tiles are smaller. ``buffers`` as in a LoopPlan."""

    tile_channels: int
    tile_r: int
    tile_c: int
    buffers: int


def window_tiles(shape: WindowShape, machine: TileMachine) -> WindowTiles | Infeasible:
    """All at once where that fits; else two buffers (one, if two windows do not fit) with rows as
    wide as fit, then as many rows of one channel, then as many channels, in even parts."""
    whole = (shape.channels, shape.rows, shape.columns)
    if _fit(shape, whole, sizes(machine, 1)):
        return WindowTiles(*whole, 1)
    for buffers in (2, 1):
        tiles = _with_buffers(shape, sizes(machine, buffers), buffers)
        if tiles is not None:
            return tiles
    room = sizes(machine, 1)
    needed = window_bytes(shape, (1, 1, 1))
    return Infeasible(
        "input memory",
        sum(needed) if room.shared else needed[0],
        room.first,
        f"smallest tile (one window of {shape.kernel[0]}x{shape.kernel[1]})",
        "use a smaller window, or a machine with a larger memory",
    )


def _with_buffers(shape: WindowShape, room: Sizes, buffers: int) -> WindowTiles | None:
    columns = largest(shape.columns, lambda n: _fit(shape, (1, 1, n), room))
    if columns == 0:
        return None
    columns = even(shape.columns, columns)
    rows = even(shape.rows, largest(shape.rows, lambda n: _fit(shape, (1, n, columns), room)))
    channels = 1
    if rows == shape.rows:
        channels = largest(shape.channels, lambda n: _fit(shape, (n, rows, columns), room))
    return WindowTiles(even(shape.channels, channels), rows, columns, buffers)


def window_bytes(shape: WindowShape, tile: tuple[int, int, int]) -> tuple[int, int]:
    channels, rows, columns = tile
    inside = shape.most_inside(0, rows) * shape.most_inside(1, columns)
    size = shape.element_bytes
    return channels * inside * size, channels * rows * columns * size


def _fit(shape: WindowShape, tile: tuple[int, int, int], room: Sizes) -> bool:
    first, result = window_bytes(shape, tile)
    return room.fits(first, 0, result)
