"""Plans as execution plans in text, those for NMPs included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.shares import CoreShare, core_shares
from tvm_npu.codegen.plan.loops.plan import Step, TilePlan
from tvm_npu.codegen.plan.loops.room import Place, biases_stay, check_tile_plan, tile_places
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem
from tvm_npu.codegen.tiles.emit.actions import Action, ActionSteps, Held, Range
from tvm_npu.codegen.tiles.emit.boxes import parts
from tvm_npu.codegen.tiles.emit.convolution import plan_actions
from tvm_npu.codegen.tiles.emit.layer import aligned
from tvm_npu.codegen.tiles.emit.pipeline import ordered
from tvm_npu.codegen.tiles.ir.document import (
    Ir,
    MemoryVariable,
    TileKind,
    held_tiles,
    moved,
    to_text,
)
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


def write_ir(
    problem: ConvProblem,
    plan: TilePlan | ConvPlan,
    machine: TileMachine,
    planned_for: NmpMachine | None = None,
    comment: tuple[str, ...] = (),
) -> str:
    """The text of a plan for ``machine``. A ConvPlan needs the NMP that it was ``planned_for``:
    its tiles follow each other core by core, each core's in its order of execution.

    ``problem`` has the machine's widths of elements and sums. Raises EmitError for a plan that
    does not fit the machine.
    """
    return to_text(plan_ir(problem, plan, machine, planned_for, comment))


def plan_ir(
    problem: ConvProblem,
    plan: TilePlan | ConvPlan,
    machine: TileMachine,
    planned_for: NmpMachine | None = None,
    comment: tuple[str, ...] = (),
) -> Ir:
    """`write_ir` before it is text."""
    if isinstance(plan, TilePlan):
        fault = check_tile_plan(problem, plan, machine)
        if fault is not None:
            raise EmitError(f"plan for machine {machine.name!r}: {fault}")
        places = tile_places(problem, plan, machine)
        return _ir(problem, plan_actions(problem, plan, machine), places, machine, comment)
    if planned_for is None:
        raise EmitError("a plan for an NMP needs the NMP that it was made for")
    if problem.window is not None:
        raise EmitError("a convolution with a window behind it has no execution plan in text")
    steps = tuple(nmp_steps(problem, plan, planned_for))
    place = (_place(problem, steps, machine),)
    stay = biases_stay(problem, machine)
    actions = ordered(ActionSteps(problem, steps, place, stay), 1)
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
    for number, place in enumerate(places):
        for kind, offset in _kinds(place, problem.has_residual):
            memory = "shared" if shared else _SPLIT[kind]
            offsets.setdefault(memory, {})[offset] = (kind, number)
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
    yield "INPUT", place.in_offset
    if has_residual:
        yield "RESIDUAL", place.residual_offset
    yield "WEIGHT", place.weight_offset
    yield "OUTPUT", place.out_offset


_Box = tuple[Range, Range, Range, Range, Range]
"""Groups, filters, channels (the latter of one group), rows, columns."""


def nmp_steps(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Iterator[Step]:
    """The tiles of an NMP's plan, one core after another, as steps that keep what the step before
    left on chip."""
    return _steps(problem, tuple(_boxes(problem, plan, machine)))


def _boxes(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Iterator[_Box]:
    filters, channels = problem.filters // problem.groups, problem.channels // problem.groups
    is_grouped = plan.mode == "grouped"
    items = problem.groups if is_grouped else filters
    shares = core_shares(plan, problem.rows, problem.columns, items, machine)
    for core in shares.cores:
        if core is None or min(core.rows, core.columns, core.items) == 0:
            continue
        if is_grouped:
            yield from _grouped_boxes(plan, core, filters, channels)
            continue
        for group in range(problem.groups):
            yield from _core_boxes(plan, core, group, channels)


def _core_boxes(plan: ConvPlan, core: CoreShare, group: int, channels: int) -> Iterator[_Box]:
    """IS: rows, columns, channels, all filters; OS: rows, columns, filters, channels; WS: filters,
    rows, columns, channels."""
    rows, columns = (core.first_row, core.rows), (core.first_column, core.columns)
    filters = (core.first_item, core.items)
    own = core.items if plan.schedule == "IS" else plan.tile_m
    if plan.schedule == "WS":
        order = [
            (m, r, c)
            for m in parts(filters, own)
            for r in parts(rows, plan.tile_r)
            for c in parts(columns, plan.tile_c)
        ]
    else:
        order = [
            (m, r, c)
            for r in parts(rows, plan.tile_r)
            for c in parts(columns, plan.tile_c)
            for m in parts(filters, own)
        ]
    for m, r, c in order:
        for n in parts((0, channels), plan.tile_n):
            yield (group, 1), m, n, r, c


def _grouped_boxes(plan: ConvPlan, core: CoreShare, filters: int, channels: int) -> Iterator[_Box]:
    """OS: places, then groups; WS: groups, then places."""
    all_groups = list(parts((core.first_item, core.items), max(plan.tile_m // filters, 1)))
    places = [
        (r, c)
        for r in parts((core.first_row, core.rows), plan.tile_r)
        for c in parts((core.first_column, core.columns), plan.tile_c)
    ]
    if plan.schedule == "WS":
        pairs = [(group, place) for group in all_groups for place in places]
    else:
        pairs = [(group, place) for place in places for group in all_groups]
    for group, (r, c) in pairs:
        yield group, (0, filters), (0, channels), r, c


def _steps(problem: ConvProblem, boxes: tuple[_Box, ...]) -> Iterator[Step]:
    depth = problem.channels // problem.groups
    summed: dict[tuple[Range, Range, Range, Range], int] = {}
    held: _Box | None = None
    for number, box in enumerate(boxes):
        groups, filters, channels, rows, columns = box
        following = boxes[number + 1] if number + 1 < len(boxes) else None
        out = (groups, filters, rows, columns)
        before = summed.get(out, 0)
        summed[out] = before + channels[1]
        yield Step(
            groups, filters, channels, rows, columns,
            loads_in=held is None or _in(held) != _in(box),
            loads_weights=held is None or held[:3] != box[:3],
            enters_out=held is None or _out(held) != out,
            first=before == 0,
            last=summed[out] == depth,
            leaves_out=following is None or _out(following) != out,
        )  # fmt: skip
        held = box


def _in(box: _Box) -> tuple[Range, Range, Range, Range]:
    return box[0], box[2], box[3], box[4]


def _out(box: _Box) -> tuple[Range, Range, Range, Range]:
    return box[0], box[1], box[3], box[4]


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
