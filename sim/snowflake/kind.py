"""Snowflake machines as a kind of machine: what `tvm_npu.sim.kinds` knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.kinds import CodeFault, FileReader, Simulator, illegal_word
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tvm_npu.sim.image import ProgramImage
    from tvm_npu.sim.isa.table import Isa


@dataclass(frozen=True)
class SnowflakeKind:
    description: type[SnowflakeMachine] = SnowflakeMachine
    holds_addresses: bool = True
    hidden_locations: tuple[str, ...] = ()
    readers: Mapping[str, FileReader] = field(default_factory=dict)
    machines: None = None

    @property
    def isa(self) -> Isa:
        from tvm_npu.sim.snowflake.isa import SNOWFLAKE_ISA

        return SNOWFLAKE_ISA

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        """It has none."""

    def code_fault(
        self, words: NDArray[np.uint32], machine: MachineDescription
    ) -> CodeFault | None:
        """Words that are no instruction."""
        return illegal_word(words, self.isa)

    def load(
        self, image: ProgramImage, machine: MachineDescription, budget: int | None
    ) -> Simulator:
        from tvm_npu.sim.snowflake.simulator import (
            MOST_INSTRUCTIONS,
            Segment,
            SnowflakeSimulator,
        )

        assert isinstance(machine, SnowflakeMachine)
        image.of_one_precision()
        clusters = machine.clusters.count
        codes = image.codes * clusters if len(image.codes) == 1 else image.codes
        segments = (
            Segment(image.constants.address, image.constants.size_bytes, False),
            Segment(image.activations.address, image.activations.size_bytes, True),
        )
        return SnowflakeSimulator(
            machine,
            [code.words for code in codes],
            segments,
            image.end_address - machine.dram.base_address,
            layer_names=image.layer_names,
            layer_of=[code.layer_of for code in codes],
            budget=MOST_INSTRUCTIONS if budget is None else budget,
        )


KIND = SnowflakeKind()
