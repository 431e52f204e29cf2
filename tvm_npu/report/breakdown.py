"""What binds a layer: how long its units work, how long none does, how far from the roofline it is.

The roofline: "Roofline: an insightful visual performance model for multicore architectures"
(Williams, Waterman, Patterson, 2009). No layer takes less time than its multiply-accumulates at the
machine's peak rate, nor less than its bytes at the rate of the memory outside of the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.statistics import Statistics
from tvm_npu.sim.units import Role

Working = Literal["mac", "dma", "control"]
Bound = Literal["mac", "dma", "control", "waits"]
Roof = Literal["compute", "memory"]
IN_WORDS: dict[Bound, str] = {
    "mac": "the multiply-accumulate units: they are busy most of the time",
    "dma": "moving data: the engine that moves most is busy longer than the units that compute",
    "control": "issuing instructions: a control unit is busy longer than all others",
    "waits": "waiting: no unit works for half of the time; they wait for each other",
}
WORKS = 0.5
"""Share of its time that the busiest unit of a layer works, below which waits bind the layer."""


@dataclass(frozen=True)
class Breakdown:
    """Cycles of a layer's (or a run's) busiest unit of each role: units of one role work beside
    each other, and so do roles, so that the figures do not add up. ``wait_cycles`` pass while even
    the busiest unit of all does nothing. ``roofline_cycles`` are the least that the machine's peak
    rates allow, by ``roof``; ``roofline_share`` is what part of the time that is."""

    mac_cycles: float
    dma_cycles: float
    control_cycles: float
    wait_cycles: float
    bound: Bound
    roofline_cycles: float
    roofline_share: float
    roof: Roof


@dataclass(frozen=True)
class Roofs:
    """Peak rates of all devices of a machine; ``bytes_per_cycle`` None: it does not say."""

    macs_per_cycle: float
    bytes_per_cycle: float | None

    @property
    def ridge(self) -> float | None:
        """MACs a byte from which on the peak rate can be reached."""
        return None if self.bytes_per_cycle is None else self.macs_per_cycle / self.bytes_per_cycle

    @staticmethod
    def of(machine: MachineDescription, element_bytes: int) -> Roofs:
        devices = machine.device_count
        rate = machine.dram_bytes_per_cycle
        peak = machine.macs_per_cycle(element_bytes) * machine.core_count * devices
        return Roofs(peak, None if rate is None else rate * devices)

    def least_cycles(self, macs: int, moved_bytes: int) -> tuple[float, Roof]:
        """Below which no plan gets, and the roof that says so."""
        compute = macs / self.macs_per_cycle
        memory = 0.0 if self.bytes_per_cycle is None else moved_bytes / self.bytes_per_cycle
        return (memory, "memory") if memory > compute else (compute, "compute")


def break_down(measured: Statistics, macs: int, roofs: Roofs, devices: int = 1) -> Breakdown:
    """Of a layer that ran on ``devices`` beside each other, whose units' cycles ``measured`` sums.
    ``macs`` are the model's."""
    roles: tuple[Working, ...] = ("mac", "dma", "control")
    busy = {role: _busiest(measured, role) / devices for role in roles}
    cycles = measured.cycles
    busiest = max(roles, key=lambda role: busy[role])
    binding: Bound = busiest if busy[busiest] >= WORKS * cycles else "waits"
    needed = min(macs, measured.macs)  # machines may leave products with padding out
    least, roof = roofs.least_cycles(needed, measured.moved_bytes)
    return Breakdown(
        mac_cycles=busy["mac"],
        dma_cycles=busy["dma"],
        control_cycles=busy["control"],
        wait_cycles=max(0.0, cycles - max(busy.values())),
        bound=binding,
        roofline_cycles=least,
        roofline_share=least / cycles if cycles > 0 else 0.0,
        roof=roof,
    )


def _busiest(measured: Statistics, role: Role) -> float:
    return max(measured.busy_cycles(role), default=0.0)
