"""What a run of a tile machine cost, read out of its state.

``bursts`` are contiguous pieces moved outside of the chip.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim import statistics
from tvm_npu.sim.statistics import Counts, RunStatistics
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine
from tvm_npu.sim.tiles.state import Costs, State


def collect(
    state: State,
    costs: Costs,
    machine: TileMachine,
    layer_names: tuple[str, ...],
    element_bytes: int,
) -> RunStatistics:
    """Statistics of the run that just ended in ``state``. The array or core waits while it is free
    and transfers are not over."""
    busy, memory_bytes = state.layer_busy, state.layer_memory_bytes
    wait = np.zeros_like(busy)
    wait[:, 0] = state.layer_wait
    issued = costs.issue * state.layer_instructions[:, np.newaxis]
    if isinstance(machine.memories, SharedMemory):
        together = memory_bytes[:, : TileMemory.BIAS].sum(axis=1, keepdims=True)
        memory_bytes = np.concatenate((together, memory_bytes[:, TileMemory.BIAS :]), axis=1)
    counts = Counts(
        busy_cycles=np.hstack((issued, busy)),
        wait_cycles=np.hstack((np.zeros_like(issued), wait)),
        link_bytes=state.layer_bytes,
        memory_bytes=memory_bytes,
        macs=state.layer_macs,
        bursts=state.layer_runs,
        instructions=state.layer_instructions,
        words=statistics.layer_words(state.layer_of, len(layer_names)),
        end_cycles=state.layer_end,
        cycles=float(state.clock.max()),
    )
    return statistics.collect(counts, machine, layer_names, element_bytes)
