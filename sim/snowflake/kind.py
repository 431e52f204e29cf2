"""Snowflake machines as a kind of machine: what `tvm_npu.sim.kinds` knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.kinds import MachineKind, Simulator, chip_bytes
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

if TYPE_CHECKING:

    from tvm_npu.sim.image import CodeImage, ProgramImage
    from tvm_npu.sim.isa.table import Isa
    from tvm_npu.sim.limits import Limits


class SnowflakeKind(MachineKind):
    description = SnowflakeMachine
    holds_addresses = True

    @property
    def isa(self) -> Isa:
        from tvm_npu.sim.snowflake.isa import SNOWFLAKE_ISA

        return SNOWFLAKE_ISA

    def check_image(self, image: ProgramImage, machine: MachineDescription) -> None:
        """One code for all clusters or one for each, and one numeric type."""
        assert isinstance(machine, SnowflakeMachine)
        image.of_one_precision()
        self._codes(image, machine)

    def _codes(self, image: ProgramImage, machine: SnowflakeMachine) -> tuple[CodeImage, ...]:
        """Of each cluster. SimError as `check_image`."""
        clusters = machine.clusters.count
        if len(image.codes) not in (1, clusters):
            raise SimError(
                f"program {image.name!r} has {len(image.codes)} codes; {machine.name} has "
                f"{clusters} clusters"
            )
        return image.codes * clusters if len(image.codes) == 1 else image.codes

    def host_bytes(self, machine: MachineDescription, dram_bytes: int) -> int:
        """The memories on the chip as they are, and results that wait for their MBuf."""
        from tvm_npu.sim.snowflake.state import staged_bytes

        assert isinstance(machine, SnowflakeMachine)
        return dram_bytes + chip_bytes(machine) + staged_bytes(machine)

    def load(
        self, image: ProgramImage, machine: MachineDescription, limits: Limits
    ) -> Simulator:
        from tvm_npu.sim.snowflake.simulator import (
            MOST_INSTRUCTIONS,
            Segment,
            SnowflakeSimulator,
        )

        assert isinstance(machine, SnowflakeMachine)
        codes = self._codes(image, machine)
        ranges = ((image.constants, False), (image.activations, True), (image.states, True))
        segments = [
            Segment(part.address, part.size_bytes, writable)
            for part, writable in ranges
            if part.size_bytes
        ]
        return SnowflakeSimulator(
            machine,
            [code.words for code in codes],
            segments,
            image.end_address - machine.dram.base_address,
            layer_names=image.layer_names,
            layer_of=[code.layer_of for code in codes],
            budget=MOST_INSTRUCTIONS if limits.instructions is None else limits.instructions,
            most_work=limits.work,
        )


KIND = SnowflakeKind()
