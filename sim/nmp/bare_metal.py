"""Runs executables without an operating system on one core.

Behind the program's image lie, in this order, `HEAP_BYTES` that it may use as it likes (fewer where
DRAM ends), `GUARD_BYTES` that nobody may touch, and the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.errors import ElfError, SimError
from tvm_npu.sim.kinds import QUIET, ElfLeft, ElfObserver, ElfRun
from tvm_npu.sim.limits import DEFAULT, LimitError, Limits
from tvm_npu.sim.nmp.elf import ElfImage
from tvm_npu.sim.nmp.environment import Environment
from tvm_npu.sim.nmp.kind import KIND
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.trace import Trace
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.traps import Trap

STACK_POINTER = 2
HEAP_BYTES = 1 << 20
GUARD_BYTES = 1 << 16
STACK_BYTES = 1 << 20
CONSOLE_BYTES = 1 << 20
MOST_CODE_BYTES = 1 << 24
"""From the first executable byte to the last: every word is decoded before the program begins."""
USUAL_MACHINE = "nmp-4x8"
"""Whose memories count beside an executable's where no machine is named."""
MOST_INSTRUCTIONS = 100_000_000


def run_elf(
    image: ElfImage, machine: NmpMachine, limits: Limits = DEFAULT, observer: ElfObserver = QUIET
) -> ElfRun:
    """Runs a bare-metal RV32IM executable on core 0 until it exits by ecall (a7 = 93).

    Only executable segments hold instructions; elsewhere a core traps. Stores to segments that are
    not writable and loads from those that are not readable trap, and so does what the program has
    overwritten when it is executed. A trace
    comes from a second run up to the same instruction. Raises ElfError for code that lies too far
    apart and for an image that leaves no room for its stack, LimitError for an image larger than
    ``limits`` say or than there is memory for, SimError for observed ranges outside of the
    program's memory, Trap as `NmpSimulator.run` does.
    """
    try:
        return _run(image, machine, limits, observer)
    except MemoryError as error:
        raise LimitError(f"{image.name} on {machine.name}: no memory to simulate it") from error


def _run(
    image: ElfImage, machine: NmpMachine, limits: Limits, observer: ElfObserver
) -> ElfRun:
    dram = machine.dram
    program = _Program.of(image, dram.base_address, dram.capacity_bytes, machine.name)
    program.check_limits(image, machine, limits)
    for address, size in observer.ranges:
        program.check_range(address, size)
    simulator = program.simulator(image, machine)
    trap = None
    try:
        statistics, codes = program.run(simulator, limits)
    except Trap as found:
        trap = found
    written, dropped = simulator.console()
    if dropped:
        written += f"\n[{dropped} more bytes; a console keeps {CONSOLE_BYTES}]\n".encode()
    observer.console(written)
    if observer.trace_instructions:
        trace = Trace(max(0, simulator.executed - observer.trace_instructions))
        try:
            program.run(program.simulator(image, machine), limits, trace)
        except Trap as found:
            trap = found
        observer.trace([str(step) for step in trace.steps])
    left = ElfLeft(simulator.executed, simulator.registers(0), program.reader(simulator))
    observer.left(left)
    if trap is not None:
        raise trap
    return ElfRun(codes[0], statistics, left.registers, left.memory)


def check_loads(image: ElfImage, limits: Limits) -> None:
    """What `run_elf` raises before it runs anything, on a `USUAL_MACHINE` with enough DRAM that
    begins where the image does."""
    base = min(segment.address for segment in image.segments)
    program = _Program.of(image, base, (1 << 32) - base, "the address space from its begin on")
    program.check_limits(image, load_nmp_machine(USUAL_MACHINE), limits)


@dataclass(frozen=True)
class _Program:
    """Where an image lies, and what is around it; addresses but for ``dram_bytes``."""

    base: int
    entry: int
    guard: int
    dram_bytes: int

    @classmethod
    def of(cls, image: ElfImage, base: int, capacity: int, place: str) -> _Program:
        """In ``capacity`` bytes from ``base`` on, which messages call ``place``."""
        end = aligned(max(segment.end for segment in image.segments) - base, 16)
        heap = max(0, min(HEAP_BYTES, capacity - end - GUARD_BYTES - STACK_BYTES) // 16 * 16)
        dram_bytes = end + heap + GUARD_BYTES + STACK_BYTES
        if dram_bytes > capacity:
            raise ElfError(
                f"{image.name} needs {dram_bytes} bytes of DRAM: {end} for its segments, "
                f"{GUARD_BYTES} for the stack's guard and {STACK_BYTES} for the stack; {place} "
                f"has {capacity}"
            )
        return cls(base, image.entry, base + end + heap, dram_bytes)

    def check_limits(self, image: ElfImage, machine: NmpMachine, limits: Limits) -> None:
        """With the code decoded, and what one core can use."""
        _, code = _code(image)
        needed = KIND.host_bytes(machine, self.dram_bytes)
        needed += KIND.code_host_bytes(code, machine, cores=1)
        limits.check_memory(image.name, self.dram_bytes, needed)

    def simulator(self, image: ElfImage, machine: NmpMachine) -> NmpSimulator:
        begin, code = _code(image)
        read_only = tuple((one.address, one.end) for one in image.segments if not one.writable)
        guard = self.guard, self.guard + GUARD_BYTES
        unreadable = tuple((one.address, one.end) for one in image.segments if not one.readable)
        around = Environment(read_only, guard, CONSOLE_BYTES, unreadable)
        found = NmpSimulator(machine, code, begin, self.dram_bytes, environment=around)
        for segment in image.segments:
            found.write(segment.address, np.frombuffer(segment.data, np.uint8))
        return found

    def run(
        self, simulator: NmpSimulator, limits: Limits, trace: Trace | None = None
    ) -> tuple[RunStatistics, list[int]]:
        return simulator.run(
            self.entry, {STACK_POINTER: self.base + self.dram_bytes - 16}, cores=1,
            budget=limits.instructions or MOST_INSTRUCTIONS, most_work=limits.work, watch=trace,
        )  # fmt: skip

    def reader(self, simulator: NmpSimulator) -> Callable[[int, int], bytes]:
        def memory(address: int, size: int) -> bytes:
            self.check_range(address, size)
            at = address - self.base
            return simulator.dram[at : at + size].tobytes()

        return memory

    def check_range(self, address: int, size: int) -> None:
        at = address - self.base
        if at < 0 or size < 0 or at + size > self.dram_bytes:
            raise SimError(
                f"{size} bytes at {address:#x} do not lie in the program's memory, "
                f"{self.base:#x}..{self.base + self.dram_bytes:#x}"
            )


def _code_range(image: ElfImage) -> tuple[int, int]:
    """First address of all that is executable, and the one behind its end."""
    begin = min(segment.address for segment in image.executable) // 4 * 4
    end = max(segment.end for segment in image.executable)
    if end - begin > MOST_CODE_BYTES:
        raise ElfError(
            f"{image.name}: executable segments from {begin:#x} to {end:#x}: code may take "
            f"{MOST_CODE_BYTES} bytes from its begin to its end; link it closer together"
        )
    return begin, end


def _code(image: ElfImage) -> tuple[int, np.ndarray]:
    """(address, words) of all that is executable; between segments no word is an instruction."""
    begin, end = _code_range(image)
    code = np.zeros(-(-(end - begin) // 4), np.uint32)
    flat = code.view(np.uint8)
    for segment in image.executable:
        at = segment.address - begin
        flat[at : at + len(segment.data)] = np.frombuffer(segment.data, np.uint8)
    return begin, code
