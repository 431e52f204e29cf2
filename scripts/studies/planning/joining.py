"""What plans over the graph gain: `exact` beside `exact-layers`, on machines of every kind.

The bound is neutral: the multiply-accumulates that touch no padding at the machine's peak rate, or
the compulsory traffic of every region (the inputs that its layers look at, weights, outputs; each
once, at the width that the machine stores) at the rate of its memory, whichever takes longer.
Efficiencies, bursts, set-up and biases are left out. No fusion saves any of it where windows pass
over none of a convolution's results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from studies.planning.any_kind import simulated
from studies.planning.bounds import Work, works
from studies.shared.counting import useful_macs
from studies.shared.networks import Region
from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.sim.description import MachineDescription

JOINED, APART = "exact", "exact-layers"


@dataclass(frozen=True)
class JoinedRow:
    """One network on one machine under one planner. ``layers`` are those that run; ``bound_us`` is
    None where the machine says no rate of its memory."""

    model: str
    machine: str
    planner: str
    layers: int
    simulated_us: float
    predicted_us: float
    dram_bytes: int
    compulsory_bytes: int
    bound_us: float | None


def joined_row(model: str, machine: MachineDescription, name: str) -> JoinedRow:
    """Simulated. Raises StudyError when a value differs from the reference's in any bit, and for
    what cannot be compiled."""
    cycles = predicted = 0.0
    moved = layers = 0
    bounds = []
    for region, program, run in simulated(model, machine, name):
        cycles += run.cycles
        predicted += sum(entry.predicted_cycles or 0.0 for entry in program.layers)
        moved += sum(layer.moved_bytes for layer in run.layers)
        layers += len(program.layers)
        bounds.append(_bound(region, machine))
    mhz = machine.frequency_mhz
    times = [time for _, time in bounds]
    return JoinedRow(
        model, machine.name, name, layers, cycles / mhz, predicted / mhz, moved,
        sum(count for count, _ in bounds),
        None if None in times else sum(time or 0.0 for time in times) / mhz,
    )  # fmt: skip


def _bound(region: Region, machine: MachineDescription) -> tuple[int, float | None]:
    """Compulsory bytes, and cycles."""
    fixed, precision = region.fixed, machine.default_precision
    layers = works(fixed)
    compulsory = compulsory_elements(fixed, layers) * machine.stored_element_bytes(precision)
    rate = machine.dram_bytes_per_cycle
    if rate is None:
        return compulsory, None
    peak = machine.macs_per_cycle(fixed.element_bytes) * machine.core_count
    macs = sum(useful_macs(layer, fixed.shapes) for layer in fixed.layers)
    return compulsory, max(macs / peak, compulsory / rate)


def compulsory_elements(fixed: FixedGraph, layers: tuple[Work, ...]) -> int:
    """Values that cross the border of the chip however the layers of a region are joined."""
    needs = {layer.name: layer.input_bytes // fixed.element_bytes for layer in layers}
    outputs = sum(prod(fixed.shapes[tensor]) for tensor in set(fixed.outputs))
    weights = sum(layer.weight.size for layer in fixed.layers if isinstance(layer, FixedConv))
    inputs = sum(_read(tensor, fixed, needs) for tensor in fixed.inputs)
    return inputs + weights + outputs


def _read(tensor: str, fixed: FixedGraph, needs: Mapping[str, int]) -> int:
    """Values of one of a region's inputs that some layer looks at, as far as that is known of one
    layer alone: nothing where it reads other tensors, too, or is a view."""

    def known(layer: FixedLayer) -> int:
        return needs.get(layer.name, 0) if layer.inputs == (tensor,) else 0

    return max((known(layer) for layer in fixed.layers), default=0)
