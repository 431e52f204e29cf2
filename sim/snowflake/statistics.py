"""What a run of a Snowflake device cost, read out of its state.

A cluster counts as one core and one TLE; ``bursts`` are 64-byte units of memory. Efficiencies are
against the MACs of a device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, MacMode
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.state import LOAD, STORE, VECTOR, State
from tvm_npu.sim.statistics import LayerStatistics, RunStatistics, by_stream


@dataclass(frozen=True)
class TraceProfile:
    """One layer's instructions (table 2 of the compiler paper): number and summed length of `mac`
    by mode, number of loads and stores, and the 64-byte units that they moved."""

    name: str
    traces: dict[str, int]
    trace_words: dict[str, int]
    loads: int
    stores: int
    load_units: int
    store_units: int


def profile(state: State, layer_names: tuple[str, ...]) -> tuple[TraceProfile, ...]:
    """The last run's instructions, layer by layer."""
    found = []
    for index, name in enumerate(layer_names):
        counts = state.layer_traces[index]
        found.append(
            TraceProfile(
                name=name,
                traces={mode.name.lower(): int(counts[mode, 0]) for mode in MacMode},
                trace_words={mode.name.lower(): int(counts[mode, 1]) for mode in MacMode},
                loads=int(state.layer_transfers[index, 0]),
                stores=int(state.layer_transfers[index, 1]),
                load_units=int(state.layer_units[index, 0]),
                store_units=int(state.layer_units[index, 1]),
            )
        )
    return tuple(found)


def collect(
    state: State, machine: SnowflakeMachine, layer_names: tuple[str, ...], timing: bool
) -> RunStatistics:
    """Statistics of the run that just ended in ``state``; without ``timing`` no cycles."""
    peak = machine.core_count * machine.macs_per_cycle(2)
    factor = 1.0 if timing else 0.0

    def utilization(macs: int, cycles: float) -> float:
        return macs / (cycles * peak) if cycles > 0 else 0.0

    layers = []
    previous_end = 0.0
    for index, name in enumerate(layer_names):
        end = max(previous_end, factor * float(state.layer_end[index]))
        macs = int(state.layer_macs[index])
        busy = factor * state.layer_busy[index]
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
                bursts=int(state.layer_units[index].sum()),
                mac_cycles_per_core=tuple(busy[:, VECTOR].tolist()),
                wait_cycles_per_core=tuple((factor * state.layer_wait[index]).tolist()),
                dma_cycles_per_tle=tuple((busy[:, LOAD] + busy[:, STORE]).tolist()),
                instructions=int(state.layer_instructions[index]),
                code_bytes=4 * int(np.count_nonzero(state.layer_of == index)),
            )
        )
        previous_end = end
    cycles = factor * float(state.layer_end.max())
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
        code_bytes=4 * len(state.decoded),
        layers=tuple(layers),
    )


def moved_bytes(found: TraceProfile) -> int:
    """What the memory moved for a layer, whole units."""
    return MEMORY_UNIT_BYTES * (found.load_units + found.store_units)
