"""The NMP simulator's Python face: load an image once, run it many times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.blas import serial_blas
from tvm_npu.sim.compiled.listening import LONG_BYTES, Listening
from tvm_npu.sim.compiled.slices import begin_run, interrupts
from tvm_npu.sim.dram import check_code, check_room, write_bytes
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.event_table import event_room
from tvm_npu.sim.events import EventSink
from tvm_npu.sim.isa.builder import ABI_NAMES
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.limits import MOST_WORK
from tvm_npu.sim.locks import ForkedLock
from tvm_npu.sim.nmp import engine
from tvm_npu.sim.nmp.columns import RUNNING, WAITING, TrapSlot
from tvm_npu.sim.nmp.environment import Environment, environment_arrays
from tvm_npu.sim.nmp.events import collect_events, register_table
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.state import make_costs, make_state, reset_for_run
from tvm_npu.sim.nmp.statistics import collect
from tvm_npu.sim.nmp.traps import DETAIL_FORMATS, MEMORY_NAMES, TrapCode
from tvm_npu.sim.nmp.watching import StoreSteps
from tvm_npu.sim.nmp.xnmp import NMP_ISA, DmaRegister, MacRegister
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.traps import Place, Trap, Waiter
from tvm_npu.sim.watch import Watch

DEFAULT_BUDGET = 2_000_000_000
"""Instructions of all cores together before a run counts as runaway."""

CORE_REGISTER = 10
"""a0: the core's own number when a run starts."""

DEFAULT_ENVIRONMENT = Environment()

_LEVELS = ("TLT", "TLE", "global")
_TRANSFERS = ("nmp_load", "nmp_mload", "nmp_store", "nmp_forward")


