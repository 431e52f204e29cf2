"""Programs with one ordering taken out: does the checker, or do the values, notice?

A mutant differs in one `sync`. What stands in its place takes as long to issue. Control flow does
not depend on data, and the checker judges by the rules and not by times: a mutant about which it is
silent is ordered otherwise, by another `sync` or a full queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.snowflake.isa import COLUMN, SNOWFLAKE_ISA, Wait
from tvm_npu.sim.snowflake.simulator import Hazard
from tvm_npu.sim.traps import Trap

NEVER_WAITS = "sync vector, 255"
"""More than a queue holds."""


class Fate(Enum):
    CAUGHT = "caught by the checker"
    WRONG = "wrong values, and the checker is silent"
    TRAPPED = "trapped"
    SURVIVOR = "right values, and the checker is silent"


@dataclass(frozen=True, eq=False)
class Mutant:
    """``code`` with ``after`` instead of ``before`` at instruction ``row``."""

    row: int
    before: str
    after: str
    code: np.ndarray

    def __str__(self) -> str:
        return f"instruction {self.row}: {self.before} -> {self.after}"


@dataclass(frozen=True, eq=False)
class Ran:
    """What a run left: all results in one array, and what the checker said."""

    results: np.ndarray
    hazards: tuple[Hazard, ...]


@dataclass(frozen=True)
class Judgement:
    """Fates of mutants, in their order."""

    fates: tuple[tuple[Mutant, Fate], ...]

    def of(self, fate: Fate) -> tuple[Mutant, ...]:
        return tuple(mutant for mutant, found in self.fates if found is fate)

    def __str__(self) -> str:
        """Counts by fate and by what was changed, then the survivors."""
        counts = Counter((fate.value, _kind(mutant)) for mutant, fate in self.fates)
        lines = [f"{count:5d} {fate}: {kind}" for (fate, kind), count in sorted(counts.items())]
        return "\n".join([*lines, *map(str, self.of(Fate.SURVIVOR))])


def _kind(mutant: Mutant) -> str:
    before, after = mutant.before.split(", "), mutant.after.split(", ")
    if mutant.after == NEVER_WAITS:
        return f"{before[0]} removed"
    return f"{before[0]} waits for one less" if before[0] == after[0] else (
        f"{before[0]} instead is {after[0]}"
    )  # fmt: skip


def weaker(what: Wait, pending: int) -> Iterator[str]:
    """Instructions that order less than ``sync what, pending``; none for the one that ends."""
    if what is Wait.END:
        return
    yield NEVER_WAITS
    if what in (Wait.VECTOR, Wait.LOAD, Wait.STORE):
        yield f"sync {what.name.lower()}, {pending + 1}"
        return
    if what is Wait.CLUSTERS:
        yield "sync all, 0"
    for one in (Wait.VECTOR, Wait.LOAD, Wait.STORE):
        # `all` without one unit would take two instructions: only one unit is waited for.
        yield f"sync {one.name.lower()}, 0"


def mutants(code: np.ndarray) -> Iterator[Mutant]:
    """All mutants of instruction words [N]."""
    decoded = SNOWFLAKE_ISA.decode_array(code)
    for row in np.flatnonzero(decoded[:, 0] == SNOWFLAKE_ISA.index["sync"]).tolist():
        what, pending = Wait(int(decoded[row, COLUMN["mode"]])), int(decoded[row, COLUMN["imm"]])
        for text in weaker(what, pending):
            changed = code.copy()
            changed[row] = assemble(text + "\n", isa=SNOWFLAKE_ISA)[0]
            yield Mutant(row, disassemble(int(code[row]), SNOWFLAKE_ISA), text, changed)


def judge(
    code: np.ndarray, run: Callable[[np.ndarray], Ran], chosen: Iterable[Mutant] | None = None
) -> Judgement:
    """Runs ``code``, about which the checker has to be silent, and then its mutants (all of them
    unless some are ``chosen``)."""
    sound = run(code)
    assert not sound.hazards, f"the checker faults the program itself: {sound.hazards[0]}"
    fates = []
    for mutant in mutants(code) if chosen is None else chosen:
        try:
            found = run(mutant.code)
        except Trap:
            fates.append((mutant, Fate.TRAPPED))
            continue
        if found.hazards:
            fates.append((mutant, Fate.CAUGHT))
        elif np.array_equal(found.results, sound.results):
            fates.append((mutant, Fate.SURVIVOR))
        else:
            fates.append((mutant, Fate.WRONG))
    return Judgement(tuple(fates))


def program_runner(
    program: Program, inputs: Sequence[np.ndarray]
) -> Callable[[np.ndarray], Ran]:
    """Runs ``program`` with other code on fixed-point ``inputs``, as `Session.run_fixed` takes
    them: a batch of one."""

    def run(code: np.ndarray) -> Ran:
        session = Session(replace(program, code=code))
        outputs = session.run_fixed(list(inputs))
        results = np.concatenate([np.asarray(one).reshape(-1) for one in outputs])
        return Ran(results, session._devices[0].hazards)  # type: ignore[attr-defined]

    return run


def judge_program(
    program: Program, inputs: Sequence[np.ndarray], chosen: Iterable[Mutant] | None = None
) -> Judgement:
    """Fates of the mutants of a compiled program."""
    return judge(program.code, program_runner(program, inputs), chosen)
