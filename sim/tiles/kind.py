"""Tile machines as a kind of machine: what `tvm_npu.sim.kinds` knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.kinds import (
    CodeFault,
    FileReader,
    MachineKind,
    Simulator,
    chip_bytes,
    illegal_word,
)
from tvm_npu.sim.tiles.eplanner_json import eplanner_machine
from tvm_npu.sim.tiles.machine import SHARED, SPLIT, TileMachine, without_alternatives

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tvm_npu.sim.image import ProgramImage
    from tvm_npu.sim.isa.table import Isa
    from tvm_npu.sim.limits import Limits


class TilesKind(MachineKind):
    description = TileMachine
    hidden_locations = (SPLIT, SHARED)
    readers: Mapping[str, FileReader] = {".json": (eplanner_machine, "setup-a")}

    @property
    def isa(self) -> Isa:
        from tvm_npu.sim.tiles.isa import TILE_ISA

        return TILE_ISA

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        without_alternatives(base, values)

    def code_fault(
        self, words: NDArray[np.uint32], machine: MachineDescription
    ) -> CodeFault | None:
        """Words that are no instruction, and code that does not end with tend."""
        illegal = illegal_word(words, self.isa)
        if illegal is not None:
            return illegal
        end = self.isa.encode("tend")
        last = int(words[-1]) if len(words) else None
        if last != end:
            return CodeFault("last word of the code", last, f"{end} (tend)")
        return None

    def check_image(self, image: ProgramImage, machine: MachineDescription) -> None:
        """One code, and one numeric type."""
        _ = image.code, image.of_one_precision()

    def host_bytes(self, machine: MachineDescription, dram_bytes: int) -> int:
        """The memories on the chip with a mark for each byte that was written; a DMA controller has
        a copy of each channel's program."""
        assert isinstance(machine, TileMachine)
        dmac = machine.dmac
        programs = 0 if dmac is None else dmac.channels * (dmac.program_bytes + dmac.fifo_bytes)
        return dram_bytes + 2 * chip_bytes(machine) + programs

    def code_host_bytes(self, words: NDArray[np.uint32], machine: MachineDescription) -> int:
        """With the operands of the largest instructions, which are unpacked into numbers."""
        from tvm_npu.sim.tiles.host_memory import unpacked_bytes

        assert isinstance(machine, TileMachine)
        return super().code_host_bytes(words, machine) + unpacked_bytes(words, machine)

    def load(
        self, image: ProgramImage, machine: MachineDescription, limits: Limits
    ) -> Simulator:
        """Tile programs have no loops, so their words need no limit of the kind's own; the loops of
        DMA programs are bounded by work."""
        from tvm_npu.sim.compiled.slices import ANY_INSTRUCTIONS
        from tvm_npu.sim.tiles.isa import TileMemory
        from tvm_npu.sim.tiles.simulator import TileSimulator

        assert isinstance(machine, TileMachine)
        code = image.code
        return TileSimulator(
            machine,
            code.words,
            {
                TileMemory.CONSTANTS: (image.constants.address, image.constants.size_bytes),
                TileMemory.ACTIVATIONS: (image.activations.address, image.activations.size_bytes),
            },
            image.end_address - machine.dram.base_address,
            precision=image.of_one_precision(),
            layer_names=image.layer_names,
            layer_of=code.layer_of,
            budget=ANY_INSTRUCTIONS if limits.instructions is None else limits.instructions,
            most_work=limits.work,
        )


KIND = TilesKind()
