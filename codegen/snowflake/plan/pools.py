"""Tiles of pools, and which clusters and CUs have which part of them.

A pool takes the memory's time. Parts of the planes have no border with each other, but a part of a
pixel should fill units of the memory; parts of the rows load what lies between them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tvm_npu.codegen.plan.problem import Infeasible, share
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.plan.transfers import UNIT_WORDS, mean_units
from tvm_npu.codegen.snowflake.steps.windows import Axis, cut, dealt
from tvm_npu.sim.snowflake.isa import (
    LANES,
    LONGEST_TRACE,
    MEMORY_UNIT_BYTES,
    VMACS,
    WORD_BYTES,
)
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

GROUP = VMACS * LANES
"""Planes that mode lane takes at a time."""
ISSUED = 3.75
"""Instructions of a maximum."""
WIDEST = 3
"""Numbers of columns a tile that are tried."""
TILE = 250
"""Cycles around a tile: its stages wait for each other, its last words come, its results leave."""

Range = tuple[int, int]


@dataclass(frozen=True)
class PoolShape:
    """A pool's window along rows and columns, and its planes."""

    rows: Axis
    columns: Axis
    planes: int
    is_max: bool


@dataclass(frozen=True)
class PoolTiles:
    """``tile_planes`` planes, ``tile_r`` rows and ``tile_c`` columns of results at a time.
    ``plane_clusters`` parts of the planes go to as many groups of clusters, whose clusters have
    rows of their own; of a tile ``plane_cus`` parts of the planes to as many groups of CUs."""

    tile_planes: int
    tile_r: int
    tile_c: int
    plane_clusters: int
    plane_cus: int
    places: int
    """Tiles that the MBufs hold at a time."""
    at: int = 0
    """The first word of the MBufs that they take."""
    is_beside: bool = False
    """Its steps run between those of the layer before, which leaves these words free."""


