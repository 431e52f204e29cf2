"""What a run of the NMP cost, read out of its state."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.state import State
from tvm_npu.sim.statistics import LayerStatistics, RunStatistics, add, by_stream

__all__ = ["LayerStatistics", "RunStatistics", "add", "collect"]


def collect(
    state: State, machine: NmpMachine, layer_names: tuple[str, ...], element_bytes: int
) -> RunStatistics:
    """Statistics of the run that just ended in ``state``."""
    peak = machine.macs_per_cycle(element_bytes) * machine.core_count

    def utilization(macs: int, cycles: float) -> float:
        return macs / (cycles * peak) if cycles > 0 else 0.0

    layers = []
    previous_end = 0.0
    for index, name in enumerate(layer_names):
        end = max(previous_end, float(state.layer_end[index]))
        macs = int(state.layer_macs[index].sum())
        layers.append(
            LayerStatistics(
                name=name,
                cycles=end - previous_end,
                macs=macs,
                mac_utilization=utilization(macs, end - previous_end),
                loaded_bytes=by_stream(state.layer_bytes[index, :, 0]),
                stored_bytes=by_stream(state.layer_bytes[index, :, 1]),
                ring_bytes=by_stream(state.layer_ring_bytes[index]),
                forwarded_bytes=by_stream(state.layer_forwarded_bytes[index]),
                bursts=int(state.layer_bursts[index].sum()),
                mac_cycles_per_core=tuple(state.layer_mac_cycles[index].tolist()),
                wait_cycles_per_core=tuple(state.layer_wait_cycles[index].tolist()),
                dma_cycles_per_tle=tuple(state.layer_dma_cycles[index].tolist()),
                instructions=int(state.layer_instructions[index].sum()),
                code_bytes=4 * int(np.count_nonzero(state.layer_of == index)),
            )
        )
        previous_end = end
    cycles = max(float(state.time[: machine.core_count].max()), float(state.layer_end.max()))
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
        ring_bytes=by_stream(state.layer_ring_bytes.sum(axis=0)),
        forwarded_bytes=by_stream(state.layer_forwarded_bytes.sum(axis=0)),
        instructions=int(state.counters[0]),
        instruction_cache_misses=int(state.counters[1]),
        code_bytes=4 * len(state.words),
        layers=tuple(layers),
    )
