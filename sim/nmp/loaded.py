"""An NMP that holds one program: all cores run its code, from its entry to their exit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.errors import SimError
from tvm_npu.sim.events import EventLog, EventSink
from tvm_npu.sim.image import ProgramImage
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import DEFAULT_BUDGET, NmpSimulator
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.watch import Watch

PARAMETER_REGISTER = 11
"""a1: where every core finds the program's parameter table."""


class LoadedProgram:
    """What `tvm_npu.sim.kinds.Simulator` asks for."""

    def __init__(self, image: ProgramImage, machine: NmpMachine, limits: Limits) -> None:
        self._image = image
        self._code = image.code
        self._limits = limits
        self._simulator = NmpSimulator(
            machine,
            self._code.words,
            self._code.address,
            image.end_address - machine.dram.base_address,
            layer_names=image.layer_names,
            layer_of=self._code.layer_of,
            stream_of=self._code.stream_of,
            tile_registers=self._code.tile_registers,
            element_bytes=ELEMENT_BYTES[image.precision],
            layer_bytes=tuple(ELEMENT_BYTES[one] for one in image.layer_precisions),
        )

    @property
    def dram(self) -> NDArray[np.uint8]:
        return self._simulator.dram

    def write(self, address: int, data: NDArray[Any]) -> None:
        self._simulator.write(address, data)

    def run(
        self,
        *,
        timing: bool = True,
        events: EventSink | None = None,
        watch: Watch | None = None,
    ) -> RunStatistics:
        """SimError when a core exits with something else than 0."""
        steps = None
        if watch is not None:
            steps = self._simulator.store_steps(watch)
            events = EventLog() if events is None else events
        statistics, codes = self._simulator.run(
            self._code.entry_address,
            {PARAMETER_REGISTER: self._image.parameter_address},
            timing=timing,
            budget=self._limits.instructions or DEFAULT_BUDGET,
            most_work=self._limits.work,
            events=events,
            watch=steps,
        )
        failed = [core for core, code in enumerate(codes) if code]
        if failed:
            raise SimError(
                f"program {self._image.name!r}: core {failed[0]} exited with {codes[failed[0]]}"
            )
        return statistics
