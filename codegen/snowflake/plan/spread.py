"""Tiles of layers that multiply by no weights: pools, elementwise layers, paddings, reorderings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import (
    LANES,
    LONGEST_TRACE,
    MEMORY_UNIT_BYTES,
    VMACS,
    WORD_BYTES,
)
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

UNIT = MEMORY_UNIT_BYTES
GROUP = VMACS * LANES
"""Planes that mode lane takes at a time."""


@dataclass(frozen=True)
class PoolShape:
    """A pool's window along rows and columns, and its planes."""

    rows: Axis
    columns: Axis
    planes: int
    is_max: bool


@dataclass(frozen=True)
class PoolTiles:
    """``tile_planes`` planes, ``tile_r`` rows of all columns of results (``tile_c`` of them where a
    row does not fit); rows or planes of a tile are dealt to the CUs."""

    tile_planes: int
    tile_r: int
    tile_c: int
    spreads: Literal["rows", "planes"]
    places: int
    """Tiles that the MBufs hold at a time."""


@dataclass(frozen=True)
class PoolRoom:
    """Words of a CU's part of a tile: input with its border, what is kept between the two
    directions of a maximum, results."""

    maps: int
    between: int
    out: int

    @property
    def words(self) -> int:
        return self.maps + self.between + self.out


def pool_room(shape: PoolShape, tiles: PoolTiles, cus: int) -> PoolRoom:
    """The largest part."""
    rows, planes = tiles.tile_r, tiles.tile_planes
    if tiles.spreads == "rows":
        rows = -(-rows // cus)
    else:
        planes = -(-planes // cus)
    wide = shape.columns.span(tiles.tile_c)
    between = rows * wide * planes if shape.is_max else 0
    return PoolRoom(
        line(shape.rows.span(rows) * wide * planes), line(between),
        line(rows * tiles.tile_c * planes),
    )  # fmt: skip


def pool_tiles(shape: PoolShape, machine: SnowflakeMachine) -> PoolTiles | Infeasible:
    """The largest tiles of which two fit, else one: all planes and as many rows as fit, then fewer
    planes, then fewer columns."""
    for axis, name in ((shape.rows, "row"), (shape.columns, "column")):
        if not axis.covers:
            return Infeasible(
                "windows", 0, 0, f"a window of the pool covers no {name} of its input",
                "leave the layer to the CPU",
            )  # fmt: skip
    cus = machine.clusters.cus
    spreads: Literal["rows", "planes"] = "rows" if shape.rows.out >= cus else "planes"
    least = PoolTiles(1, 1, 1, "rows", 1)
    whole = PoolTiles(shape.planes, shape.rows.out, shape.columns.out, spreads, 2)
    for places in (2, 1):
        found = _largest(shape, replace(whole, places=places), machine)
        if found is not None:
            return found
    needed = WORD_BYTES * pool_room(shape, least, cus).words
    return Infeasible(
        "MBuf", needed, machine.clusters.mbuf_bytes, "one window of one plane does not fit",
        "use a smaller window, or a machine with larger buffers",
    )  # fmt: skip


def _largest(shape: PoolShape, whole: PoolTiles, machine: SnowflakeMachine) -> PoolTiles | None:
    """Of the tiles that fit those that load the least, borders and parts of memory units counted;
    of these the largest."""
    cus = machine.clusters.cus
    room = machine.mbuf_words // whole.places
    found: list[tuple[float, int, PoolTiles]] = []
    for planes in _planes(shape.planes, cus if whole.spreads == "planes" else 1):
        share = planes if whole.spreads == "rows" else -(-planes // cus)
        if share > LONGEST_TRACE:
            continue
        for columns in _halves(shape.columns.out):
            for rows in _halves(shape.rows.out):
                if whole.spreads == "rows" and rows < min(cus, shape.rows.out):
                    break
                tiles = replace(whole, tile_planes=planes, tile_r=rows, tile_c=columns)
                if pool_room(shape, tiles, cus).words <= room:
                    found.append((_loaded(shape, tiles, cus, share), -rows * columns, tiles))
                    break
    if found:
        return min(found, key=lambda one: one[:2])[2]
    smallest = replace(whole, tile_planes=1, tile_r=1, tile_c=1, spreads="rows")
    return smallest if pool_room(shape, smallest, cus).words <= room else None


def _loaded(shape: PoolShape, tiles: PoolTiles, cus: int, share: int) -> float:
    """What is loaded, as a multiple of the input."""
    rows = -(-tiles.tile_r // cus) if tiles.spreads == "rows" else tiles.tile_r
    down = shape.rows.span(rows) / (rows * shape.rows.stride)
    across = shape.columns.span(tiles.tile_c) / (tiles.tile_c * shape.columns.stride)
    whole = share == shape.planes and tiles.tile_c == shape.columns.out
    size = WORD_BYTES * share
    units = 1.0 if whole or share == shape.planes else -(-size // UNIT) * UNIT / size
    return max(1.0, down) * max(1.0, across) * units


def _halves(total: int) -> list[int]:
    sizes = [total]
    parts = 2
    while sizes[-1] > 1:
        size = -(-total // parts)
        if size < sizes[-1]:
            sizes.append(size)
        parts = parts + 1 if parts < 8 else parts * 2
    return sizes


def _planes(total: int, cus: int) -> list[int]:
    """All, then whole groups for every CU, then less."""
    unit = GROUP * cus
    sizes = [total]
    sizes += [size for size in range(total // unit * unit, 0, -unit) if size < total]
    sizes += [size for size in (32 * cus, 16 * cus, 8, 4, 2, 1) if size < sizes[-1]]
    return sizes


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
