"""What one TLE transfers and computes for a layer, in sums."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC, Traffic
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class TleCost:
    """What one TLE does for a layer: traffic by stream (``weights`` with biases), the cycles of its
    MAC steps, its time when one goes on under the other (0: nothing does), the engines that want
    the DRAM when its does, and what goes from MB2 to MB0 to a window behind."""

    inputs: Traffic = NO_TRAFFIC
    weights: Traffic = NO_TRAFFIC
    outputs: Traffic = NO_TRAFFIC
    mac_cycles: float = 0.0
    overlapped_cycles: float = 0.0
    rivals: float = 1.0
    on_chip: Traffic = NO_TRAFFIC
    residuals: Traffic = NO_TRAFFIC

    def load_cycles(self, machine: NmpMachine) -> float:
        return (self.inputs + self.residuals + self.weights).engine_cycles(machine)

    def store_cycles(self, machine: NmpMachine) -> float:
        return (self.outputs + self.on_chip).engine_cycles(machine)

    def cycles(self, machine: NmpMachine) -> float:
        if self.overlapped_cycles:
            return self.overlapped_cycles
        streams = (self.inputs, self.residuals, self.weights, self.outputs, self.on_chip)
        moved = sum(one.engine_cycles(machine, self.rivals) for one in streams)
        return moved + self.mac_cycles
