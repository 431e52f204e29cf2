"""Programs at random: the simulator against the interpreter."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.sim.snowflake.interpreted_cluster import SPECIAL, Cluster, Stop
from tests.sim.snowflake.interpreted_order import Race
from tests.sim.snowflake.interpreter import Interpreter
from tests.sim.snowflake.random_programs import CONSTANT_BYTES, Program, program
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator
from tvm_npu.sim.traps import Trap

BUDGET = 5000
MOST_NAMED = 64
"""Pairs of instructions that the simulator names."""


def compare(seed: int) -> str:
    """``agrees``, ``traps``, ``races``, ``runs on``, ``beyond``, or what differs."""
    rng = random.Random(f"snowflake {seed}")
    made, strict = program(rng), rng.random() < 0.3
    simulator, other = loaded(made), interpreter(made, strict=strict)
    runs_on = other.run(BUDGET)
    found: Trap | None = None
    try:
        simulator.run(timing=not strict)
    except Trap as trap:
        found = trap
    said = _said(simulator, other, found, strict=strict, runs_on=runs_on)
    if said.startswith("differs") and _goes_on_behind(simulator, other, ended=found is None):
        return "beyond"
    return said


def _goes_on_behind(simulator: SnowflakeSimulator, other: Interpreter, *, ended: bool) -> bool:
    """Whether the interpreter alone stops, at an overflow of values that a race leaves open: with
    other ones the simulator goes on. It must name each race that the interpreter has come to."""
    if not any("SUM_OVERFLOW" in stop.codes for stop in other.stops):
        return False
    common = _named(simulator) & other.races
    return bool(common) and not (ended and _missing(_named(simulator), other.races))


def _said(
    simulator: SnowflakeSimulator, other: Interpreter, found: Trap | None, *, strict: bool,
    runs_on: bool,
) -> str:  # fmt: skip
    if not strict:
        wrong = _races(_named(simulator), other.races, ended=found is None)
        if wrong:
            return wrong
    if found is not None:
        return _stopped(found, other, runs_on)
    if runs_on or other.stops:
        return f"differs: no trap; {_say(other.stops)}"
    if other.races:
        return _registers(simulator, other) or "races"
    return _memories(simulator, other) or "agrees"


CASES = {"snowflake": compare}


def loaded(made: Program, **options: Any) -> SnowflakeSimulator:
    base = made.machine.dram.base_address
    size = made.activations.nbytes
    simulator = SnowflakeSimulator(
        made.machine, made.code,
        [Segment(base, CONSTANT_BYTES, False), Segment(base + CONSTANT_BYTES, size, True)],
        CONSTANT_BYTES + size, budget=BUDGET, **options,
    )  # fmt: skip
    simulator.write(base, made.constants)
    simulator.write(base + CONSTANT_BYTES, made.activations)
    return simulator


def interpreter(made: Program, *, strict: bool) -> Interpreter:
    memory = [*made.constants.tolist(), *made.activations.tolist()]
    end = CONSTANT_BYTES + made.activations.nbytes
    segments = [(0, CONSTANT_BYTES, False), (CONSTANT_BYTES, end, True)]
    code = [words.tolist() for words in made.code]
    return Interpreter(made.machine, code, memory, segments, strict=strict)


def _named(simulator: SnowflakeSimulator) -> set[Race]:
    """What the simulator's checker has named."""
    found = set[Race]()
    for one in simulator.hazards:
        places = [(int(place.unit.split()[1]), place.index) for place in (one.earlier, one.later)]
        found.add((places[0], places[1], one.memory))  # type: ignore[arg-type]
    return found


def _races(named: set[Race], expected: set[Race], *, ended: bool) -> str:
    """What differs; a run that a trap ends has not come to all of them."""
    if named - expected:
        return f"differs: named as a race without being one: {sorted(named - expected)[:3]}"
    missing = _missing(named, expected)
    if ended and missing:
        return f"differs: races that are not named: {sorted(missing)[:3]}"
    return ""


def _missing(named: set[Race], expected: set[Race]) -> set[Race]:
    return expected - named if len(named) < MOST_NAMED else set()


def _say(stops: list[Stop]) -> str:
    said = (f"cluster {one.cluster} at {one.row} for {sorted(one.codes)}" for one in stops)
    return "the interpreter stops " + "; ".join(said) if stops else "the interpreter ends"


def _stopped(trap: Trap, other: Interpreter, runs_on: bool) -> str:
    name, row = trap.code.name, trap.place.index
    if name == "RUNAWAY" and runs_on:
        return "runs on"
    same = any(
        trap.place.unit == f"cluster {one.cluster}" and row == one.row and name in one.codes
        for one in other.stops
    )
    if same or (name == "SUM_OVERFLOW" and other.races):  # of values that a race left open
        return "races" if name == "HAZARD" else f"traps {name}"
    return f"differs: {name} {trap}; {_say(other.stops)}{', or runs on' if runs_on else ''}"


def _registers(simulator: SnowflakeSimulator, other: Interpreter) -> str:
    used = [*range(32), *SPECIAL.values()]
    for k in other.clusters:
        if simulator._state.registers[k.number][used].tolist() != [k.r[n] for n in used]:
            return f"differs: registers of cluster {k.number}"
    return ""


def _memories(simulator: SnowflakeSimulator, other: Interpreter) -> str:
    if simulator.dram.view(np.int16).tolist() != other.memory.words:
        return "differs: DRAM"
    for k in other.clusters:
        name = _buffers(simulator, k)
        if name:
            return f"differs: {name} of cluster {k.number}"
    return _registers(simulator, other)


def _buffers(simulator: SnowflakeSimulator, k: Cluster) -> str:
    state, first = simulator._state, k.number * k.cus
    for name, array, lists in (
        ("MBuf", state.mbuf[first:], k.mbuf), ("WBuf", state.wbuf[4 * first :], k.wbuf),
    ):  # fmt: skip
        for number, words in enumerate(lists):
            if array[number].tolist() != words:
                return f"{name} {number}"
    return ""
