"""The NMP as a kind of machine: what `tvm_npu.sim.kinds` knows of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.kinds import (
    QUIET,
    CodeFault,
    ElfObserver,
    ElfRun,
    MachineKind,
    Simulator,
)
from tvm_npu.sim.nmp.machine import NmpMachine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tvm_npu.sim.image import ProgramImage
    from tvm_npu.sim.isa.table import Isa
    from tvm_npu.sim.limits import Limits

_OVER_RINGS = ("nmp_forward", "nmp_forward3d")


class NmpKind(MachineKind):
    description = NmpMachine
    holds_addresses = True

    @property
    def isa(self) -> Isa:
        from tvm_npu.sim.nmp.xnmp import NMP_ISA

        return NMP_ISA

    def code_fault(
        self, words: NDArray[np.uint32], machine: MachineDescription
    ) -> CodeFault | None:
        """Forwards on a machine without ring buses; data may stand among the instructions."""
        assert isinstance(machine, NmpMachine)
        for mnemonic in _OVER_RINGS if machine.ring is None else ():
            item = self.isa.by_mnemonic[mnemonic]
            found = int(((words & item.mask) == item.match).sum())
            if found:
                return CodeFault(
                    f"number of {mnemonic} instructions",
                    found,
                    f"0 on machine {machine.name}, which has no ring bus",
                )
        return None

    def check_image(self, image: ProgramImage, machine: MachineDescription) -> None:
        """One code for all cores, at a multiple of 4."""
        from tvm_npu.sim.dram import check_code

        code, base = image.code, machine.dram.base_address
        check_code(machine, code.address, len(code.words), image.end_address - base)

    def host_bytes(self, machine: MachineDescription, dram_bytes: int) -> int:
        from tvm_npu.sim.nmp.host_memory import memory_bytes

        assert isinstance(machine, NmpMachine)
        return dram_bytes + memory_bytes(machine)

    def code_host_bytes(
        self, words: NDArray[np.uint32], machine: MachineDescription, cores: int | None = None
    ) -> int:
        """With the buffers that its convolutions fill on ``cores`` cores (default: all)."""
        from tvm_npu.sim.nmp.host_memory import column_bytes

        assert isinstance(machine, NmpMachine)
        columns = column_bytes(machine, words, machine.core_count if cores is None else cores)
        return super().code_host_bytes(words, machine) + columns

    def load(
        self, image: ProgramImage, machine: MachineDescription, limits: Limits
    ) -> Simulator:
        from tvm_npu.sim.nmp.loaded import LoadedProgram

        assert isinstance(machine, NmpMachine)
        return LoadedProgram(image, machine, limits)

    @property
    def start_files(self) -> Path:
        return Path(__file__).parent / "start"

    def run_elf(
        self, path: Path, machine: MachineDescription, limits: Limits,
        observer: ElfObserver = QUIET,
    ) -> ElfRun:  # fmt: skip
        from tvm_npu.sim.nmp.bare_metal import run_elf
        from tvm_npu.sim.nmp.elf import read_elf

        assert isinstance(machine, NmpMachine)
        return run_elf(read_elf(path, machine), machine, limits, observer)

    def elf_summary(self, path: Path, limits: Limits) -> str:
        from tvm_npu.sim.nmp.bare_metal import check_loads
        from tvm_npu.sim.nmp.elf import read_elf

        image = read_elf(path)
        check_loads(image, limits)
        size = sum(segment.memory_size for segment in image.segments)
        return f"{len(image.segments)} segments of {size} bytes, entry {image.entry:#x}"


KIND = NmpKind()
