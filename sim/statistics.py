"""What a run cost, whatever the kind of machine: by unit, by link, by layer.

Counts are such that a table of energies can be multiplied with them: MACs, instructions, bytes by
link and stream, bytes that transfers read from and wrote to each memory, busy cycles of each unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.units import LOADED, STORED, Role, Unit

DRAM = "dram"

Value = TypeVar("Value")


@dataclass(frozen=True)
class UnitStatistics:
    """One unit. It is busy while it computes, moves data or, a control unit, issues instructions;
    it waits while it could go on but for another unit."""

    name: str
    role: Role
    busy_cycles: float
    wait_cycles: float


@dataclass(frozen=True)
class MovedBytes:
    """What transfers read from and wrote to a memory, at its width; a byte that several memories
    receive counts for each."""

    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class Statistics:
    """What a layer and a run have in common. ``bytes_by_link`` has, for each of the machine's
    links, bytes by stream, each byte once however many receive it; ``bytes_by_memory`` is by part
    of the machine (``mb0``), of all units together. ``bursts`` are contiguous pieces of the memory
    outside of the chip."""

    cycles: float
    macs: int
    mac_utilization: float
    bytes_by_link: dict[str, dict[str, int]]
    bytes_by_memory: dict[str, MovedBytes]
    bursts: int
    units: tuple[UnitStatistics, ...]
    instructions: int
    code_bytes: int

    def bytes_over(self, link: str) -> dict[str, int]:
        """Bytes by stream over a link; none over one that the machine does not have."""
        return self.bytes_by_link.get(link, {})

    @property
    def loaded_bytes(self) -> dict[str, int]:
        return self.bytes_over(LOADED.name)

    @property
    def stored_bytes(self) -> dict[str, int]:
        return self.bytes_over(STORED.name)

    @property
    def moved_bytes(self) -> int:
        """Into and out of the memory outside of the chip."""
        return sum(self.loaded_bytes.values()) + sum(self.stored_bytes.values())

    def busy_cycles(self, role: Role) -> tuple[float, ...]:
        """Of the units of a role, in their order."""
        return tuple(unit.busy_cycles for unit in self.units if unit.role == role)

    def wait_cycles(self, role: Role) -> tuple[float, ...]:
        return tuple(unit.wait_cycles for unit in self.units if unit.role == role)


@dataclass(frozen=True)
class LayerStatistics(Statistics):
    """One layer of one or more runs. ``cycles`` is from the end of the layer before to its own
    end."""

    name: str


@dataclass(frozen=True)
class RunStatistics(Statistics, Tabular):
    """One or more runs, summed: the layers and what belongs to none. ``cycles`` is until the last
    unit has ended; zero when timing was off."""

    machine: str
    runs: int
    time_us: float
    instruction_cache_misses: int
    layers: tuple[LayerStatistics, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer; cycles by role are those of its busiest unit."""
        return [
            {
                "layer": layer.name,
                "cycles": layer.cycles,
                "macs": layer.macs,
                "mac_utilization": layer.mac_utilization,
                "mac_cycles": max(layer.busy_cycles("mac"), default=0.0),
                "dma_cycles": max(layer.busy_cycles("dma"), default=0.0),
                "loaded_bytes": sum(layer.loaded_bytes.values()),
                "stored_bytes": sum(layer.stored_bytes.values()),
                "instructions": layer.instructions,
            }
            for layer in self.layers
        ]


@dataclass(frozen=True, eq=False)
class Counts:
    """What a simulator counted in a run. Rows L are its layers and, as the last one, what belongs
    to none; U the units that are no memories, K links, S streams, M parts that are memories
    without DRAM, in the order in which the machine's description has them."""

    busy_cycles: NDArray[np.float64]  # [L, U]
    wait_cycles: NDArray[np.float64]  # [L, U]
    link_bytes: NDArray[np.int64]  # [L, K, S]
    memory_bytes: NDArray[np.int64]  # [L, M, 2]: read, written
    macs: NDArray[np.int64]  # [L]
    bursts: NDArray[np.int64]  # [L]
    instructions: NDArray[np.int64]  # [L]
    words: NDArray[np.int64]  # [L] of code
    end_cycles: NDArray[np.float64]  # [L]
    cycles: float
    instruction_cache_misses: int = 0


def collect(
    counts: Counts,
    machine: MachineDescription,
    layer_names: Sequence[str],
    element_bytes: int,
    layer_bytes: Sequence[int] | None = None,
) -> RunStatistics:
    """Statistics of the run that ``counts`` are of. MACs use elements of ``element_bytes``, those
    of each layer of ``layer_bytes`` where layers differ; utilization is of what such MACs can
    be."""
    rate = machine.macs_per_cycle(element_bytes)
    peak = rate * machine.core_count
    worth = np.array([rate / machine.macs_per_cycle(one) for one in layer_bytes or ()])
    used = counts.macs * (np.append(worth, 1.0) if layer_bytes else 1.0)
    units = machine.units()  # once a run: a machine has many, a model many layers
    timed = [(unit.name, unit.role) for unit in units if unit.role != "memory"]

    def shared(rows: slice | list[int], cycles: float) -> dict[str, Any]:
        macs = int(counts.macs[rows].sum())
        moved = counts.link_bytes[rows].sum(axis=0)
        links = {link.name: by_stream(moved[k]) for k, link in enumerate(machine.links())}
        return {
            "cycles": cycles,
            "macs": macs,
            "mac_utilization": float(used[rows].sum()) / (cycles * peak) if cycles > 0 else 0.0,
            "bytes_by_link": links,
            "bytes_by_memory": _memories(units, counts.memory_bytes[rows].sum(axis=0), links),
            "bursts": int(counts.bursts[rows].sum()),
            "units": _units(timed, counts.busy_cycles[rows], counts.wait_cycles[rows]),
            "instructions": int(counts.instructions[rows].sum()),
            "code_bytes": 4 * int(counts.words[rows].sum()),
        }

    layers = []
    previous_end = 0.0
    for index, name in enumerate(layer_names):
        end = max(previous_end, float(counts.end_cycles[index]))
        layers.append(LayerStatistics(**shared([index], end - previous_end), name=name))
        previous_end = end
    return RunStatistics(
        **shared(slice(None), counts.cycles),
        machine=machine.name,
        runs=1,
        time_us=counts.cycles / machine.frequency_mhz,
        instruction_cache_misses=counts.instruction_cache_misses,
        layers=tuple(layers),
    )


