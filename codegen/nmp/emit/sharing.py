"""Who loads IN and W tiles for whom: TLTs of a TLE share tiles by multicast, TLEs over the ring.

TLTs with the same rows and columns share IN tiles, TLTs with the same filters W tiles. Where TLEs
share a tile, too, each loads a part of it for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conventions import (
    CORE,
    IN_ARRIVED,
    IN_FREE,
    IN_GO,
    OTHER_IN_ARRIVED,
    OTHER_W_ARRIVED,
    TLT,
    W_ARRIVED,
    W_FREE,
    W_GO,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.shared_buffer import Semaphores, SharedBuffer
from tvm_npu.codegen.nmp.emit.shares import CoreShare, Shares
from tvm_npu.codegen.nmp.emit.transfers import OnChip
from tvm_npu.sim.nmp.xnmp import Level

ONE_FOR_ITSELF = Expression(constant=1)


@dataclass(frozen=True)
class SharedTile:
    """How one kind of tile gets to all that use it.

    ``mnemonic`` loads it for the TLTs of the mask ``tlts`` and the TLEs of the mask ``tles``. It
    comes in ``parts`` of at most ``part_extent`` channels (IN) or filters (W); this core loads the
    part that begins at ``part``.
    """

    mnemonic: str
    tlts: Expression
    tles: Expression
    parts: int
    part_extent: int
    part: Expression
    buffer: SharedBuffer

    def on_chip(self, offset: Expression, arrived: int) -> OnChip:
        """Byte ``offset`` of the memory of every receiver, who gets the semaphore ``arrived``."""
        return OnChip(offset, self.tlts, self.tles, arrived)


def share_in(tiles: ConvTiles, parameters: LayerParameters, halves: int) -> SharedTile:
    """IN tiles; adds the words that it needs to ``parameters``."""
    plan, shares = tiles.plan, tiles.shares
    places = plan.tlt_rows * plan.tlt_columns
    runs = shares.tlts // places
    parts = plan.filter_slices if plan.ring_in else 1
    part_channels = -(-tiles.largest[1] // parts)
    tlts = tles = part = Expression()
    if places > 1:
        tlts = parameters.number("in_tlts", _masks(shares, lambda one: one.place, of_tles=False))
    if plan.ring_in:
        tles = parameters.number("in_tles", _masks(shares, lambda one: one.tle_place, of_tles=True))
        part = parameters.number("in_part", shares.values(lambda one: one.tle_run * part_channels))
    level = Level.GLOBAL if plan.ring_in else Level.TLE if runs > 1 else None
    loads = shares.values(lambda one: int(one.run == 0))
    semaphores = Semaphores(IN_FREE, IN_GO, (IN_ARRIVED, OTHER_IN_ARRIVED))
    buffer = _buffer("loads_in", shares, parameters, level, loads, semaphores, halves, parts)
    mnemonic = "nmp_mload" if runs > 1 or plan.ring_in else "nmp_load"
    return SharedTile(mnemonic, tlts, tles, parts, part_channels, part, buffer)


def share_weights(tiles: ConvTiles, parameters: LayerParameters, halves: int) -> SharedTile:
    """W tiles; adds the words that it needs to ``parameters``."""
    plan, shares = tiles.plan, tiles.shares
    places = plan.tlt_rows * plan.tlt_columns
    parts = plan.row_slices * plan.column_slices if plan.ring_weights else 1
    part_filters = -(-tiles.largest[0] // parts)
    tlts = tles = part = Expression()
    if places > 1:
        tlts = parameters.number("w_tlts", _masks(shares, lambda one: one.run, of_tles=False))
    if plan.ring_weights:
        tles = parameters.number("w_tles", _masks(shares, lambda one: one.tle_run, of_tles=True))
    if parts > 1:
        part = parameters.number(
            "w_part",
            shares.values(lambda one: (one.tle_place + one.run) % parts * part_filters),
        )
    level = Level.GLOBAL if plan.ring_weights else Level.TLE if places > 1 else None
    loads = shares.values(lambda one: int(one.place == 0))
    semaphores = Semaphores(W_FREE, W_GO, (W_ARRIVED, OTHER_W_ARRIVED))
    buffer = _buffer("loads_weights", shares, parameters, level, loads, semaphores, halves, parts)
    mnemonic = "nmp_load" if places == 1 else "nmp_mload"
    return SharedTile(mnemonic, tlts, tles, parts, part_filters, part, buffer)


def place_masks(shares: Shares) -> tuple[list[int], list[int]]:
    """By core: the TLTs of its TLE that have its rows and columns, and the TLEs that have those
    of its TLE."""
    return (
        _masks(shares, lambda one: one.place, of_tles=False),
        _masks(shares, lambda one: one.tle_place, of_tles=True),
    )


def _masks(shares: Shares, same: Callable[[CoreShare], object], of_tles: bool) -> list[int]:
    return [shares.mask(core, same, of_tles) for core in range(len(shares.cores))]


def _buffer(
    name: str,
    shares: Shares,
    parameters: LayerParameters,
    level: Level | None,
    loads: list[int],
    semaphores: Semaphores,
    halves: int,
    parts: int,
) -> SharedBuffer:
    """``loads``: 1 for cores that load; a word ``name`` says so where several do."""
    if level is None:
        return SharedBuffer(None, TLT, 1, 1, ONE_FOR_ITSELF, semaphores, halves, parts)
    scope = len(shares.cores) if level == Level.GLOBAL else shares.tlts
    first = shares.active.index(True) // scope * scope
    loaders = sum(loads[first : first + scope])
    flag = parameters.number(name, loads) if loaders > 1 else Expression()
    leader = CORE if level == Level.GLOBAL else TLT
    return SharedBuffer(level, leader, scope, loaders, flag, semaphores, halves, parts)
