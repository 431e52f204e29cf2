"""Tiles of layers that compute next to nothing: elementwise layers, paddings, reorderings."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.sim.snowflake.isa import LANES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class FlatShape:
    """``pixels`` of ``planes`` words, of ``inputs`` tensors; ``is_move``: nothing is computed."""

    pixels: int
    planes: int
    inputs: int
    is_move: bool


@dataclass(frozen=True)
class FlatTiles:
    """``tile_pixels`` pixels of every input at a time, dealt to the CUs."""

    tile_pixels: int
    tile_planes: int


def flat_tiles(shape: FlatShape, machine: SnowflakeMachine) -> FlatTiles:
    """As many pixels as fit half of the MBufs; of pixels that do not fit a part of the planes."""
    cus = machine.clusters.cus
    room = machine.mbuf_words // 2 // shape.inputs // LANES * LANES - LANES
    planes = shape.planes if shape.planes <= room else room
    pixels = max(1, room // planes) * cus
    tiles = -(-shape.pixels // pixels)
    return FlatTiles(-(-shape.pixels // tiles), planes)


def flat_cycles(shape: FlatShape, machine: SnowflakeMachine) -> float:
    """The memory's, for every word once."""
    words = (shape.inputs + 1) * shape.pixels * shape.planes
    return WORD_BYTES * words / machine.memory_bytes_per_cycle


@dataclass(frozen=True)
class PadShape:
    """A result of ``rows`` x ``columns`` pixels of ``planes`` words."""

    rows: int
    columns: int
    planes: int


@dataclass(frozen=True)
class PadTiles:
    """``tile_r`` rows and ``tile_c`` columns of results at a time, in one CU's MBuf."""

    tile_r: int
    tile_c: int


def pad_tiles(shape: PadShape, machine: SnowflakeMachine) -> PadTiles | Infeasible:
    """As many rows, else columns, as fit half of an MBuf."""
    room = machine.mbuf_words // 2
    if shape.columns * shape.planes <= room:
        return PadTiles(min(shape.rows, room // (shape.columns * shape.planes)), shape.columns)
    if shape.planes <= room:
        return PadTiles(1, room // shape.planes)
    return Infeasible(
        "MBuf", 2 * WORD_BYTES * shape.planes, machine.clusters.mbuf_bytes,
        "two pixels of the padded map do not fit", "use a machine with larger buffers",
    )  # fmt: skip


@dataclass(frozen=True)
class OrderShape:
    """A tensor of ``words`` whose elements change their order in memory."""

    words: int


@dataclass(frozen=True)
class OrderTiles:
    """``tile_words`` elements at a time."""

    tile_words: int


def order_tiles(shape: OrderShape, machine: SnowflakeMachine) -> OrderTiles:
    """Half of an MBuf."""
    return OrderTiles(min(shape.words, machine.mbuf_words // 2))