class NmpSimulator:
    """One machine with one code image in its DRAM.

    ``code`` are instruction words at ``code_address``; ``dram_bytes`` is how much DRAM the image
    uses from ``machine.dram.base_address`` on (accesses beyond it trap). ``layer_of`` and
    ``stream_of`` give each instruction's layer and DMA stream for statistics and traps;
    ``tile_registers`` maps an instruction index to {tile coordinate name: register}. In
    ``environment`` is what else the program finds: without one, its code alone is read-only.
    """

    def __init__(
        self,
        machine: NmpMachine,
        code: NDArray[np.uint32],
        code_address: int,
        dram_bytes: int,
        *,
        layer_names: Sequence[str] = (),
        layer_of: NDArray[np.int32] | None = None,
        stream_of: NDArray[np.int8] | None = None,
        tile_registers: Sequence[Mapping[str, int]] = (),
        element_bytes: int = 2,
        layer_bytes: tuple[int, ...] | None = None,
        environment: Environment = DEFAULT_ENVIRONMENT,
    ) -> None:
        check_room(machine, dram_bytes)
        check_code(machine, code_address, len(code), dram_bytes)
        self.machine = machine
        self.layer_names = tuple(layer_names)
        self._tile_registers = tuple(tile_registers)
        self._element_bytes, self._layer_bytes = element_bytes, layer_bytes
        self._lock = ForkedLock()
        scratchpads = machine.memories
        operands = scratchpads.mb0_bytes + scratchpads.mb1_bytes + scratchpads.mb2_bytes
        self._runs = Listening(operands > LONG_BYTES)
        words = np.ascontiguousarray(code, np.uint32)
        count = len(words)
        self._dram_bytes = dram_bytes
        layers = np.full(count, -1) if layer_of is None else np.asarray(layer_of, np.int32)
        streams = np.zeros(count) if stream_of is None else np.asarray(stream_of, np.int8)
        for name, array, low, high in (
            ("layer_of", layers, -1, len(self.layer_names)),
            ("stream_of", streams, 0, len(Stream)),
        ):
            if array.shape != (count,) or not ((array >= low) & (array < high)).all():
                raise SimError(f"{name} needs {count} numbers from {low} to {high - 1}")
        self._state = make_state(
            machine,
            NMP_ISA.decode_array(words),
            words,
            code_address,
            dram_bytes,
            layers.astype(np.int32),
            streams.astype(np.int8),
            len(self.layer_names),
            register_table(self._tile_registers, count),
            environment_arrays(environment, (code_address, code_address + 4 * count)),
        )
        self.write(code_address, words.view(np.uint8))

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The image's DRAM, from the machine's base address on; a view, writable."""
        self._runs.settle()
        return self._state.dram[: self._dram_bytes]

    def registers(self, core: int) -> dict[str, int]:
        """A core's registers by their ABI names, as they are after a run, unsigned."""
        values = self._state.regs[core].astype(np.uint32).tolist()
        return dict(zip(ABI_NAMES, values, strict=True))

    def console(self) -> tuple[bytes, int]:
        """What the run has written, and how many bytes more than there is room for."""
        count = int(self._state.console_count[0])
        kept = self._state.console[:count].tobytes()
        return kept, count - len(kept)

    @property
    def executed(self) -> int:
        """Instructions of the last run, also of one that has trapped."""
        return int(self._state.counters[0])

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into DRAM."""
        write_bytes(self.dram, self.machine.dram.base_address, address, data)

    def run(
        self,
        entry: int,
        arguments: Mapping[int, int] | None = None,
        *,
        timing: bool = True,
        cores: int | None = None,
        budget: int = DEFAULT_BUDGET,
        most_work: int = MOST_WORK,
        events: EventSink | None = None,
        watch: engine.Watch | None = None,
    ) -> tuple[RunStatistics, list[int]]:
        """Starts ``cores`` cores (default: all) at ``entry`` and runs until all have exited.

        ``arguments`` presets registers of every core; x10 (a0) holds the core's number. Returns
        statistics and the exit codes. Raises Trap when a core traps, blocks for ever or does not
        end within ``budget`` instructions and ``most_work`` products, elements and bytes. Values do
        not depend on ``timing``; neither they nor the statistics depend on ``events``, which gets
        the run's events, or on ``watch``.
        """
        started = self.machine.core_count if cores is None else cores
        if not 1 <= started <= self.machine.core_count:
            raise SimError(f"{started} cores to start; {self.machine.name} has "
                           f"{self.machine.core_count}")  # fmt: skip
        for register in arguments or {}:
            if not 1 <= register <= 31 or register == CORE_REGISTER:
                raise SimError(f"register {register} cannot hold an argument; 1 to 31 can, "
                               f"except {CORE_REGISTER}")  # fmt: skip
        return self._runs.call(
            lambda: self._run(
                entry, arguments or {}, timing, started, budget, most_work, events, watch
            )
        )

    def _run(
        self, entry: int, arguments: Mapping[int, int], timing: bool, started: int, budget: int,
        most_work: int, events: EventSink | None, watch: engine.Watch | None,
    ) -> tuple[RunStatistics, list[int]]:  # fmt: skip
        with self._lock(), serial_blas, interrupts:
            state = self._state
            if events is not None and not len(state.events):
                state = state._replace(**event_room(state.events.shape[1]))
            self._read_overwritten_code()
            reset_for_run(state)
            begin_run(state.work, most_work)
            state.time[self.machine.core_count :] = np.inf
            state.pc[:started] = entry
            state.status[:started] = RUNNING
            for register, value in arguments.items():
                state.regs[:started, register] = np.int64(value).astype(np.int32)
            state.regs[:started, CORE_REGISTER] = np.arange(started)
            records = events is not None
            costs = make_costs(self.machine, self._dram_bytes, timing, records)
            self._state = state = engine.run(state, costs, budget, watch)
            if state.trap[TrapSlot.CODE]:
                raise self._trap()
            statistics = collect(
                state, costs, self.machine, self.layer_names, self._element_bytes,
                self._layer_bytes,
            )
            if events is not None:
                events.record(
                    collect_events(state, self.machine, self.layer_names, self._tile_registers)
                )
            return statistics, state.exit_code[:started].tolist()

    def _read_overwritten_code(self) -> None:
        """A run has overwritten code: the next one begins with what lies in DRAM."""
        state = self._state
        if state.counters[2]:
            begin = int(state.code_base[0]) - self.machine.dram.base_address
            state.words[:] = self.dram[begin : begin + state.words.nbytes].view(np.uint32)
            state.decoded[:] = NMP_ISA.decode_array(state.words)

    def store_steps(self, watch: Watch) -> engine.Watch:
        """What `run` takes, in a run that records events, so that ``watch`` sees every store."""
        return StoreSteps(watch, self.machine.dram.base_address, self._place)

    def _row(self, pc: int) -> int | None:
        row, rest = divmod(pc - int(self._state.code_base[0]), 4)
        return row if 0 <= row < len(self._state.words) and not rest else None

    def _trap(self) -> Trap:
        record = self._state.trap
        code = TrapCode(int(record[TrapSlot.CODE]))
        if code == TrapCode.DEADLOCK:
            return self._deadlock()
        core, pc = int(record[TrapSlot.CORE]), int(record[TrapSlot.PC])
        a, b, c = (int(record[slot]) for slot in (TrapSlot.A, TrapSlot.B, TrapSlot.C))
        place = self._place(core, pc)
        detail = DETAIL_FORMATS[code].format(
            a=a,
            b=b,
            c=c,
            memory=MEMORY_NAMES[int(record[TrapSlot.MEMORY])],
            register=_register(place.instruction, c),
            semaphores=self.machine.dme.semaphores,
            machine=self.machine.name,
        )
        if code == TrapCode.PC_OUTSIDE_CODE and a >= 0:
            origin = self._place(core, a)
            detail += f", reached from {a:#x} ({origin.instruction})"
            place = replace(place, layer=origin.layer, tile=origin.tile)
        elif code in (TrapCode.HAZARD, TrapCode.RACE) and b >= 0:
            detail += f"; transfer of {b:#x} ({self._place(core, b).instruction})"
        return Trap(code, place, detail)

    def _place(self, core: int, pc: int) -> Place:
        """Core and ``pc``, with instruction, layer and tile when ``pc`` is inside the code."""
        place = Place(unit=f"core {core}", position=f"at {pc:#x}", address=pc)
        row = self._row(pc)
        if row is None:
            return place
        tile = {}
        if row < len(self._tile_registers):
            registers = self._state.regs[core]
            tile = {k: int(registers[r]) for k, r in self._tile_registers[row].items()}
        text = disassemble(int(self._state.words[row]), isa=NMP_ISA)
        return replace(place, index=row, instruction=text, layer=self._layer(row), tile=tile)

    def _layer(self, row: int | None) -> str:
        layer = len(self.layer_names) if row is None else int(self._state.layer_of[row])
        return self.layer_names[layer] if layer < len(self.layer_names) else ""

    def _deadlock(self) -> Trap:
        state = self._state
        places, waiters = [], []
        for core in range(self.machine.core_count):
            if state.status[core] == WAITING:
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
                place = self._place(core, int(state.pc[core]) - 4)
                places.append(place)
                waiters.append(Waiter(replace(place, instruction="", tile={}), what))
        return Trap(TrapCode.DEADLOCK, places[0], "deadlock", tuple(waiters))


def _register(instruction: str, number: int) -> str:
    """The configuration register that an instruction complains about."""
    unit, names = ("DMA", DmaRegister) if instruction.startswith(_TRANSFERS) else (
        "MAC", MacRegister)  # fmt: skip
    name = names(number).name if number < len(names) else str(number)
    return f"{unit} register {name}"
