"""Which part of a machine made which part of each layer's output, from where its stores wrote.

Tiles are what the stores of a run brought to memory: nothing here knows how a kind of machine
plans. A machine that does not say where its stores write gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.program.format import Program, Segment, TensorSlot
from tvm_npu.report.memory import rows_by_layer
from tvm_npu.sim.events import EventColumn, Events

if TYPE_CHECKING:
    from tvm_npu.report.runs import RegionRun

MOST_CELLS = 1_500
"""Of a picture; where tiles are more, those of one maker that touch each other count as one."""
MOST_SAMPLES = 24
"""Along an axis, of pictures that have more cells all the same."""
BEGIN, RUN_BYTES, RUNS, RUN_STEP, GROUPS, GROUP_STEP = range(6)
"""Columns of boxes, as `EventColumn` has them from its BEGIN on."""


@dataclass(frozen=True, eq=False)
class Shares:
    """The output ``tensor`` of ``shape`` [channels, rows, columns], cut at ``cuts``: for each axis
    where pieces begin. ``tile`` [pieces, pieces, pieces] says which of the output's tiles, in the
    order of their stores, a piece is of; -1: nobody stored it. ``maker_of`` [tiles] counts in
    ``makers``, the machine's; ``part`` [tiles] is how much of the output each tile is. ``exact`` is
    False where pieces are coarser than tiles."""

    tensor: str
    shape: tuple[int, int, int]
    cuts: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    tile: NDArray[np.int64]
    makers: tuple[str, ...]
    maker_of: NDArray[np.int64]
    part: NDArray[np.float64]
    exact: bool

    @property
    def tiles(self) -> int:
        return len(self.maker_of)


def layer_shares(
    events: Events, rows: NDArray[np.int64], slots: Sequence[TensorSlot], begin: int
) -> list[Shares]:
    """Of the layer whose events are ``rows``, for each of its outputs ``slots``; ``begin`` is where
    the segment of activations begins behind the machine's base address."""
    stores = rows[events.table[rows, EventColumn.RUN_BYTES] > 0]
    boxes = events.table[stores, EventColumn.BEGIN : EventColumn.OWN]
    makers = events.table[stores, EventColumn.MAKER]
    found = (_shares(slot, boxes, makers, events.names.makers, begin) for slot in slots)
    return [one for one in found if one is not None]


def region_shares(run: RegionRun) -> list[list[Shares]]:
    """For each layer of a region that has run once: its outputs that it is known of."""
    events, base = run.events, run.session.machine.dram.base_address
    if events is None:
        return [[] for _ in run.session.program.layers]
    begin = activations_begin(run.session.program, base)
    return [
        layer_shares(events, rows, slots, begin)
        for rows, slots in zip(rows_by_layer(events), run.outputs, strict=True)
    ]


def activations_begin(program: Program, base_address: int) -> int:
    """Of the activations, counted from the machine's base address."""
    return program.placement(base_address)[Segment.ACTIVATIONS] - base_address