def _units(
    timed: Sequence[tuple[str, Role]], busy: NDArray[np.float64], wait: NDArray[np.float64]
) -> tuple[UnitStatistics, ...]:
    sums = zip(timed, busy.sum(axis=0).tolist(), wait.sum(axis=0).tolist(), strict=True)
    return tuple(UnitStatistics(*unit, *cycles) for unit, *cycles in sums)


def _memories(
    units: tuple[Unit, ...], moved: NDArray[np.int64], links: dict[str, dict[str, int]]
) -> dict[str, MovedBytes]:
    """DRAM sees what is loaded and stored."""
    parts = dict.fromkeys(unit.part for unit in units if unit.role == "memory")
    found = {
        part: MovedBytes(*counts)
        for part, counts in zip((p for p in parts if p != DRAM), moved.tolist(), strict=True)
    }
    read, written = (sum(links[link.name].values()) for link in (LOADED, STORED))
    return {DRAM: MovedBytes(read, written), **found}


def layer_words(layer_of: NDArray[np.int32], layers: int) -> NDArray[np.int64]:
    """Words of code by layer [layers + 1]; ``layer_of`` is ``layers`` for those of none."""
    return np.bincount(layer_of, minlength=layers + 1).astype(np.int64)


def by_stream(counts: NDArray[np.int64]) -> dict[str, int]:
    """Non-zero counts [streams] by the streams' names."""
    return {s.name.lower(): int(counts[s]) for s in Stream if s < len(counts) and counts[s]}


def add(a: RunStatistics, b: RunStatistics) -> RunStatistics:
    """Two runs of one program, summed; utilization is weighted by cycles."""
    values = _added(a, b)
    values["layers"] = tuple(
        LayerStatistics(**_added(one, two)) for one, two in zip(a.layers, b.layers, strict=True)
    )
    return RunStatistics(**values)


def beside(runs: Sequence[RunStatistics], devices: int) -> RunStatistics:
    """Runs of one program that begin together, each on one of ``devices``, as one: the time of the
    slowest, the sum of all else. Devices that none of them is on count in the utilization."""
    total = runs[0]
    for run in runs[1:]:
        total = add(total, run)
    layers = tuple(
        replace(layer, **_slowest([run.layers[k] for run in runs], devices))
        for k, layer in enumerate(total.layers)
    )
    time_us = max(run.time_us for run in runs)
    return replace(total, **_slowest(runs, devices), time_us=time_us, layers=layers)


def _slowest(parts: Sequence[Statistics], devices: int) -> dict[str, Any]:
    cycles = max(part.cycles for part in parts)
    used = sum(part.mac_utilization * part.cycles for part in parts)
    utilization = used / (cycles * devices) if cycles > 0 else 0.0
    return {"cycles": cycles, "mac_utilization": utilization}


_KEPT = frozenset({"name", "machine", "code_bytes", "layers"})
"""The same in all runs of a program."""


def _added(a: Statistics, b: Statistics) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in fields(a):
        one, two = getattr(a, item.name), getattr(b, item.name)
        if item.name in _KEPT:
            values[item.name] = one
        elif item.name in _ADDED:
            values[item.name] = _ADDED[item.name](one, two)
        else:
            values[item.name] = one + two
    values["mac_utilization"] = _weighted(a.mac_utilization, a.cycles, b.mac_utilization, b.cycles)
    return values


def _merged(
    a: Mapping[str, Value], b: Mapping[str, Value], both: Callable[[Value, Value], Value]
) -> dict[str, Value]:
    return {
        key: both(a[key], b[key]) if key in a and key in b else (a[key] if key in a else b[key])
        for key in {**a, **b}
    }


def _sum(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return _merged(a, b, lambda x, y: x + y)


def _moved(a: MovedBytes, b: MovedBytes) -> MovedBytes:
    return MovedBytes(a.read_bytes + b.read_bytes, a.written_bytes + b.written_bytes)


def _pairs(
    a: tuple[UnitStatistics, ...], b: tuple[UnitStatistics, ...]
) -> tuple[UnitStatistics, ...]:
    return tuple(
        UnitStatistics(
            x.name, x.role, x.busy_cycles + y.busy_cycles, x.wait_cycles + y.wait_cycles
        )
        for x, y in zip(a, b, strict=True)
    )


_ADDED: dict[str, Callable[[Any, Any], Any]] = {
    "bytes_by_link": lambda a, b: _merged(a, b, _sum),
    "bytes_by_memory": lambda a, b: _merged(a, b, _moved),
    "units": _pairs,
}


def _weighted(a: float, a_cycles: float, b: float, b_cycles: float) -> float:
    total = a_cycles + b_cycles
    return (a * a_cycles + b * b_cycles) / total if total > 0 else 0.0
