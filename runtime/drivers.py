"""What runs a program, by its machine's isa: each kind of simulator behind the same few methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.program.format import Image, Program, Segment
from tvm_npu.runtime.errors import RunError
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import DEFAULT_BUDGET, Simulator
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.simulator import TileSimulator

PARAMETER_REGISTER = 11
"""a1: where every core of an NMP finds the program's parameter table."""


class Driver(Protocol):
    """A simulated machine that holds one program."""

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The image's DRAM, from the machine's base address on."""

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into DRAM."""

    def run(self, *, timing: bool) -> RunStatistics:
        """One run; raises the machine's trap."""


class NmpDriver:
    def __init__(
        self, program: Program, image: Image, machine: NmpMachine, budget: int | None
    ) -> None:
        self._budget = DEFAULT_BUDGET if budget is None else budget
        self._name = program.name
        self._image = image
        debug = program.debug
        self._simulator = Simulator(
            machine,
            image.code,
            image.addresses[Segment.CODE],
            image.end_address - machine.dram.base_address,
            layer_names=[layer.name for layer in program.layers],
            layer_of=debug["layer"].astype(np.int32),
            stream_of=debug["stream"].astype(np.int8),
            tile_registers=[program.scopes[int(scope)] for scope in debug["scope"]],
            element_bytes=_element_bytes(program),
        )
        self.write = self._simulator.write

    @property
    def dram(self) -> NDArray[np.uint8]:
        return self._simulator.dram

    def run(self, *, timing: bool) -> RunStatistics:
        statistics, codes = self._simulator.run(
            self._image.entry_address,
            {PARAMETER_REGISTER: self._image.parameter_address},
            timing=timing,
            budget=self._budget,
        )
        failed = [core for core, code in enumerate(codes) if code]
        if failed:
            raise RunError(
                f"program {self._name!r}: core {failed[0]} exited with {codes[failed[0]]}"
            )
        return statistics


def tile_driver(
    program: Program, image: Image, machine: TileMachine, budget: int | None
) -> TileSimulator:
    """The tile simulator has the methods already; its programs have no loops, and so no budget."""
    segments = {
        memory: (image.addresses[segment], program.segments[segment].size_bytes)
        for memory, segment in (
            (TileMemory.CONSTANTS, Segment.CONSTANTS),
            (TileMemory.ACTIVATIONS, Segment.ACTIVATIONS),
        )
    }
    return TileSimulator(
        machine,
        image.code,
        segments,
        image.end_address - machine.dram.base_address,
        precision="int16" if _element_bytes(program) == 2 else "int8",
        layer_names=[layer.name for layer in program.layers],
        layer_of=program.debug["layer"].astype(np.int32),
    )


def _element_bytes(program: Program) -> int:
    return (*program.outputs, *program.inputs)[0].element_bytes


DRIVERS: dict[str, Callable[[Program, Image, Any, int | None], Driver]] = {
    "nmp": NmpDriver,
    "tiles": tile_driver,
}
"""By the machine's isa."""


def driver_for(
    program: Program, image: Image, machine: MachineDescription, budget: int | None = None
) -> Driver:
    """A simulator with ``program`` at its place and its constants written."""
    driver = DRIVERS[machine.isa](program, image, machine, budget)
    driver.write(image.addresses[Segment.CONSTANTS], np.frombuffer(image.constants, np.uint8))
    return driver