def _shares(
    slot: TensorSlot,
    boxes: NDArray[np.int64],
    maker_of: NDArray[np.int64],
    makers: tuple[str, ...],
    begin: int,
) -> Shares | None:
    boxes = boxes.copy()
    boxes[boxes[:, RUNS] == 1, RUN_STEP] = 0
    boxes[boxes[:, GROUPS] == 1, GROUP_STEP] = 0
    first = boxes[:, BEGIN] - begin - slot.offset
    last = first + boxes[:, RUN_BYTES]
    for count, step in ((RUNS, RUN_STEP), (GROUPS, GROUP_STEP)):
        last = last + (boxes[:, count] - 1) * boxes[:, step]
    inside = (first >= 0) & (last <= slot.size_bytes)
    inside &= (boxes[:, [RUNS, GROUPS]] > 0).all(axis=1)
    inside &= (boxes[:, [RUN_STEP, GROUP_STEP]] >= 0).all(axis=1)  # else they begin elsewhere
    if not inside.any():
        return None
    boxes = boxes[inside]
    boxes[:, BEGIN] = first[inside]
    order = _memory_order(slot)
    unit = _unit(boxes, order, slot)
    owner = _owner(boxes, order, unit, slot)
    volume = _as_channels_first(owner, slot)
    shape = _shape(slot)
    scale = [-(-extent // size) for extent, size in zip(shape, volume.shape, strict=True)]
    cuts, exact = _cuts(volume, maker_of[inside])
    tile = volume[np.ix_(*cuts)]
    places = [tuple((one * by).tolist()) for one, by in zip(cuts, scale, strict=True)]
    parts = np.bincount(volume.reshape(-1) + 1, minlength=1 + len(boxes))[1:] / volume.size
    channels, rows, columns = places
    return Shares(
        slot.name, shape, (channels, rows, columns), tile, makers, maker_of[inside], parts, exact
    )


def _shape(slot: TensorSlot) -> tuple[int, int, int]:
    """[channels, rows, columns]; of a flat tensor that lies pixel by pixel [planes, pixels, 1]."""
    shape = chw(slot.shape)
    if slot.planes and slot.planes != shape[0]:
        return slot.planes, prod(shape) // slot.planes, 1
    return shape


def _memory_order(slot: TensorSlot) -> tuple[int, int, int]:
    """Extents of the tensor as its elements lie, the last ones beside each other."""
    channels, rows, columns = _shape(slot)
    if slot.planes:
        return rows, columns, slot.pitch
    return channels, rows, columns


def _unit(boxes: NDArray[np.int64], order: tuple[int, int, int], slot: TensorSlot) -> int:
    """The most elements beside each other that no store tells apart: a part of the innermost axis,
    or all of it, or several of the axis outside of it."""
    values = boxes[:, [BEGIN, RUN_BYTES, RUN_STEP, GROUP_STEP]].reshape(-1)
    together = int(np.gcd.reduce(values)) // slot.stored_bytes
    inner = order[2] if not slot.planes else gcd(order[2], slot.planes)
    whole = gcd(max(together, 1), order[1] * order[2])
    return whole if whole % order[2] == 0 else gcd(whole, inner)


def _owner(
    boxes: NDArray[np.int64], order: tuple[int, int, int], unit: int, slot: TensorSlot
) -> NDArray[np.int64]:
    """[order, in units]: the last tile that was stored there, or -1."""
    unit_bytes = unit * slot.stored_bytes
    owner = np.full(-(-prod(order) // unit), -1, np.int64)
    item = owner.itemsize
    for tile, (at, size, runs, step, groups, group_step) in enumerate(
        (boxes // [unit_bytes, unit_bytes, 1, unit_bytes, 1, unit_bytes]).tolist()
    ):
        part = owner[at:]
        strides = group_step * item, step * item, item
        as_strided(part, (groups, runs, size), strides)[...] = tile
    if unit % order[2] == 0:
        return owner.reshape(order[0], -1, 1)
    return owner.reshape(order[0], order[1], -1)


def _as_channels_first(owner: NDArray[np.int64], slot: TensorSlot) -> NDArray[np.int64]:
    if not slot.planes:
        return owner
    volume = owner.transpose(2, 0, 1)
    return volume[: -(-slot.planes * len(volume) // slot.pitch)]


def _cuts(
    volume: NDArray[np.int64], maker_of: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], bool]:
    """Where pieces begin along each axis, and whether that are all places where tiles do."""
    cuts = [_changes(volume, axis) for axis in range(3)]
    if prod(map(len, cuts)) <= MOST_CELLS:
        return cuts, True
    makers = np.append(maker_of, -1)[volume]  # tile -1: the last entry
    cuts = [_changes(makers, axis) for axis in range(3)]
    if prod(map(len, cuts)) > MOST_CELLS:
        cuts = [one[np.unique(np.linspace(0, len(one) - 1, MOST_SAMPLES).astype(int))]
                for one in cuts]  # fmt: skip
    return cuts, False


def _changes(volume: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Where along an axis pieces begin."""
    moved = np.moveaxis(volume, axis, 0)
    differs = (moved[1:] != moved[:-1]).any(axis=(1, 2))
    return np.concatenate([[0], np.flatnonzero(differs) + 1])
