"""Plans as execution plans in text, those for machines of other kinds included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.plan.loops.plan import LoopPlan, Step
from tvm_npu.codegen.plan.loops.room import (
    Place,
    aligned,
    biases_stay,
    check_loop_plan,
    tile_places,
)
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Action, ActionSteps, Held
from tvm_npu.codegen.tiles.emit.convolution import plan_actions
from tvm_npu.codegen.tiles.emit.pipeline import ordered
from tvm_npu.codegen.tiles.ir.document import (
    Ir,
    MemoryVariable,
    TileKind,
    held_tiles,
    moved,
    to_text,
)
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


def write_ir(
    problem: ConvProblem, plan: LoopPlan, machine: TileMachine, comment: tuple[str, ...] = ()
) -> str:
    """The text of a plan for ``machine``. ``problem`` has the machine's widths of elements and
    sums. Raises EmitError for a plan that does not fit the machine."""
    return to_text(plan_ir(problem, plan, machine, comment))


def plan_ir(
    problem: ConvProblem, plan: LoopPlan, machine: TileMachine, comment: tuple[str, ...] = ()
) -> Ir:
    """`write_ir` before it is text."""
    view = loop_machine(machine)
    fault = check_loop_plan(problem, plan, view)
    if fault is not None:
        raise EmitError(f"plan for machine {machine.name!r}: {fault}")
    places = tile_places(problem, plan, view)
    ir = _ir(problem, plan_actions(problem, plan, machine), places, machine, comment)
    return replace(ir, touched_only=plan.touched_only, taps_at_once=plan.taps_at_once)


def write_steps(
    problem: ConvProblem, steps: Iterable[Step], machine: TileMachine, comment: tuple[str, ...] = ()
) -> str:
    """As `write_ir`, of the tiles of a plan for another machine (`Backend.steps`), one after
    another."""
    return to_text(steps_ir(problem, steps, machine, comment))


def steps_ir(
    problem: ConvProblem, steps: Iterable[Step], machine: TileMachine, comment: tuple[str, ...] = ()
) -> Ir:
    """`write_steps` before it is text."""
    if problem.window is not None:
        raise EmitError("a convolution with a window behind it has no execution plan in text")
    listed = tuple(steps)
    place = (_place(problem, listed, machine),)
    stay = biases_stay(problem, loop_machine(machine))
    actions = ordered(ActionSteps(problem, listed, place, stay), 1)
    return _ir(problem, actions, place, machine, comment)


def _ir(
    problem: ConvProblem,
    actions: Iterable[Action],
    places: tuple[Place, ...],
    machine: TileMachine,
    comment: tuple[str, ...],
) -> Ir:
    """Byte offsets become memory variables: every place reaches to the next one."""
    offsets: dict[str, dict[int, tuple[TileKind, int]]] = {}
    shared = isinstance(machine.memories, SharedMemory)
    numbers: Counter[TileKind] = Counter()
    for place in places:
        for kind, offset in _kinds(place, problem.has_residual):
            memory = "shared" if shared else _SPLIT[kind]
            offsets.setdefault(memory, {})[offset] = (kind, numbers[kind])
            numbers[kind] += 1
    memories: list[MemoryVariable] = []
    index: dict[tuple[TileKind, int], int] = {}
    for memory, found in offsets.items():
        begins = sorted(found)
        ends = [*begins[1:], getattr(machine.memories, f"{memory}_bytes")]
        for begin, end in zip(begins, ends, strict=True):
            kind, number = found[begin]
            index[kind, begin] = len(memories)
            memories.append(MemoryVariable(kind, number, end - begin))
    index["BIAS", 0] = len(memories)
    memories.append(MemoryVariable("BIAS", 0, machine.memories.bias_bytes))
    made = []
    for action in actions:
        made.append(
            moved(action, lambda held: Held(held.tile, index[held.tile.kind, held.offset]))
        )
    return Ir(problem, tuple(memories), tuple(made), comment)


_SPLIT: dict[TileKind, str] = {
    "INPUT": "input", "RESIDUAL": "input", "WEIGHT": "weight", "OUTPUT": "output"
}  # fmt: skip


def _kinds(place: Place, has_residual: bool) -> Iterator[tuple[TileKind, int]]:
    for number in range(place.in_tiles):
        yield "INPUT", place.inputs(number)
    if has_residual:
        yield "RESIDUAL", place.residual_offset
    for number in range(place.weight_tiles):
        yield "WEIGHT", place.weights(number)
    yield "OUTPUT", place.out_offset


def _place(problem: ConvProblem, steps: tuple[Step, ...], machine: TileMachine) -> Place:
    """One place for the largest tiles of each kind. Raises EmitError when they do not fit."""
    largest: dict[str, int] = {}
    widths = {
        "INPUT": problem.element_bytes,
        "RESIDUAL": problem.element_bytes,
        "WEIGHT": problem.element_bytes * problem.kernel[0] * problem.kernel[1],
        "OUTPUT": problem.accumulator_bytes,
        "BIAS": BIAS_BYTES,
    }
    nowhere = (Place(0, 0, 0, 0),)
    for action in ordered(ActionSteps(problem, steps, nowhere, False), 1):
        for held in held_tiles(action):
            size = aligned(held.tile.count * widths[held.tile.kind])
            largest[held.tile.kind] = max(largest.get(held.tile.kind, 0), size)
    residual = largest.get("INPUT", 0)
    inputs = residual + largest.get("RESIDUAL", 0)
    memories = machine.memories
    if isinstance(memories, SharedMemory):
        weights = inputs + largest["WEIGHT"]
        _require("tiles", weights + largest["OUTPUT"], "shared", machine)
        place = Place(0, residual, inputs, weights)
    else:
        _require("IN and residual tiles" if problem.has_residual else "IN tiles", inputs, "input",
                 machine)  # fmt: skip
        _require("W tiles", largest["WEIGHT"], "weight", machine)
        _require("OUT tiles", largest["OUTPUT"], "output", machine)
        place = Place(0, residual, 0, 0)
    _require("biases of a tile", largest["BIAS"], "bias", machine)
    return place


def _require(what: str, needed: int, memory: str, machine: TileMachine) -> None:
    available = getattr(machine.memories, f"{memory}_bytes")
    if needed > available:
        raise EmitError(
            f"the plan's {what} need {needed} bytes of the {memory} memory of machine "
            f"{machine.name!r}, which has {available}"
        )
