"""A run that is watched: the device's loop until the next event of a unit.

Between two events of units the memory moves the words of one store at most, and no run records an
event without a pause where the table of events has room for a single step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.snowflake import engine
from tvm_npu.sim.snowflake.columns import EVENT_ROOM, LOAD, MOVED, QUEUE, STORE, T
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.state import Costs, State, resumed
from tvm_npu.sim.traps import Place
from tvm_npu.sim.watch import Store, Watch, layer_number

PlaceOf = Callable[[int, int], Place]
"""(cluster, row of all code) -> place."""


def run(state: State, costs: Costs, watch: Watch, place_of: PlaceOf) -> tuple[int, State]:
    """`engine.run_device` until it does not ask for room any more; the state keeps its table."""
    kept = {"events": state.events, "event_times": state.event_times}
    state = state._replace(**{name: table[:EVENT_ROOM] for name, table in kept.items()})
    while True:
        moved = state.counts[:, STORE, MOVED].copy()
        outcome = engine.run_device(state, costs)
        stores = list(_stores(state, moved, place_of))
        if stores:
            watch.stored(stores)
        state.event_count[0] = 0  # nobody reads the table
        if outcome != engine.FULL:
            return outcome, state._replace(**kept)
        state = resumed(state)


def _stores(state: State, moved: NDArray[np.int64], place_of: PlaceOf) -> Iterator[Store]:
    for cluster, before in enumerate(moved.tolist()):
        for number in range(before, int(state.counts[cluster, STORE, MOVED])):
            r = state.transfer[cluster, STORE - LOAD, number % QUEUE]
            row, begin = int(r[T.ROW]), int(r[T.MEMORY])
            last = (int(r[T.RUNS]) - 1) * int(r[T.MEMORY_STEP])
            end = begin + max(last, 0) + WORD_BYTES * int(r[T.WORDS])
            layer = layer_number(state.layer_end, int(state.layer_of[row]))
            yield Store(place_of(cluster, row), layer, begin + min(last, 0), end)