@lru_cache(maxsize=4096)
def pieces(planes: int, parts: int) -> tuple[Range, ...]:
    """(begin, count) of ``parts`` parts of the planes, some of them empty where there are too few:
    whole units of the memory, or lines, or words."""
    unit = next((unit for unit in (UNIT_WORDS, LANES) if -(-planes // unit) >= parts), 1)
    units = -(-planes // unit)
    dealt_out = (share(units, parts, part) for part in range(parts))
    return tuple(
        (min(unit * first, planes), max(0, min(unit * count, planes - unit * first)))
        for first, count in dealt_out
    )


def pool_parts(
    shape: PoolShape, tiles: PoolTiles, clusters: int
) -> tuple[tuple[Range, Range], ...]:
    """(rows, planes) of each cluster that has something, in the order in which a convolution's
    parts of rows and filters go to clusters."""
    parts = [part for part in pieces(shape.planes, tiles.plane_clusters) if part[1]]
    rows = _row_parts(shape, tiles, clusters)
    return tuple((own, part) for own in rows for part in parts)


def _row_parts(shape: PoolShape, tiles: PoolTiles, clusters: int) -> list[Range]:
    """Of a group of clusters."""
    parts = min(shape.rows.out, clusters // tiles.plane_clusters)
    return [share(shape.rows.out, parts, part) for part in range(parts)]


def cu_parts(
    rows: Range, planes: Range, tiles: PoolTiles, cus: int
) -> tuple[tuple[Range, Range], ...]:
    """(rows, planes) of each CU of a tile."""
    parts = [(planes[0] + begin, count) for begin, count in pieces(planes[1], tiles.plane_cus)]
    own = [(rows[0] + begin, count) for begin, count in dealt(rows[1], cus // tiles.plane_cus)]
    return tuple((rows, part) for rows in own for part in parts)


def pixel_words(planes: int, tiles: PoolTiles) -> int:
    """Words of a pixel of a tile of ``planes`` in the MBufs."""
    return max(count for _, count in pieces(planes, tiles.plane_cus))


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
    rows = -(-tiles.tile_r // (cus // tiles.plane_cus))
    planes = pixel_words(tiles.tile_planes, tiles)
    wide = shape.columns.span(tiles.tile_c)
    between = rows * wide * planes if shape.is_max else 0
    return PoolRoom(
        line(shape.rows.span(rows) * wide * planes), line(between),
        line(rows * tiles.tile_c * planes),
    )  # fmt: skip


@lru_cache(maxsize=256)
def pool_tiles(shape: PoolShape, machine: SnowflakeMachine) -> PoolTiles | Infeasible:
    """Of the tiles of which two fit, else one, those that are expected to be the fastest."""
    for axis, name in ((shape.rows, "row"), (shape.columns, "column")):
        if not axis.covers:
            return Infeasible(
                "windows", 0, 0, f"a window of the pool covers no {name} of its input",
                "leave the layer to the CPU",
            )  # fmt: skip
    for places in (2, 1):
        found = list(fitting(shape, places, machine))
        if found:
            return min(found, key=lambda tiles: pool_cost(shape, tiles, machine).cycles)
    least = PoolTiles(1, 1, 1, 1, 1, 1)
    needed = WORD_BYTES * pool_room(shape, least, machine.clusters.cus).words
    return Infeasible(
        "MBuf", needed, machine.clusters.mbuf_bytes, "one window of one plane does not fit",
        "use a smaller window, or a machine with larger buffers",
    )  # fmt: skip


def fitting(shape: PoolShape, places: int, machine: SnowflakeMachine) -> Iterator[PoolTiles]:
    """For every part of planes and columns the most rows that fit."""
    clusters, cus = machine.clusters.count, machine.clusters.cus
    room = machine.mbuf_words // places
    for plane_clusters in _divisors(clusters, shape.planes):
        planes = max(count for _, count in pieces(shape.planes, plane_clusters))
        rows = -(-shape.rows.out // (clusters // plane_clusters))
        for plane_cus in _divisors(cus, planes):
            for size in _planes(planes, plane_cus):
                whole = PoolTiles(size, rows, shape.columns.out, plane_clusters, plane_cus, places)
                if pixel_words(size, whole) > LONGEST_TRACE:
                    continue
                yield from _windows(shape, whole, cus, room)


def _windows(shape: PoolShape, whole: PoolTiles, cus: int, room: int) -> Iterator[PoolTiles]:
    """The widest, with the most rows that each leaves room for."""
    found = 0
    least = min(cus // whole.plane_cus, whole.tile_r)
    for columns in _halves(whole.tile_c):
        for rows in _halves(whole.tile_r):
            tiles = replace(whole, tile_r=max(rows, least), tile_c=columns)
            if pool_room(shape, tiles, cus).words <= room:
                yield tiles
                found += 1
                break
        if found == WIDEST:
            return


@dataclass(frozen=True)
class PoolCost:
    """What a pool takes, about: of the memory, of the vector unit of the cluster that has most,
    how many tiles that has, and what all load."""

    memory_cycles: float
    vector_cycles: float
    tiles: int
    loaded_words: int

    @property
    def cycles(self) -> float:
        """Where nothing runs beside it: nothing hides what is computed from the last tile."""
        last = self.vector_cycles / self.tiles
        return max(self.memory_cycles, self.vector_cycles) + last + TILE * self.tiles


def tile_count(shape: PoolShape, tiles: PoolTiles, machine: SnowflakeMachine) -> int:
    """Of the cluster that has most."""
    (_, rows), (_, planes) = pool_parts(shape, tiles, machine.clusters.count)[0]
    return (
        -(-rows // tiles.tile_r) * -(-shape.columns.out // tiles.tile_c)
        * -(-planes // tiles.tile_planes)
    )  # fmt: skip


def pool_cost(shape: PoolShape, tiles: PoolTiles, machine: SnowflakeMachine) -> PoolCost:
    cus, clusters = machine.clusters.cus, machine.clusters.count
    down = _rows_loaded(
        shape.rows, min(shape.rows.out, clusters // tiles.plane_clusters), tiles.tile_r,
        cus // tiles.plane_cus,
    )  # fmt: skip
    across = _columns_loaded(shape.columns, tiles.tile_c)
    units = sum(
        _units(shape.planes, count)
        for _, part in pieces(shape.planes, tiles.plane_clusters)
        for _, tile in cut(0, part, tiles.tile_planes)
        for _, count in pieces(tile, tiles.plane_cus)
    )
    results = shape.rows.out * shape.columns.out
    memory = MEMORY_UNIT_BYTES * units * (down * across + results) / machine.memory_bytes_per_cycle
    count = tile_count(shape, tiles, machine)
    loaded = shape.planes * down * across
    return PoolCost(memory, count * _vector_cycles(shape, tiles, cus), count, loaded)


@lru_cache(maxsize=1024)
def _rows_loaded(axis: Axis, clusters: int, tile_r: int, cus: int) -> int:
    """By all CUs for all tiles, of clusters and CUs that have rows of their own."""
    return sum(
        axis.inputs(tile[0] + begin, count)[1]
        for part in range(clusters)
        for tile in cut(*share(axis.out, clusters, part), tile_r)
        for begin, count in dealt(tile[1], cus)
        if count
    )


@lru_cache(maxsize=1024)
def _columns_loaded(axis: Axis, tile_c: int) -> int:
    return sum(axis.inputs(*tile)[1] for tile in cut(0, axis.out, tile_c))


def _vector_cycles(shape: PoolShape, tiles: PoolTiles, cus: int) -> float:
    """Of a tile."""
    rows = -(-tiles.tile_r // (cus // tiles.plane_cus))
    planes = pixel_words(tiles.tile_planes, tiles)
    taps_r, taps_c = shape.rows.kernel, shape.columns.kernel
    if not shape.is_max:
        return rows * tiles.tile_c * taps_r * taps_c * -(-planes // LANES)
    wide = shape.columns.span(tiles.tile_c)
    down = rows * max(ISSUED, wide * planes / LANES)
    if shape.columns.stride == 1:
        across = rows * max(ISSUED, tiles.tile_c * planes / LANES)
    else:
        across = rows * tiles.tile_c * max(ISSUED, -(-planes // LANES))
    return max(1, taps_r - 1) * down + max(1, taps_c - 1) * across


@lru_cache(maxsize=4096)
def _units(pitch: int, words: int) -> float:
    """Units of the memory that ``words`` words of a pixel touch, on average."""
    if words == pitch:
        return words / UNIT_WORDS
    return mean_units(words, pitch) if words else 0.0


def _divisors(count: int, planes: int) -> list[int]:
    """Of ``count`` engines, the numbers of groups that can have planes of their own."""
    most = max(1, -(-planes // LANES))
    return [parts for parts in range(1, count + 1) if count % parts == 0 and parts <= most]


def _halves(total: int) -> list[int]:
    sizes = [total]
    parts = 2
    while sizes[-1] > 1:
        size = -(-total // parts)
        if size < sizes[-1]:
            sizes.append(size)
        parts = parts + 1 if parts < 8 else parts * 2
    return sizes


def _planes(total: int, parts: int) -> list[int]:
    """All, then whole groups for every part, then less."""
    unit = GROUP * parts
    sizes = [total]
    sizes += [size for size in range(total // unit * unit, 0, -unit) if size < total]
    sizes += [size for size in (32 * parts, 16 * parts, 8, 4, 2, 1) if size < sizes[-1]]
    return sizes
