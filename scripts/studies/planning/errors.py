"""How far predictions are from the simulator, layer by layer, on machines of every kind.

A layer's simulated time is from the end of the layers before it to its own end, on the slowest of
the units that share the machine; its predicted time is what the program's table says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from studies.planning.any_kind import simulated
from studies.planning.figures import GOAL_NETWORKS
from tvm_npu.sim.description import MachineDescription

SIZES_US = (10.0, 100.0, 1000.0)
"""Layers are put into classes by simulated time: below each of these, and above all."""
MEAN_GOAL, CLASS_GOAL = 0.02, 0.05
"""Mean absolute errors that the project set itself: of all layers of `GOAL_NETWORKS` on all
machines under all planners, and of each class of a machine and planner."""


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


def missed_errors(rows: Sequence[ErrorRow]) -> list[str]:
    """What is above its goal, in words; of machines and planners that have rows of all of
    `GOAL_NETWORKS`."""
    places: dict[tuple[str, str], list[ErrorRow]] = {}
    for row in rows:
        if row.model in GOAL_NETWORKS:
            places.setdefault((row.machine, row.planner), []).append(row)
    whole = {
        place: own for place, own in places.items() if {row.model for row in own} == GOAL_NETWORKS
    }
    means = [("all layers", [row for own in whole.values() for row in own], MEAN_GOAL)]
    for (machine, planner), own in whole.items():
        for number in range(len(SIZES_US) + 1):
            of_class = [row for row in own if class_of(row.simulated_us) == number]
            means.append((f"{planner} on {machine}, {class_name(number)}", of_class, CLASS_GOAL))
    found = [(name, errors_of([row.error for row in own]), goal) for name, own, goal in means]
    return [
        f"{name}: predictions are off by {errors.mean:.1%} on average, the goal is {goal:.0%}"
        for name, errors, goal in found
        if errors.mean is not None and errors.mean > goal
    ]


def class_name(number: int) -> str:
    if number == len(SIZES_US):
        return f"layers of {SIZES_US[-1]:,.0f} us and more"
    return f"layers below {SIZES_US[number]:,.0f} us"


def class_of(simulated_us: float) -> int:
    """The number of a layer's class (`SIZES_US`)."""
    return sum(simulated_us >= limit for limit in SIZES_US)
