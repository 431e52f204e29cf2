"""How far predictions are from the simulator, layer by layer, on machines of every kind.

A layer's simulated time is from the end of the layers before it to its own end, on the slowest of
the units that share the machine; its predicted time is what the program's table says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from studies.planning.any_kind import simulated
from tvm_npu.sim.description import MachineDescription

SIZES_US = (10.0, 100.0, 1000.0)
"""Layers are put into classes by simulated time: below each of these, and above all."""


@dataclass(frozen=True)
class ErrorRow:
    """One layer of a network on one machine under one planner; ``predicted_us`` is None where
    nobody says."""

    model: str
    machine: str
    planner: str
    layer: str
    kind: str
    macs: int
    simulated_us: float
    predicted_us: float | None
    dram_bytes: int

    @property
    def error(self) -> float | None:
        """Relative, with its sign; None without a prediction. A layer that ends no later than those
        before it takes no time: then 0, or 1 where some was predicted."""
        if self.predicted_us is None:
            return None
        if self.simulated_us <= 0:
            return float(self.predicted_us > 0)
        return self.predicted_us / self.simulated_us - 1


@dataclass(frozen=True)
class Errors:
    """Of some layers: how many there are, and the mean of their absolute errors (None: of none)."""

    layers: int
    mean: float | None


def error_rows(model: str, machine: MachineDescription, name: str) -> list[ErrorRow]:
    """Simulated. Raises StudyError when a value differs from the reference's in any bit, and for
    what cannot be compiled."""
    found = []
    mhz = machine.frequency_mhz
    for _, program, run in simulated(model, machine, name):
        found += [
            ErrorRow(
                model, machine.name, name, entry.name, entry.kind, entry.macs, layer.cycles / mhz,
                None if entry.predicted_cycles is None else entry.predicted_cycles / mhz,
                layer.moved_bytes,
            )
            for entry, layer in zip(program.layers, run.layers, strict=True)
        ]  # fmt: skip
    return found


def errors_of(errors: Sequence[float | None]) -> Errors:
    known = [abs(one) for one in errors if one is not None]
    return Errors(len(known), fmean(known) if known else None)


def class_of(simulated_us: float) -> int:
    """The number of a layer's class (`SIZES_US`)."""
    return sum(simulated_us >= limit for limit in SIZES_US)
