"""Programs at random: the simulator against the interpreter."""

from __future__ import annotations

import random

import numpy as np

from tests.sim.nmp import random_programs
from tests.sim.nmp.interpreted_core import Stop
from tests.sim.nmp.interpreter import Interpreter
from tests.sim.nmp.programs import BASE
from tests.sim.nmp.random_programs import DRAM_BYTES, INPUTS
from tests.sim.nmp.rv32im_model import MASK
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.traps import Trap

BUDGET = 20_000
RACES = ("HAZARD", "RACE")


def compare(seed: int) -> str:
    """``agrees``, ``traps``, ``races``, ``unnamed`` (instructions that nothing orders have not met
    in the times of this run), ``runs on``, or what differs."""
    rng = random.Random(f"nmp {seed}")
    machine, text, inputs = random_programs.program(rng)
    code = assemble(text, BASE, isa=NMP_ISA)
    return _compare(machine, code, inputs)


def compare_rv32im(seed: int) -> str:
    """The same of code without Xnmp, some of whose words are changed."""
    rng = random.Random(f"rv32im {seed}")
    code = assemble(random_programs.scalar_program(rng), BASE, isa=NMP_ISA)
    for _ in range(rng.choice((0, 0, 1, 3))):
        code[rng.randrange(len(code))] ^= np.uint32(1 << rng.randrange(32))
    return _compare(random_programs.machines()[0], code, b"")


CASES = {"nmp": compare, "rv32im": compare_rv32im}


def _compare(machine: NmpMachine, code: np.ndarray, inputs: bytes) -> str:
    simulator = NmpSimulator(machine, code, BASE, DRAM_BYTES)
    simulator.write(INPUTS, np.frombuffer(inputs, np.uint8))
    other = Interpreter(machine, code.tolist(), BASE, bytearray(simulator.dram.tobytes()))
    stops = other.run(BUDGET)
    try:
        simulator.run(BASE, budget=BUDGET)
        found: Trap | None = None
    except Trap as trap:
        found = trap
    name = found.code.name if found is not None else ""
    at = found.place.address if found is not None else 0
    certain = other.order.certain
    if name in RACES:
        same = machine.core_count == 1 and at in other.order.races
        return "races" if same else f"differs: {found}, but the program waits for it"
    if certain:
        return f"differs: no race is named, at {sorted(certain)}; {found}"
    if stops is None or name == "RUNAWAY":
        same = stops is None and name == "RUNAWAY"
        return "runs on" if same else f"differs: {found} within {BUDGET} instructions, {stops}"
    if found is not None:
        return _stopped(found, stops)
    if stops:
        return f"differs: no trap, {_say(stops)}"
    differs = _memories(simulator, other)
    return differs or ("unnamed" if other.order.races else "agrees")


def _say(stops: list[Stop]) -> str:
    said = (f"core {one.core} at {one.pc:#x} for {sorted(one.codes)}" for one in stops)
    return "the interpreter stops " + "; ".join(said) if stops else "the interpreter ends"


def _stopped(trap: Trap, stops: list[Stop]) -> str:
    places = {(waiter.place.unit, waiter.place.address) for waiter in trap.waiters}
    if trap.waiters:
        same = places == {(f"core {one.core}", one.pc) for one in stops}
        same = same and all("DEADLOCK" in one.codes for one in stops)
    else:
        same = any(
            trap.place.unit == f"core {one.core}" and trap.place.address == one.pc
            and trap.code.name in one.codes for one in stops
        )  # fmt: skip
    return f"traps {trap.code.name}" if same else f"differs: {trap.code.name} {trap}; {_say(stops)}"


def _memories(simulator: NmpSimulator, other: Interpreter) -> str:
    state = simulator._state
    if simulator.dram.tobytes() != bytes(other.dram):
        return "differs: DRAM"
    for k, core in enumerate(other.cores):
        for name, array in ((0, state.mb0), (1, state.mb1), (3, state.bias)):
            if array[k].tobytes() != bytes(core.memory[name]):
                return f"differs: memory {name} of core {k}"
        if state.mb2[k].tolist() != core.sums:
            return f"differs: MB2 of core {k}"
        if [value & MASK for value in state.regs[k].tolist()] != core.x:
            return f"differs: registers of core {k}"
    return ""
