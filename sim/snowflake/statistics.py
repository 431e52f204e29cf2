"""What a run of a Snowflake device cost, read out of its state.

``bursts`` are 64-byte units of memory, whole ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.sim import statistics
from tvm_npu.sim.snowflake.isa import WORD_BYTES, MacMode
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.state import State
from tvm_npu.sim.statistics import Counts, RunStatistics, layer_words


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
    """Statistics of the run that just ended in ``state``; without ``timing`` no cycles. A core is
    busy while it issues; it waits for registers, full queues, instructions and what `sync` says,
    the others as `CauseNumbers` says."""
    factor = 1.0 if timing else 0.0
    busy = state.layer_busy.copy()
    busy[:, : machine.clusters.count] = state.layer_instructions
    counts = Counts(
        busy_cycles=factor * busy,
        wait_cycles=factor * state.layer_wait,
        link_bytes=state.layer_bytes,
        memory_bytes=state.layer_memory,
        macs=state.layer_macs,
        bursts=state.layer_units.sum(axis=1),
        instructions=state.layer_instructions.sum(axis=1),
        words=layer_words(state.layer_of, len(layer_names)),
        end_cycles=factor * state.layer_end,
        cycles=factor * float(state.layer_end.max()),
    )
    return statistics.collect(counts, machine, layer_names, WORD_BYTES)
