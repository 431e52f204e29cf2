"""Runs executables without an operating system on one core."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.errors import ElfError, SimError
from tvm_npu.sim.kinds import ElfRun
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.sim.nmp.elf import ElfImage, Segment
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import NmpSimulator

STACK_POINTER = 2
STACK_BYTES = 1 << 20
MOST_CODE_BYTES = 1 << 24
"""From the first executable byte to the last: every word is decoded before the program begins."""
MOST_INSTRUCTIONS = 100_000_000


def run_elf(image: ElfImage, machine: NmpMachine, limits: Limits = DEFAULT) -> ElfRun:
    """Runs a bare-metal RV32IM executable on core 0 until it exits by ecall (a7 = 93).

    Only executable segments hold instructions; elsewhere a core traps. The stack is at the top of
    `STACK_BYTES` beyond the image. Raises ElfError for code that lies too far apart, LimitError for
    an image larger than ``limits`` say, Trap as `NmpSimulator.run` does.
    """
    base = machine.dram.base_address
    end = max(segment.end for segment in image.segments) - base
    dram_bytes = -(-(end + STACK_BYTES) // 16) * 16
    limits.check_memory("the executable", dram_bytes, dram_bytes)
    begin, code = _code(image.executable)
    simulator = NmpSimulator(machine, code, begin, dram_bytes)
    for segment in image.segments:
        simulator.write(segment.address, np.frombuffer(segment.data, np.uint8))
    statistics, codes = simulator.run(
        image.entry, {STACK_POINTER: base + dram_bytes - 16}, cores=1,
        budget=limits.instructions or MOST_INSTRUCTIONS, most_work=limits.work,
    )  # fmt: skip

    def memory(address: int, size: int) -> bytes:
        at = address - base
        if at < 0 or size < 0 or at + size > dram_bytes:
            raise SimError(
                f"{size} bytes at {address:#x} do not lie in the program's memory, "
                f"{base:#x}..{base + dram_bytes:#x}"
            )
        return simulator.dram[at : at + size].tobytes()

    return ElfRun(codes[0], statistics, simulator.registers(0), memory)


def _code(segments: tuple[Segment, ...]) -> tuple[int, np.ndarray]:
    """(address, words) of all that is executable; between segments no word is an instruction."""
    begin = min(segment.address for segment in segments) // 4 * 4
    end = max(segment.end for segment in segments)
    if end - begin > MOST_CODE_BYTES:
        raise ElfError(
            f"executable segments from {begin:#x} to {end:#x}: code may take {MOST_CODE_BYTES} "
            "bytes from its begin to its end; link it closer together"
        )
    code = np.zeros(-(-(end - begin) // 4), np.uint32)
    flat = code.view(np.uint8)
    for segment in segments:
        at = segment.address - begin
        flat[at : at + len(segment.data)] = np.frombuffer(segment.data, np.uint8)
    return begin, code
