"""What blocks of code take (`pace`), from their instructions: worked out once for blocks that
differ in addresses only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.snowflake.code.nodes import Instr, form
from tvm_npu.codegen.snowflake.code.schedule import special_reader
from tvm_npu.codegen.snowflake.pace import block as at
from tvm_npu.codegen.snowflake.pace.lines import Origins, Places, lines, lines_of_both
from tvm_npu.sim.snowflake import registers
from tvm_npu.sim.snowflake.isa import (
    LANES,
    SUM_WORDS,
    Finish,
    Layout,
    MacMode,
    Preload,
    Special,
)
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

_KINDS = {
    "mac": at.TRACE, "max": at.TRACE, "vmov": at.VMOV, "ld": at.TRANSFER, "tmov": at.TRANSFER,
    "sync": at.TRANSFER,
}  # fmt: skip

Entry = int | None | tuple[int, int]
"""What stands in a place of a block: an instruction's number, nothing (a delay slot), or a branch:
(register that counts the turns, place where the loop begins)."""


class Gap(NamedTuple):
    """A core is at its next item ``behind`` cycles after the last one was over, and ``since``
    cycles after it came to that: later where the last one did not wait for longer than registers
    take to be written."""

    behind: float
    since: float

    def and_then(self, other: Gap) -> Gap:
        return Gap(self.behind + other.behind, self.since + other.since)


@dataclass(frozen=True)
class Pace:
    """``gaps`` are the cycles that the core takes in front of each transfer or `sync` that stands
    before vector instructions, ``places`` their places in the block; ``rest`` what it takes behind
    the last one: with vector instructions until the begin of what ``vector`` says, the row of
    `Paces.table` for these, which else is -1. Up to place ``half`` the core takes half of that
    time, at most."""

    gaps: tuple[Gap, ...]
    places: tuple[int, ...]
    rest: Gap
    vector: int
    half: int


class Paces:
    """The paces of a program's blocks."""

    def __init__(self, machine: SnowflakeMachine) -> None:
        self._machine = machine
        self._known: dict[tuple[object, ...], Pace] = {}
        self._decisive: dict[int, tuple[tuple[int, ...], Origins]] = {}
        self._rows: list[NDArray[np.float64]] = []

    @property
    def table(self) -> NDArray[np.float64]:
        """A row of `pace.pace` for each kind of block with vector instructions."""
        return np.array(self._rows).reshape(-1, self._width)

    @property
    def _width(self) -> int:
        return at.SPAN + 3 * self._machine.vector.queue_depth

    def of(
        self, order: Sequence[Entry], ops: Sequence[Instr], specials: Mapping[Special, int]
    ) -> Pace:
        """Of a block whose instructions ``ops`` stand in ``order``, where special registers hold
        ``specials``. An ``order`` stays as long as this does."""
        known = self._decisive.get(id(order))
        if known is None:
            known = self._decisive[id(order)] = (tuple(_decisive(order, ops)), Origins(ops))
        decisive, origins = known
        places = origins.places(ops)
        outputs, step = specials.get(Special.OUTPUTS, 0), specials.get(Special.OUT_STEP, 0)
        key = (
            id(order), outputs, step, tuple(places.values()),
            tuple([ops[index].immediate for index in decisive]),
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._found(order, ops, _Operands(outputs, step, places))
        return found

    def _found(self, order: Sequence[Entry], ops: Sequence[Instr], operands: _Operands) -> Pace:
        machine = self._machine
        count = len(order)
        rows = np.zeros((count, at.COLUMNS), np.int64)
        lasting, leaving = np.zeros(count), np.zeros(count)
        rows[:, at.DEST : at.READER + 1] = -1
        numbers: dict[int, int] = {}
        turns = {op.dest: op.immediate for op in ops if op.mnemonic == "movi"}
        computes = False
        for place, entry in enumerate(order):
            row = rows[place]
            if isinstance(entry, tuple):
                counter, begin = entry
                row[at.KIND], row[at.TURNS], row[at.TARGET] = at.BRANCH, turns[counter], begin
                row[at.FIRST] = numbers.setdefault(counter, len(numbers))
            elif entry is not None:
                _fill(row, ops[entry], numbers)
                if row[at.KIND] == at.TRANSFER and computes:
                    row[at.KIND] = at.WAIT
                if row[at.KIND] in (at.TRACE, at.VMOV):
                    computes = True
                    lasting[place], leaving[place] = self._times(ops[entry], operands)
        found, gaps = np.zeros(self._width), np.zeros((count + 1, 2))
        comes = np.zeros(count)
        at.pace(
            rows, lasting, leaving, max(1, len(numbers)), float(machine.control.raw_cycles),
            float(machine.vector.latency_cycles), machine.vector.queue_depth, found, gaps, comes,
        )  # fmt: skip
        places = tuple(np.flatnonzero(rows[:, at.KIND] == at.TRANSFER).tolist())
        *before, last = [Gap(*gap) for gap in gaps[: len(places) + 1].tolist()]
        rest = Gap(0.0, last.since - last.behind)
        if not found[at.VECTORS]:
            cycles = float(found[at.ISSUED])
            return Pace(tuple(before), places, rest.and_then(Gap(cycles, cycles)), -1, 0)
        half = int(np.flatnonzero(comes <= found[at.ISSUED] / 2)[-1])
        self._rows.append(found)
        return Pace(tuple(before), places, rest, len(self._rows) - 1, half)

    def _times(self, op: Instr, operands: _Operands) -> tuple[float, float]:
        """What a vector instruction takes, and its results to leave."""
        length, outputs = op.immediate, operands.outputs
        if op.mnemonic == "vmov":
            if _field(op, "what") == Preload.BIAS:
                coop = _field(op, "layout") == Layout.COOP
                return (1.0 if coop else float(-(-2 * min(LANES, outputs) // LANES))), 0.0
            words = outputs * (SUM_WORDS if _field(op, "what") == Preload.SUMS else 1)
            return lines(words, operands.out_places), 0.0
        first, second = (operands.places[register] for register in op.sources)
        mode = MacMode.ADD if op.mnemonic == "max" else _field(op, "mode")
        if mode in (MacMode.MULTIPLY, MacMode.ADD):
            return lines_of_both(length, first, second), 0.0
        if mode == MacMode.SCALE:
            return lines(length, first), 0.0
        if mode == MacMode.TABLE:
            return float(-(-length // self._machine.vector.table_words_per_cycle)), 0.0
        finish = _field(op, "finish")
        words = outputs * (SUM_WORDS if finish == Finish.SUMS else 1)
        leaving = 0.0 if finish == Finish.KEEP else lines(words, operands.out_places)
        if mode == MacMode.COOP:
            return lines_of_both(length, first, second), leaving
        if mode == MacMode.INDP:
            return float(length), leaving
        return float(length * -(-outputs // LANES)), leaving


@dataclass(frozen=True)
class _Operands:
    """``outputs`` of a sum, ``out_step`` words apart; ``places`` of traces by their registers."""

    outputs: int
    out_step: int
    places: Mapping[int, Places]

    @property
    def out_places(self) -> Places:
        return Places(0, gcd(LANES, self.out_step))


def _decisive(order: Sequence[Entry], ops: Sequence[Instr]) -> list[int]:
    """The instructions whose immediates decide how long the block takes."""
    counters = {entry[0] for entry in order if isinstance(entry, tuple)}
    return [
        index for index, op in enumerate(ops)
        if op.mnemonic in ("mac", "max") or (op.mnemonic == "movi" and op.dest in counters)
    ]


def _fill(row: NDArray[np.int64], op: Instr, numbers: dict[int, int]) -> None:
    """An instruction as a row of `pace`; ``numbers`` of registers."""
    row[at.KIND] = _KINDS.get(op.mnemonic, at.SCALAR)
    special = Special.OUT <= op.dest <= max(Special)
    if special:
        readers = np.flatnonzero(registers.READERS[op.dest]).tolist()
        row[at.WRITTEN] = sum(1 << reader for reader in readers)
    elif op.dest >= 0:
        row[at.DEST] = numbers.setdefault(op.dest, len(numbers))
    for column, register in enumerate(op.sources):
        row[at.FIRST + column] = numbers.setdefault(register, len(numbers))
    row[at.READER] = special_reader(op)
    if op.mnemonic == "mac":
        row[at.SUM] = _field(op, "mode") <= MacMode.LANE
        row[at.ENDS] = _field(op, "finish") != Finish.KEEP
    elif op.mnemonic == "max":
        row[at.ENDS] = 1


def _field(op: Instr, name: str) -> int:
    return form(op.mnemonic).others[name].decode(op.fixed)
