"""Boxes of row-major tensors in DDR: what of them is contiguous, and how it is aligned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.errors import CodegenError

Direction = Literal["load", "store"]
"""load: DDR to on-chip memory; store: back."""


class TransferError(CodegenError, ValueError):
    """A box or a program that cannot be: names what, its value and the limit."""


@dataclass(frozen=True)
class Tensor3d:
    """A row-major tensor [channels, rows, columns] at byte `address` of DDR."""

    address: int
    channels: int
    rows: int
    columns: int
    element_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.channels * self.rows * self.columns * self.element_bytes


@dataclass(frozen=True)
class Box:
    """A part of a tensor: its first channel, row and column, and how many of each."""

    channel: int
    row: int
    column: int
    channels: int
    rows: int
    columns: int

    @property
    def elements(self) -> int:
        return self.channels * self.rows * self.columns


@dataclass(frozen=True)
class Tile:
    """One transfer of a program: `box` of `tensor` and the tile at byte `on_chip_address`."""

    tensor: Tensor3d
    box: Box
    on_chip_address: int
    direction: Direction = "load"


@dataclass(frozen=True)
class RunShape:
    """Bytes in DDR: ``outer`` rows, ``outer_stride`` bytes apart, of ``inner`` runs of
    ``run_bytes``, ``inner_stride`` apart. Strides of one row or run do not count."""

    run_bytes: int
    inner: int = 1
    inner_stride: int = 0
    outer: int = 1
    outer_stride: int = 0


@dataclass(frozen=True)
class Runs:
    """The box in DDR: [channels, rows] runs of `run_bytes`, with the strides between them."""

    address: int
    channels: int
    rows: int
    run_bytes: int
    channel_stride: int
    row_stride: int


def address_jumps(tensor: Tensor3d, box: Box) -> int:
    """Breaks in the DDR addresses of a box, s of the linear cost model: one for each contiguous
    run, where rows and channels that follow each other without a gap are one run."""
    runs = runs_of(tensor, box)
    return runs.channels * runs.rows


def check_tile(tile: Tile) -> None:
    tensor, box = tile.tensor, tile.box
    if tensor.element_bytes < 1 or tensor.address < 0 or tile.on_chip_address < 0:
        raise TransferError(
            f"tensor at {tensor.address} with elements of {tensor.element_bytes} bytes, tile at "
            f"{tile.on_chip_address}; addresses are at least 0, elements at least 1"
        )
    for name, begin, count, size in (
        ("channels", box.channel, box.channels, tensor.channels),
        ("rows", box.row, box.rows, tensor.rows),
        ("columns", box.column, box.columns, tensor.columns),
    ):
        if begin < 0 or count < 1 or begin + count > size:
            raise TransferError(
                f"box {name} {begin} to {begin + count} leave the tensor's 0 to {size}"
            )


def runs_of(tensor: Tensor3d, box: Box) -> Runs:
    row_stride = tensor.columns * tensor.element_bytes
    channel_stride = tensor.rows * row_stride
    address = (
        tensor.address
        + box.channel * channel_stride
        + box.row * row_stride
        + box.column * tensor.element_bytes
    )
    channels, rows, run_bytes = box.channels, box.rows, box.columns * tensor.element_bytes
    if run_bytes == row_stride or rows == 1:
        rows, run_bytes, row_stride = 1, rows * run_bytes, channel_stride
        if run_bytes == channel_stride or channels == 1:
            channels, run_bytes = 1, channels * run_bytes
        else:
            # One run a channel: the channels are what the row loop walks over.
            channels, rows, row_stride = 1, channels, channel_stride
    return Runs(address, channels, rows, run_bytes, channel_stride, row_stride)


def beat_bytes_of(runs: Runs, on_chip_address: int, bus_bytes: int) -> int:
    """The widest beat to which all bursts of a tile are aligned."""
    aligned = math.gcd(bus_bytes, runs.address, on_chip_address, runs.run_bytes)
    if runs.rows > 1:
        aligned = math.gcd(aligned, runs.row_stride)
    if runs.channels > 1:
        aligned = math.gcd(aligned, runs.channel_stride)
    return aligned & -aligned
