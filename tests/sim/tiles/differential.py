"""Programs at random: the simulator against the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from tests.sim.tiles import random_programs, random_transfers
from tests.sim.tiles.interpreter import Interpreter
from tests.sim.tiles.programs import BASE, words
from tvm_npu.sim.tiles.isa import TileMemory
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.simulator import TileSimulator
from tvm_npu.sim.traps import Trap

Made = tuple[TileMachine, int, str, bytes, bytes]


def compare(seed: int) -> str:
    """``agrees``, ``traps``, or what differs."""
    return _compare(random.Random(f"tiles {seed}"), random_programs.program)


def compare_dma(seed: int) -> str:
    """The same of programs that start programs of the DMA controller."""
    return _compare(random.Random(f"tiles-dma {seed}"), random_transfers.program)


def _compare(rng: random.Random, make: Callable[[random.Random], Made]) -> str:
    machine, numeric, text, constants, activations = make(rng)
    code = words(text)
    if rng.random() < 0.1:
        code[rng.randrange(len(code))] ^= np.uint32(1 << rng.randrange(32))
    other = Interpreter(machine, numeric, constants, activations)
    segments = {
        TileMemory.CONSTANTS: (BASE, len(constants)),
        TileMemory.ACTIVATIONS: (BASE + len(constants), len(activations)),
    }
    simulator = TileSimulator(
        machine, code, segments, len(constants + activations),
        precision="int8" if numeric == 1 else "int16",
    )  # fmt: skip
    simulator.write(BASE, np.frombuffer(constants + activations, np.uint8))
    stops = other.run(code.tolist())
    try:
        simulator.run(timing=rng.random() < 0.5)
    except Trap as trap:
        place, name = trap.place.index, trap.code.name
        if any(row == place and name in codes for row, codes in stops):
            return f"traps {name}"
        return f"differs: {name} {trap}; the interpreter says {stops}"
    if stops:
        return f"differs: no trap; the interpreter says {stops}"
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


CASES = {"tiles": compare, "tiles-dma": compare_dma}
