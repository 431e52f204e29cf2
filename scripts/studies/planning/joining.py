"""What plans over the graph gain: planners beside `exact-layers`, on machines of every kind."""

from __future__ import annotations

from dataclasses import dataclass

from studies.planning.any_kind import simulated
from tvm_npu.codegen.graph_bound import GraphBound
from tvm_npu.sim.description import MachineDescription

JOINED, APART = "exact", "exact-layers"
"""The planner that is compared where none is named, and the one that all are compared with."""


@dataclass(frozen=True)
class JoinedRow:
    """One network on one machine under one planner. ``layers`` are those that run; the last two are
    sums over regions of `Backend.graph_bound`, None where nobody knows."""

    model: str
    machine: str
    planner: str
    layers: int
    simulated_us: float
    predicted_us: float
    dram_bytes: int
    compulsory_bytes: int | None
    bound_us: float | None


def joined_row(model: str, machine: MachineDescription, name: str) -> JoinedRow:
    """Simulated. Raises StudyError when a value differs from the reference's in any bit, and for
    what cannot be compiled."""
    cycles = predicted = 0.0
    moved = layers = 0
    bounds: list[GraphBound | None] = []
    for generated, program, run in simulated(model, machine, name):
        cycles += run.cycles
        predicted += sum(entry.predicted_cycles or 0.0 for entry in program.layers)
        moved += sum(layer.moved_bytes for layer in run.layers)
        layers += len(program.layers)
        bounds.append(generated.graph_bound)
    mhz = machine.frequency_mhz
    known = [bound for bound in bounds if bound is not None]
    all_known = len(known) == len(bounds)
    return JoinedRow(
        model, machine.name, name, layers, cycles / mhz, predicted / mhz, moved,
        sum(bound.compulsory_bytes for bound in known) if all_known else None,
        sum(bound.cycles for bound in known) / mhz if all_known else None,
    )  # fmt: skip
