"""What tvm-npu's simulator side asks of the Loom: the object KIND, found by its entry point."""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import Any

from loom_npu.isa import LOOM_ISA
from loom_npu.machine import LoomMachine
from tvm_npu.sim.image import ProgramImage
from tvm_npu.sim.kinds import MachineKind, Simulator
from tvm_npu.sim.limits import Limits


class LoomKind(MachineKind):
    description = LoomMachine
    isa = LOOM_ISA
    machines = resources.files("loom_npu") / "machines"

    def load(self, image: ProgramImage, machine: Any, limits: Limits) -> Simulator:
        from loom_npu.simulator import Engine
        from tvm_npu.sim.plain import PlainSimulator

        return PlainSimulator(image, machine, self.isa, "halt", partial(Engine, machine))


KIND = LoomKind()
