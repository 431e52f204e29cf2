"""Programs with one word changed, and what running them shows without any reference.

The oracle runs the program as it was and as it is now, and compares what each unit stored, store by
store. It names every store that may rightly be called the first that sees the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.runtime.networks import network
from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.compile import fixed_graph, generate_quantized
from tvm_npu.codegen.graph import Array
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.annotate import program_isa
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.isa.table import Isa
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.traps import Trap
from tvm_npu.sim.watch import Store
from tvm_npu.verification import Divergence, verify_program

LIMITS = Limits(work=1 << 28, instructions=1 << 20)
WORD_BYTES = 4


@dataclass(frozen=True)
class Mutant:
    """``row`` of the code is another word now."""

    program: Program
    row: int
    was: str
    now: str


def mutant(program: Program, random: np.random.Generator) -> Mutant:
    """One operand of one instruction of a layer has another value; the word stays legal."""
    isa = program_isa(program)
    rows = np.flatnonzero(program.debug["layer"] >= 0)
    while True:
        row = int(random.choice(rows))
        word = _changed(int(program.code[row]), isa, random)
        if word is None:
            continue
        code = program.code.copy()
        code[row] = word
        was, now = (disassemble(int(one), isa) for one in (program.code[row], word))
        return Mutant(replace(program, code=code), row, was, now)


def _changed(word: int, isa: Isa, random: np.random.Generator) -> int | None:
    """The word with a bit of an operand flipped, mostly a low one."""
    bit = min(int(random.geometric(0.15)) - 1, 31)
    found = isa.decode(word)
    if found is None:
        return None
    mask = int(isa.by_mnemonic[found[0].mnemonic].mask)
    free = [place for place in range(32) if not mask >> place & 1]
    if not free:
        return None
    changed = word ^ 1 << int(random.choice(free[: bit + 1] or free))
    return changed if isa.decode(changed) is not None else None


@dataclass
class Log:
    """`sim.watch.Watch` that keeps, for each unit, what its stores changed."""

    dram: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    shadow: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    stores: dict[str, list[tuple[int | None, bytes]]] = field(default_factory=dict)
    end: Trap | SimError | None = None

    def begins(self, dram: NDArray[np.uint8]) -> None:
        self.dram, self.shadow = dram, dram.copy()

    def stored(self, stores: Sequence[Store]) -> None:
        for store in stores:
            span = slice(max(store.begin, 0), store.end)
            at = np.flatnonzero(self.dram[span] != self.shadow[span]) + span.start
            values = self.dram[at].copy()
            self.shadow[at] = values
            if len(at):
                seen = (store.place.index, at.tobytes() + values.tobytes())
                self.stores.setdefault(store.place.unit, []).append(seen)


def logged(program: Program, arrays: Sequence[Array]) -> tuple[Log, list[Array]]:
    """What the program stores, and its outputs ([]: it stopped)."""
    log = Log()
    session = Session(program, timing=False, limits=LIMITS)
    try:
        outputs = session.run_fixed(list(arrays), watch=log)
    except SimError as error:
        log.end, outputs = error, []
    return log, outputs


def first_effects(before: Log, after: Log) -> set[int]:
    """Numbers of the instructions that can be called the first to see a change: for each unit the
    first store that differs, as it was and as it is, and those around it where one is missing; and
    where the machine stopped."""
    found: set[int | None] = set()
    for unit in {*before.stores, *after.stores}:
        was, now = before.stores.get(unit, []), after.stores.get(unit, [])
        same = next(
            (k for k, (a, b) in enumerate(zip(was, now, strict=False)) if a != b),
            min(len(was), len(now)),
        )
        if same == len(was) == len(now):
            continue
        for one in (was, now):
            found |= {row for row, _ in one[max(same - 1, 0) : same + 2]}
    if isinstance(after.end, Trap):
        found.add(after.end.place.index)
        found |= {waiter.place.index for waiter in after.end.waiters}
    return {row for row in found if row is not None}


@dataclass(frozen=True)
class Verdict:
    """``outcome``: "named" (the instruction that was changed), "effect" (a first one that sees it),
    "harmless" (nothing differs, and nothing was found), or what is wrong with the finding."""

    mutant: Mutant
    outcome: str
    divergence: Divergence | None


def judge(
    one: Mutant, planned: PlannedGraph, inputs: Mapping[str, Array], before: Log, outputs: Any
) -> Verdict:
    """Whether the verification of a mutant says the right thing."""
    found = verify_program(one.program, planned, inputs, LIMITS)
    after, results = logged(one.program, [inputs[name] for name in planned.fixed.inputs])
    same = after.end is None and all(map(np.array_equal, outputs, results))
    if found is None:
        return Verdict(one, "harmless" if same else "missed", None)
    if found.place is None or found.place.index is None:
        reached = "reached from" in found.trap and f"({one.now})" in found.trap  # a jump outside
        return Verdict(one, "named" if reached else "unnamed", found)
    if _row(one.program, found) == one.row:
        return Verdict(one, "named", found)
    effects = first_effects(before, after)
    return Verdict(one, "effect" if found.place.index in effects else "elsewhere", found)


def small_region(
    machine: MachineDescription,
) -> tuple[PlannedGraph, Program, dict[str, Array]]:
    """The small network of the runtime's tests for a machine, and one image for it."""
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    generated = generate_quantized(fixed_graph(graph, ranges, machine), machine)
    fixed = generated.planned.fixed
    inputs = {
        name: fixed.scales[name].quantize(array[:1], fixed.width_of(name))
        for name, array in {"x": samples, "y": samples[::-1]}.items()
    }
    return generated.planned, generated.program(), inputs


def judged(machine: MachineDescription, seed: int, count: int) -> list[Verdict]:
    """``count`` mutants of the small region."""
    planned, program, inputs = small_region(machine)
    arrays = [inputs[name] for name in planned.fixed.inputs]
    before, outputs = logged(program, arrays)
    random = np.random.default_rng(seed)
    return [judge(mutant(program, random), planned, inputs, before, outputs) for _ in range(count)]


def _row(program: Program, found: Divergence) -> int:
    """The instruction's number in all code: units that run their own count from its begin."""
    assert found.place is not None and found.place.index is not None
    unit = found.place.unit.rpartition(" ")[2]
    image = int(unit) if unit.isdigit() and len(program.images) > 1 else 0
    return program.images[image].begin // WORD_BYTES + found.place.index
