"""Programs at random: the simulator against the interpreter."""

from __future__ import annotations

import random

import numpy as np

from tests.sim.tiles import random_programs
from tests.sim.tiles.interpreter import Interpreter
from tests.sim.tiles.programs import BASE, words
from tests.sim.tiles.random_programs import SEGMENT_BYTES
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.simulator import TileSimulator
from tvm_npu.sim.traps import Trap

SEGMENTS = {
    TileMemory.CONSTANTS: (BASE, SEGMENT_BYTES),
    TileMemory.ACTIVATIONS: (BASE + SEGMENT_BYTES, SEGMENT_BYTES),
}


def compare(seed: int) -> str:
    """``agrees``, ``traps``, or what differs."""
    rng = random.Random(f"tiles {seed}")
    machine, numeric, text, constants, activations = random_programs.program(rng)
    code = words(text)
    if rng.random() < 0.1:
        code[rng.randrange(len(code))] ^= np.uint32(1 << rng.randrange(32))
    other = Interpreter(machine, numeric, constants, activations)
    simulator = TileSimulator(
        machine, code, SEGMENTS, 2 * SEGMENT_BYTES, precision="int8" if numeric == 1 else "int16"
    )
    simulator.write(BASE, np.frombuffer(constants + activations, np.uint8))
    stop = other.run(code.tolist())
    try:
        simulator.run(timing=rng.random() < 0.5)
    except Trap as trap:
        if stop is not None and stop[0] == trap.place.index and trap.code.name in stop[1]:
            return f"traps {trap.code.name}"
        return f"differs: {trap.code.name} {trap}; the interpreter says {stop}"
    if stop is not None:
        return f"differs: no trap; the interpreter says {stop}"
    expected = bytes(other.memories[4].data + other.memories[5].data)
    found = simulator.dram.tobytes()
    if found != expected:
        at = next(k for k in range(len(found)) if found[k] != expected[k])
        return f"differs: byte {at} outside of the chip"
    return _chip(simulator, other)


def _chip(simulator: TileSimulator, other: Interpreter) -> str:
    """The memories on chip, where something was written."""
    state = simulator._state
    chip_begin = int(state.places[:4, 0].min())
    for number, memory in enumerate(other.memories[:4]):
        begin, size = (int(value) for value in state.places[number])
        known = np.frombuffer(memory.known, np.uint8)
        if not np.array_equal(state.written[begin - chip_begin :][:size], known):
            return f"differs: what is written in memory {number}"
        data = np.frombuffer(memory.data, np.uint8)
        if not np.array_equal(state.memory[begin:][:size][known > 0], data[known > 0]):
            return f"differs: memory {number}"
    return "agrees"


CASES = {"tiles": compare}
