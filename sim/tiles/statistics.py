"""What a run of a tile machine cost, read out of its state.

The machine counts as one core (the compute engine) and one TLE (the transfer engine); ``bursts``
are contiguous pieces moved outside of the chip.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.statistics import LayerStatistics, RunStatistics, by_stream
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.state import ENGINE, MOVER, State


def collect(
    state: State, machine: TileMachine, layer_names: tuple[str, ...], element_bytes: int
) -> RunStatistics:
    """Statistics of the run that just ended in ``state``."""
    peak = machine.macs_per_cycle(element_bytes)

    def utilization(macs: int, cycles: float) -> float:
        return macs / (cycles * peak) if cycles > 0 else 0.0

    layers = []
    previous_end = 0.0
    for index, name in enumerate(layer_names):
        end = max(previous_end, float(state.layer_end[index]))
        macs = int(state.layer_macs[index])
        layers.append(
            LayerStatistics(
                name=name,
                cycles=end - previous_end,
                macs=macs,
                mac_utilization=utilization(macs, end - previous_end),
                loaded_bytes=by_stream(state.layer_bytes[index, :, 0]),
                stored_bytes=by_stream(state.layer_bytes[index, :, 1]),
                ring_bytes={},
                forwarded_bytes={},
                bursts=int(state.layer_runs[index]),
                mac_cycles_per_core=(float(state.layer_busy[index, ENGINE - MOVER]),),
                wait_cycles_per_core=(float(state.layer_wait[index]),),
                dma_cycles_per_tle=(float(state.layer_busy[index, 0]),),
                instructions=int(state.layer_instructions[index]),
                code_bytes=4 * int(np.count_nonzero(state.layer_of == index)),
            )
        )
        previous_end = end
    cycles = float(state.clock.max())
    macs = int(state.layer_macs.sum())
    return RunStatistics(
        machine=machine.name,
        runs=1,
        cycles=cycles,
        time_us=cycles / machine.frequency_mhz,
        macs=macs,
        mac_utilization=utilization(macs, cycles),
        loaded_bytes=by_stream(state.layer_bytes[:, :, 0].sum(axis=0)),
        stored_bytes=by_stream(state.layer_bytes[:, :, 1].sum(axis=0)),
        ring_bytes={},
        forwarded_bytes={},
        instructions=int(state.layer_instructions.sum()),
        instruction_cache_misses=0,
        code_bytes=4 * len(state.words),
        layers=tuple(layers),
    )
