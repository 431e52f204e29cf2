"""Boxes and grids of tensors as runs of bytes: as few contiguous runs as there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.tiles.emit.commands import Runs
from tvm_npu.sim.tiles.isa import TileMemory


@dataclass(frozen=True)
class Placed:
    """A tensor [channels][rows][columns] at a byte of a segment, ``item_bytes`` each number."""

    segment: TileMemory
    address: int
    shape: tuple[int, int, int]
    item_bytes: int

    def box(
        self, channels: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
    ) -> Runs:
        """The runs of a box inside the tensor, in the order in which a tile lies packed."""
        _, height, width = self.shape
        size = self.item_bytes
        offset = (channels[0] * height + rows[0]) * width + columns[0]
        begin = self.address + offset * size
        plane = height * width * size
        if columns[1] == width and (rows[1] == height or channels[1] == 1):
            return Runs(self.segment, begin, channels[1] * rows[1] * width * size)
        if columns[1] == width or rows[1] == 1:
            run = rows[1] * columns[1] * size
            return _row(self.segment, begin, run, channels[1], plane)
        if channels[1] == 1 or height == rows[1]:
            # Rows of one channel follow those of the channel before at the same distance.
            return _row(
                self.segment, begin, columns[1] * size, channels[1] * rows[1], width * size
            )
        return Runs(
            self.segment, begin, columns[1] * size, rows[1], width * size, channels[1], plane
        )

    def points(
        self, channel: int, rows: tuple[int, int], columns: tuple[int, int], apart: tuple[int, int]
    ) -> Runs:
        """The runs of every element of a channel that lies on a grid: ``rows`` and ``columns`` of
        those that are ``apart`` rows and columns from each other."""
        _, height, width = self.shape
        size = self.item_bytes
        down, across = apart[0] * width * size, apart[1] * size
        begin = self.address + channel * height * width * size
        begin += rows[0] * down + columns[0] * across
        if columns[1] == 1:
            return _row(self.segment, begin, size, rows[1], down)
        if rows[1] == 1:
            return _row(self.segment, begin, size, columns[1], across)
        return Runs(self.segment, begin, size, columns[1], across, rows[1], down)


def _row(segment: TileMemory, begin: int, run_bytes: int, count: int, stride: int) -> Runs:
    if count == 1:
        return Runs(segment, begin, run_bytes)
    return Runs(segment, begin, run_bytes, count, stride)


def parts(total: tuple[int, int], size: int) -> Iterator[tuple[int, int]]:
    """(begin, count) of the runs of ``size`` that (begin, count) is cut into."""
    begin, count = total
    for offset in range(0, count, size):
        yield begin + offset, min(size, count - offset)
