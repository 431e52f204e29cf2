"""The NMP simulator's Python face: load an image once, run it many times."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from tvm_npu.sim.elf import ElfImage
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.isa.xnmp import NMP_ISA
from tvm_npu.sim.machine import Machine
from tvm_npu.sim.nmp import engine
from tvm_npu.sim.nmp.state import RUNNING, TrapSlot, make_costs, make_state, reset_for_run
from tvm_npu.sim.nmp.statistics import RunStatistics, collect
from tvm_npu.sim.nmp.traps import DETAIL_FORMATS, MEMORY_NAMES, Trap, TrapCode, Waiter

DEFAULT_BUDGET = 2_000_000_000
"""Instructions of all cores together before a run counts as runaway."""

_LEVELS = ("TLT", "TLE", "global")
_blas = ThreadpoolController()


class Simulator:
    """One machine with one code image in its DRAM.

    ``code`` are instruction words at ``code_address``; ``dram_bytes`` is how much DRAM the image
    uses from ``machine.dram.base_address`` on (accesses beyond it trap). ``layer_of`` and
    ``stream_of`` give each instruction's layer and DMA stream for statistics and traps;
    ``tile_registers`` maps an instruction index to {tile coordinate name: register}.
    """

    def __init__(
        self,
        machine: Machine,
        code: NDArray[np.uint32],
        code_address: int,
        dram_bytes: int,
        *,
        layer_names: Sequence[str] = (),
        layer_of: NDArray[np.int32] | None = None,
        stream_of: NDArray[np.int8] | None = None,
        tile_registers: Sequence[Mapping[str, int]] = (),
        element_bytes: int = 2,
    ) -> None:
        if dram_bytes > machine.dram.capacity_bytes:
            raise SimError(
                f"the image needs {dram_bytes} bytes of DRAM; {machine.name} has "
                f"{machine.dram.capacity_bytes}"
            )
        base = machine.dram.base_address
        if code_address < base or code_address + code.nbytes > base + dram_bytes:
            raise SimError(f"code at {code_address:#x} ({code.nbytes} bytes) is outside the image")
        self.machine = machine
        self.layer_names = tuple(layer_names)
        self._tile_registers = tuple(tile_registers)
        self._element_bytes = element_bytes
        self._lock = threading.Lock()
        words = np.ascontiguousarray(code, np.uint32)
        count = len(words)
        self._dram_bytes = dram_bytes
        self._state = make_state(
            machine,
            NMP_ISA.decode_array(words),
            words,
            code_address,
            dram_bytes,
            np.full(count, -1, np.int32) if layer_of is None else np.asarray(layer_of, np.int32),
            np.zeros(count, np.int8) if stream_of is None else np.asarray(stream_of, np.int8),
            max(1, len(self.layer_names)),
        )
        self.write(code_address, words.view(np.uint8))

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The image's DRAM, from the machine's base address on; a view, writable."""
        return self._state.dram[: self._dram_bytes]

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into DRAM."""
        offset = address - self.machine.dram.base_address
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if offset < 0 or offset + flat.size > self._dram_bytes:
            raise SimError(
                f"{flat.size} bytes at {address:#x} do not lie in the image's {self._dram_bytes} "
                f"bytes of DRAM"
            )
        self._state.dram[offset : offset + flat.size] = flat

    def run(
        self,
        entry: int,
        arguments: Mapping[int, int] | None = None,
        *,
        timing: bool = True,
        cores: int | None = None,
        budget: int = DEFAULT_BUDGET,
    ) -> tuple[RunStatistics, list[int]]:
        """Starts ``cores`` cores (default: all) at ``entry`` and runs until all have exited.

        ``arguments`` presets registers of every core; x10 (a0) holds the core's number. Returns
        statistics and the exit codes. Raises Trap when a core traps, blocks for ever or does not
        end within ``budget`` instructions. Values do not depend on ``timing``.
        """
        with self._lock, _blas.limit(limits=1):
            state = self._state
            started = self.machine.core_count if cores is None else cores
            reset_for_run(state)
            state.time[self.machine.core_count :] = np.inf
            state.pc[:started] = entry
            state.status[:started] = RUNNING
            for register, value in (arguments or {}).items():
                state.regs[:started, register] = np.int64(value).astype(np.int32)
            state.regs[:started, 10] = np.arange(started)
            engine.run(state, make_costs(self.machine, self._dram_bytes, timing), budget)
            if state.trap[TrapSlot.CODE]:
                raise self._trap()
            statistics = collect(state, self.machine, self.layer_names, self._element_bytes)
            return statistics, state.exit_code[:started].tolist()

    def _row(self, pc: int) -> int | None:
        row = (pc - int(self._state.code_base[0])) >> 2
        return row if 0 <= row < len(self._state.words) else None

    def _trap(self) -> Trap:
        record = self._state.trap
        code = TrapCode(int(record[TrapSlot.CODE]))
        if code == TrapCode.DEADLOCK:
            waiters = self._waiters()
            first = waiters[0]
            return Trap(code, first.core, first.pc, "deadlock", waiters=waiters)
        core, pc = int(record[TrapSlot.CORE]), int(record[TrapSlot.PC])
        detail = DETAIL_FORMATS[code].format(
            a=int(record[TrapSlot.A]),
            b=int(record[TrapSlot.B]),
            c=int(record[TrapSlot.C]),
            memory=MEMORY_NAMES[int(record[TrapSlot.MEMORY])],
        )
        trap = Trap(code, core, pc, detail)
        row = self._row(pc)
        if row is not None:
            trap.instruction = disassemble(int(self._state.words[row]))
            layer = int(self._state.layer_of[row])
            if 0 <= layer < len(self.layer_names):
                trap.layer = self.layer_names[layer]
            if row < len(self._tile_registers):
                registers = self._state.regs[core]
                trap.tile = {k: int(registers[r]) for k, r in self._tile_registers[row].items()}
        return trap

    def _waiters(self) -> tuple[Waiter, ...]:
        state = self._state
        found = []
        for core in range(self.machine.core_count):
            if state.status[core] == 1:
                level, sem = int(state.wait_level[core]), int(state.wait_sem[core])
                value = (
                    state.sem_tlt[core, sem],
                    state.sem_tle[core // self.machine.cores.tlts_per_tle, sem],
                    state.sem_global[sem],
                )[level]
                what = (
                    f"{_LEVELS[level]} semaphore {sem} to reach {int(state.wait_count[core])} "
                    f"(it is {int(value)})"
                )
                found.append(Waiter(core, int(state.pc[core]) - 4, what))
        return tuple(found)


def run_elf(
    image: ElfImage, machine: Machine, *, budget: int = 100_000_000, memory_bytes: int = 1 << 20
) -> tuple[int, RunStatistics]:
    """Runs a bare-metal RV32IM executable on core 0 until it exits by ecall (a7 = 93).

    The stack starts at the top of ``memory_bytes`` beyond the image. Returns (exit code,
    statistics); raises Trap as `Simulator.run` does.
    """
    base = machine.dram.base_address
    end = max(address + memory for address, _, memory in image.segments) - base
    code_begin = min(address for address, _, _ in image.segments)
    code_end = max(address + len(data) for address, data, _ in image.segments)
    code = np.zeros(-(-(code_end - code_begin) // 4), np.uint32)
    flat = code.view(np.uint8)
    for address, data, _ in image.segments:
        at = address - code_begin
        flat[at : at + len(data)] = np.frombuffer(data, np.uint8)
    dram_bytes = -(-(end + memory_bytes) // 16) * 16
    simulator = Simulator(machine, code, code_begin, dram_bytes)
    statistics, codes = simulator.run(
        image.entry, {2: base + dram_bytes - 16}, cores=1, budget=budget
    )
    return codes[0], statistics
