"""A run that is watched from store to store: the event loop in slices of one transfer at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tvm_npu.sim.compiled.steps import shortest_slice
from tvm_npu.sim.events import EventColumn
from tvm_npu.sim.nmp.columns import Descriptor, NmpEvent
from tvm_npu.sim.nmp.hazards import BOX, STORES
from tvm_npu.sim.nmp.state import Array, State
from tvm_npu.sim.nmp.xnmp import DmaRegister as Reg
from tvm_npu.sim.traps import Place
from tvm_npu.sim.watch import Store, Watch, layer_number

PlaceOf = Callable[[int, int], Place]
"""(core, pc) -> place."""


class StoreSteps:
    """`engine.Watch` of a run that records events, which know the tiles of transfers."""

    def __init__(self, watch: Watch, dram_base: int, place_of: PlaceOf) -> None:
        self._watch, self._base, self._place_of = watch, dram_base, place_of
        self._heads: Array = np.zeros(0, np.int64)

    def before(self, state: State) -> None:
        shortest_slice(state.work)
        self._heads = state.queue_head.copy()
        state.stored[:] = 0

    def after(self, state: State) -> None:
        stores = list(self._stores(state))
        if stores:
            self._watch.stored(stores)

    def _stores(self, state: State) -> Iterator[Store]:
        """A core's own, which ends its slice, and those that have left their queues."""
        core, first, past = state.stored.tolist()
        if past:
            pc = int(state.last_pc[core])
            layer = layer_number(
                state.layer_end, int(state.layer_of[(pc - int(state.code_base[0])) >> 2])
            )
            yield Store(self._place_of(core, pc), layer, first, past)
        for tle in np.flatnonzero(self._heads != state.queue_head):
            d = state.queue[tle, self._heads[tle]]
            if not d[Descriptor.KIND] & STORES:
                continue
            begin, end = _extent(d, self._base)
            place = self._place_of(int(d[Descriptor.CORE]), int(d[Descriptor.PC]))
            event = state.events[d[Descriptor.EVENT]]
            tile = event[EventColumn.OWN + NmpEvent.TILE :].tolist()
            place = replace(place, tile=dict(zip(place.tile, tile, strict=False)))
            layer = layer_number(state.layer_end, int(d[Descriptor.LAYER]))
            yield Store(place, layer, begin, end)


def _extent(d: Array, base: int) -> tuple[int, int]:
    """From the first byte to the last of what a store may write."""
    r, begin = d[Descriptor.REGISTERS :].tolist(), int(d[Descriptor.ADDRESS]) - base
    if not d[Descriptor.KIND] & BOX:
        ends = (0, (r[Reg.SEGMENTS] - 1) * r[Reg.SEGMENT_STRIDE])
        return begin + min(ends), begin + max(ends) + r[Reg.SEGMENT_BYTES]
    low, high = begin, begin + r[Reg.COLUMNS] * r[Reg.ELEMENT_BYTES]
    for first, count, most, stride in (
        (r[Reg.START_CHANNEL], r[Reg.BOX_CHANNELS], r[Reg.CHANNELS], r[Reg.CHANNEL_STRIDE]),
        (r[Reg.START_ROW], r[Reg.BOX_ROWS], r[Reg.ROWS], r[Reg.ROW_STRIDE]),
    ):
        ends = (max(first, 0) * stride, max(min(first + count, most) - 1, 0) * stride)
        low, high = low + min(ends), high + max(ends)
    return low, high
