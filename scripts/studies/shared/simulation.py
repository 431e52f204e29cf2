"""One network under one planner on the simulator: its time, the parts of it, its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from studies.harness.errors import StudyError
from studies.shared.networks import Network, Region
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.plan import Planner
from tvm_npu.codegen.program.format import LayerEntry
from tvm_npu.runtime.session import Session
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.statistics import LayerStatistics


@dataclass(frozen=True)
class Breakdown:
    """Where simulated time goes, cycles; the four add up to the run's. ``other`` is scalar code,
    semaphores and TLEs that wait for each other."""

    load_cycles: float = 0.0
    store_cycles: float = 0.0
    mac_cycles: float = 0.0
    other_cycles: float = 0.0

    def __add__(self, more: Breakdown) -> Breakdown:
        pairs = ((getattr(self, f.name), getattr(more, f.name)) for f in fields(self))
        return Breakdown(*(a + b for a, b in pairs))

    @property
    def total_cycles(self) -> float:
        return self.load_cycles + self.store_cycles + self.mac_cycles + self.other_cycles


@dataclass(frozen=True)
class LayerMeasurement:
    """One layer that was executed: ``kind`` and ``source`` (the model's operators) as in the
    program's table, what the plan promised and what the simulator took, and the bytes that crossed
    the DRAM bus."""

    name: str
    kind: str
    source: tuple[str, ...]
    macs: int
    cycles: float
    predicted_cycles: float
    dram_bytes: int


@dataclass(frozen=True)
class Measurement:
    """Sums over the network's regions, which run one after another, each once; ``layers`` are
    theirs, in order; ``bound_cycles`` are those of `Backend.graph_bound`."""

    cycles: float
    time_us: float
    predicted_us: float
    breakdown: Breakdown
    layers: tuple[LayerMeasurement, ...] = ()
    bound_cycles: float = 0.0

    @property
    def dram_bytes(self) -> int:
        return sum(layer.dram_bytes for layer in self.layers)


def measure(network: Network, machine: NmpMachine, planner: Planner) -> Measurement:
    """Compiles and simulates ``network``, values and timing together.

    Raises StudyError when an output differs from the reference in any bit, and what
    `generate` and `Session` raise.
    """
    cycles = bound_cycles = 0.0
    breakdown = Breakdown()
    layers: list[LayerMeasurement] = []
    for region in network.regions:
        generated = generate(region.fixed, machine, planner)
        program = generated.program()
        bound = generated.graph_bound
        assert bound is not None, "every NMP has one"
        bound_cycles += bound.cycles
        session = Session(program)
        outputs = session.run_fixed(region.inputs)
        check_values(network.model, planner.name, region, outputs)
        run = session.statistics
        assert run is not None
        cycles += run.cycles
        spent = Breakdown()
        for entry, layer in zip(program.layers, run.layers, strict=True):
            spent += layer_breakdown(entry, layer, machine)
            layers.append(_layer(entry, layer))
        breakdown += spent + Breakdown(other_cycles=run.cycles - spent.total_cycles)
    return Measurement(
        cycles,
        cycles / machine.frequency_mhz,
        sum(layer.predicted_cycles for layer in layers) / machine.frequency_mhz,
        breakdown,
        tuple(layers),
        bound_cycles,
    )


def _layer(entry: LayerEntry, layer: LayerStatistics) -> LayerMeasurement:
    return LayerMeasurement(
        entry.name, entry.kind, tuple(entry.source), entry.macs, layer.cycles,
        entry.predicted_cycles or 0.0, layer.moved_bytes,
    )  # fmt: skip


def check_values(model: str, planner: str, region: Region, outputs: Sequence[Any]) -> None:
    """All planners' values are equal bit for bit, because each one's equal the reference's."""
    for name, got, right in zip(region.fixed.outputs, outputs, region.expected, strict=True):
        wrong = int(np.count_nonzero(got != right))
        if wrong or got.dtype != right.dtype or got.shape != right.shape:
            raise StudyError(
                f"model {model!r}, planner {planner!r}: output {name!r} ({got.dtype} "
                f"{got.shape}) differs from the reference ({right.dtype} {right.shape}) in "
                f"{wrong} of {right.size} elements; the limit is 0"
            )


def layer_breakdown(entry: LayerEntry, layer: LayerStatistics, machine: NmpMachine) -> Breakdown:
    """One layer's cycles by the busiest TLE: its slowest TLT's MAC time and its DMA engine's
    transfer time. The engine's time counts loads and stores together; they share it as the plan
    predicts (by bytes, where a plan does not). Where TLTs of the TLE compute while others load,
    both shrink by the same factor, so that no cycle counts twice."""
    tlts = machine.cores.tlts_per_tle
    computed = layer.busy_cycles("mac")
    busy = [
        (max(computed[tle * tlts : (tle + 1) * tlts]), transfers)
        for tle, transfers in enumerate(layer.busy_cycles("dma"))
    ]
    macs, transfers = max(busy, key=sum)
    scale = min(1.0, layer.cycles / (macs + transfers)) if macs + transfers else 0.0
    load_share = _load_share(entry, layer)
    return Breakdown(
        load_cycles=transfers * scale * load_share,
        store_cycles=transfers * scale * (1 - load_share),
        mac_cycles=macs * scale,
        other_cycles=layer.cycles - (macs + transfers) * scale,
    )


def _load_share(entry: LayerEntry, layer: LayerStatistics) -> float:
    prediction = (entry.plan or {}).get("prediction")
    if prediction is not None:
        load, store = prediction["load_cycles"], prediction["store_cycles"]
    else:
        load, store = sum(layer.loaded_bytes.values()), sum(layer.stored_bytes.values())
    return load / (load + store) if load + store else 0.0
