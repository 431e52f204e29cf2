"""What a run of the NMP cost, read out of its state."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim import statistics
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.statistics import Counts, RunStatistics


def collect(
    state: State,
    costs: Costs,
    machine: NmpMachine,
    layer_names: tuple[str, ...],
    element_bytes: int,
    layer_bytes: tuple[int, ...] | None,
) -> RunStatistics:
    """Statistics of the run that just ended in ``state``. A core is busy while it issues, and waits
    while a semaphore or a full DMA queue blocks it."""
    moves = np.zeros_like(state.layer_dma_cycles)
    counts = Counts(
        busy_cycles=np.hstack(
            (
                costs.instruction * state.layer_instructions,
                state.layer_mac_cycles,
                state.layer_dma_cycles,
            )
        ),
        wait_cycles=np.hstack(
            (state.layer_wait_cycles, np.zeros_like(state.layer_mac_cycles), moves)
        ),
        link_bytes=state.layer_link_bytes,
        memory_bytes=state.layer_memory_bytes,
        macs=state.layer_macs.sum(axis=1),
        bursts=state.layer_bursts,
        instructions=state.layer_instructions.sum(axis=1),
        words=statistics.layer_words(state.layer_of, len(layer_names)),
        end_cycles=state.layer_end,
        cycles=max(float(state.time[: machine.core_count].max()), float(state.layer_end.max())),
        instruction_cache_misses=int(state.counters[1]),
    )
    return statistics.collect(counts, machine, layer_names, element_bytes, layer_bytes)
