"""What a run cost, as Python objects: for the machine, per layer and per core."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class LayerStatistics:
    """One layer of one run. ``cycles`` is from the end of the layer before to its own end; a core
    waits while a semaphore or a full DMA queue blocks it. ``loaded_bytes`` and ``stored_bytes`` are
    DRAM traffic, ``ring_bytes`` what passed the Global Ringbus (each once, however many receive
    it), ``forwarded_bytes`` what went from MB2 to MB0; each by stream."""

    name: str
    cycles: float
    macs: int
    mac_utilization: float
    loaded_bytes: dict[str, int]
    stored_bytes: dict[str, int]
    ring_bytes: dict[str, int]
    forwarded_bytes: dict[str, int]
    bursts: int
    mac_cycles_per_core: tuple[float, ...]
    wait_cycles_per_core: tuple[float, ...]
    dma_cycles_per_tle: tuple[float, ...]
    instructions: int
    code_bytes: int


@dataclass(frozen=True)
class RunStatistics:
    """One or more runs, summed: the layers and what belongs to none. ``cycles`` is until the last
    core has exited and the last transfer is complete; zero when timing was off."""

    machine: str
    runs: int
    cycles: float
    time_us: float
    macs: int
    mac_utilization: float
    loaded_bytes: dict[str, int]
    stored_bytes: dict[str, int]
    ring_bytes: dict[str, int]
    forwarded_bytes: dict[str, int]
    instructions: int
    instruction_cache_misses: int
    code_bytes: int
    layers: tuple[LayerStatistics, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def by_stream(counts: NDArray[np.int64]) -> dict[str, int]:
    """Non-zero counts [streams] by the streams' names."""
    return {s.name.lower(): int(counts[s]) for s in Stream if counts[s]}


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


def _pairs(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _weighted(a: float, a_cycles: float, b: float, b_cycles: float) -> float:
    total = a_cycles + b_cycles
    return (a * a_cycles + b * b_cycles) / total if total > 0 else 0.0


def add(a: RunStatistics, b: RunStatistics) -> RunStatistics:
    """Two runs of one program, summed; utilization is weighted by cycles."""
    layers = tuple(
        replace(
            one,
            cycles=one.cycles + two.cycles,
            macs=one.macs + two.macs,
            mac_utilization=_weighted(
                one.mac_utilization, one.cycles, two.mac_utilization, two.cycles
            ),
            loaded_bytes=_sum(one.loaded_bytes, two.loaded_bytes),
            stored_bytes=_sum(one.stored_bytes, two.stored_bytes),
            ring_bytes=_sum(one.ring_bytes, two.ring_bytes),
            forwarded_bytes=_sum(one.forwarded_bytes, two.forwarded_bytes),
            bursts=one.bursts + two.bursts,
            mac_cycles_per_core=_pairs(one.mac_cycles_per_core, two.mac_cycles_per_core),
            wait_cycles_per_core=_pairs(one.wait_cycles_per_core, two.wait_cycles_per_core),
            dma_cycles_per_tle=_pairs(one.dma_cycles_per_tle, two.dma_cycles_per_tle),
            instructions=one.instructions + two.instructions,
        )
        for one, two in zip(a.layers, b.layers, strict=True)
    )
    return replace(
        a,
        runs=a.runs + b.runs,
        cycles=a.cycles + b.cycles,
        time_us=a.time_us + b.time_us,
        macs=a.macs + b.macs,
        mac_utilization=_weighted(a.mac_utilization, a.cycles, b.mac_utilization, b.cycles),
        loaded_bytes=_sum(a.loaded_bytes, b.loaded_bytes),
        stored_bytes=_sum(a.stored_bytes, b.stored_bytes),
        ring_bytes=_sum(a.ring_bytes, b.ring_bytes),
        forwarded_bytes=_sum(a.forwarded_bytes, b.forwarded_bytes),
        instructions=a.instructions + b.instructions,
        instruction_cache_misses=a.instruction_cache_misses + b.instruction_cache_misses,
        layers=layers,
    )
