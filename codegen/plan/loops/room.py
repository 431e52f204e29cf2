"""What fits the memories of a machine of loops: room for the tiles of a plan, and where they lie.

Every kind of tile has as many places as the plan has buffers; a residual tile lies behind each IN
tile. Memories of their own for input, weights and output are cut into as many equal parts as there
are buffers; a shared memory is cut likewise, each part holding IN, residual, W and OUT in this
order. Places begin at multiples of 8 bytes. The biases of all filters of a tile fit the bias
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.loops.axes import in_axis, largest_inside
from tvm_npu.codegen.plan.loops.machine import LoopMachine, SharedMemory, SplitMemories
from tvm_npu.codegen.plan.loops.plan import (
    LOOPS,
    RESIDENTS,
    LoopPlan,
    Resident,
    beside,
    can_be_touched_only,
    extent,
    seen,
    trips,
)
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim import arithmetic
from tvm_npu.sim.arithmetic import Count
from tvm_npu.sim.machine_parts import BIAS_BYTES

ALIGNMENT_BYTES = 8
_TENSORS: tuple[Resident, Resident] = ("IN", "W")


def aligned(size: Count) -> Count:
    """``size`` rounded up to the next place where a tile may begin."""
    return arithmetic.aligned(size, ALIGNMENT_BYTES)


def memory_needs(
    memories: SplitMemories | SharedMemory, inputs: Count, weights: Count, sums: Count
) -> tuple[tuple[str, Count, int], ...]:
    """(memory, bytes that tiles of these aligned sizes need of it, bytes that it has): input,
    weight and output memory, or the shared one. IN and residual tile count together."""
    if isinstance(memories, SharedMemory):
        return (("shared memory", inputs + weights + sums, memories.shared_bytes),)
    return (
        ("input memory", inputs, memories.input_bytes),
        ("weight memory", weights, memories.weight_bytes),
        ("output memory", sums, memories.output_bytes),
    )


@dataclass(frozen=True)
class TileBytes:
    """Bytes of the largest tile of each kind; OUT at accumulator width."""

    in_bytes: int
    residual_bytes: int
    weight_bytes: int
    out_bytes: int


def tile_bytes(problem: ConvProblem, plan: LoopPlan) -> TileBytes:
    """The largest tiles of ``plan``."""
    source = seen(problem, plan)
    inside = in_axis(source, "R", plan.tile_r).largest
    inside *= in_axis(source, "C", plan.tile_c).largest
    taps = problem.kernel[0] * problem.kernel[1]
    out = plan.tile_groups * plan.tile_m * plan.tile_r * plan.tile_c
    return TileBytes(
        in_bytes=plan.tile_groups * plan.tile_n * inside * problem.element_bytes,
        residual_bytes=out * problem.element_bytes if problem.has_residual else 0,
        weight_bytes=plan.tile_groups * plan.tile_m * plan.tile_n * taps * problem.element_bytes,
        out_bytes=out * problem.accumulator_bytes,
    )


def place_bytes(problem: ConvProblem, plan: LoopPlan) -> TileBytes:
    """What the tiles of one place take, resident ones beside each other."""
    each = tile_bytes(problem, plan)
    inputs, weights = (beside(problem, plan, tensor) for tensor in _TENSORS)
    return replace(
        each,
        in_bytes=(inputs - 1) * aligned(each.in_bytes) + each.in_bytes,
        weight_bytes=(weights - 1) * aligned(each.weight_bytes) + each.weight_bytes,
    )


@dataclass(frozen=True)
class Place:
    """Where one set of tiles lies: bytes from the begin of its memory (with a shared memory all
    four are in the same one). Resident tiles of one place lie ``in_step`` or ``weight_step`` bytes
    apart; ``in_tiles`` and ``weight_tiles`` of them."""

    in_offset: int
    residual_offset: int
    weight_offset: int
    out_offset: int
    in_step: int = 0
    in_tiles: int = 1
    weight_step: int = 0
    weight_tiles: int = 1

    def inputs(self, number: int) -> int:
        """Where the IN tile with this number beside others lies."""
        return self.in_offset + number * self.in_step

    def weights(self, number: int) -> int:
        """Likewise of W tiles."""
        return self.weight_offset + number * self.weight_step


def tile_places(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> tuple[Place, ...]:
    """One place a buffer, for a plan that `check_loop_plan` finds sound."""
    sizes = tile_bytes(problem, plan)
    memories = machine.memories
    in_step, weight_step = aligned(sizes.in_bytes), aligned(sizes.weight_bytes)
    in_tiles, weight_tiles = (beside(problem, plan, tensor) for tensor in _TENSORS)
    stacks = in_step, in_tiles, weight_step, weight_tiles
    behind_in = in_step * in_tiles
    if isinstance(memories, SharedMemory):
        weights = behind_in + aligned(sizes.residual_bytes)
        out = weights + weight_step * weight_tiles
        half = part_bytes(memories.shared_bytes, plan.buffers)
        at = range(0, half * plan.buffers, half)
        return tuple(
            Place(base, base + behind_in, base + weights, base + out, *stacks)
            for base in at
        )
    parts = [
        part_bytes(size, plan.buffers)
        for size in (memories.input_bytes, memories.weight_bytes, memories.output_bytes)
    ]
    return tuple(
        Place(
            turn * parts[0], turn * parts[0] + behind_in, turn * parts[1], turn * parts[2],
            *stacks,
        )  # fmt: skip
        for turn in range(plan.buffers)
    )


def part_bytes(size: int, buffers: int) -> int:
    """Bytes of one of ``buffers`` equal parts of a memory."""
    return size // buffers // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def biases_stay(problem: ConvProblem, machine: LoopMachine) -> bool:
    """All biases of the layer fit the bias memory and are loaded once; else those of a tile's
    filters come whenever these change."""
    return problem.filters * BIAS_BYTES <= machine.bias_bytes


def check_loop_plan(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> PlanFault | None:
    """The first fault of ``plan`` for ``problem`` on ``machine``; None for a sound plan.

    Tiles of a loop are cut from its whole extent, so together they make every product once; what
    can be wrong is what a plan says and how much room it takes. Rows and columns under a tile are
    counted here tile by tile, independently of what planners use.
    """
    for holds, what, value, limit in _claims(problem, plan, machine):
        if not holds:
            return PlanFault(what, value, limit)
    return None


_Claim = tuple[bool, str, object, object]


def _claims(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> Iterator[_Claim]:
    """(holds, thing, value, limit); later claims rely on earlier ones."""
    yield problem.window is None, "window", problem.window, "none in a plan of loops"
    groups = problem.groups
    yield groups >= 1, "groups", groups, "at least 1"
    for name, total in (("filters", problem.filters), ("channels", problem.channels)):
        sound = total > 0 and total % groups == 0
        yield sound, name, total, f"a positive multiple of {groups} groups"
    for name, total in (("rows", problem.rows), ("columns", problem.columns)):
        yield total > 0, name, total, "at least 1"
    permutes = sorted(plan.order) == sorted(LOOPS)
    yield permutes, "order", " ".join(map(str, plan.order)), "each of M, N, R, C once"
    sizes = [(f"tile_{loop.lower()}", plan.tile(loop), extent(problem, loop)) for loop in LOOPS]
    for name, size, most in [*sizes, ("tile_groups", plan.tile_groups, groups)]:
        whole = isinstance(size, int) and not isinstance(size, bool)
        yield whole and 1 <= size <= most, name, size, f"an integer from 1 to {most}"
    if plan.tile_groups > 1:
        for name, size, most in sizes[:2]:
            yield size == most, f"{name} with tile_groups > 1", size, most
    yield plan.buffers in (1, 2), "buffers", plan.buffers, "1 or 2"
    taps, most = plan.taps_at_once, machine.most_taps(plan.tile_n, prod(problem.kernel))
    whole = isinstance(taps, int) and not isinstance(taps, bool)
    yield whole and 1 <= taps <= most, "taps_at_once", taps, f"an integer from 1 to {most}"
    yield isinstance(plan.keeps_rows, bool), "keeps_rows", plan.keeps_rows, "True or False"
    if plan.keeps_rows:
        yield machine.moves_rows, f"rows that {machine.name} moves", "none", "some for keeps_rows"
        inside = plan.order[plan.order.index("R") :]
        moving = [loop for loop in inside if loop in "NC" and trips(problem, plan, loop) > 1]
        yield not moving, "loops over IN tiles inside of R", " ".join(moving), "none to keep rows"
    yield isinstance(plan.touched_only, bool), "touched_only", plan.touched_only, "True or False"
    if plan.touched_only:
        yield machine.gathers, f"elements apart that {machine.name} loads", "none", "some"
        apart = problem.kernel, problem.stride, problem.padding
        what = "kernel, stride and padding with touched_only"
        yield can_be_touched_only(problem), what, apart, "1x1, more than 1 both ways, none"
        yield not plan.keeps_rows, "keeps_rows with touched_only", plan.keeps_rows, False
    yield plan.resident in RESIDENTS, "resident", plan.resident, "'IN', 'W' or ''"
    if plan.resident:
        what = f"tiles that stay on {machine.name}"
        yield machine.keeps_tiles, what, "one of each kind", "all of one kind for resident"
        yield not plan.keeps_rows, "keeps_rows with resident tiles", plan.keeps_rows, False
        yield not plan.touched_only, "touched_only with resident tiles", plan.touched_only, False
    each = "one" if plan.buffers == 1 else f"one in each of {plan.buffers} buffers"
    for tiles, memory, needed, available in _needs(problem, plan, machine):
        what = f"{tiles} ({each}) in the {memory}, bytes"
        yield needed <= available, what, needed, f"at most {available}"


def _needs(
    problem: ConvProblem, plan: LoopPlan, machine: LoopMachine
) -> Iterator[tuple[str, str, int, int]]:
    """(tiles, memory, bytes that they need, bytes that there are)."""
    source = seen(problem, plan)
    rows = largest_inside(source, "R", plan.tile_r)
    columns = largest_inside(source, "C", plan.tile_c)
    size, filters = problem.element_bytes, plan.tile_groups * plan.tile_m
    outputs = filters * plan.tile_r * plan.tile_c
    inputs = aligned(plan.tile_groups * plan.tile_n * rows * columns * size)
    inputs *= beside(problem, plan, "IN")
    residual = aligned(outputs * size) if problem.has_residual else 0
    weights = aligned(filters * plan.tile_n * problem.kernel[0] * problem.kernel[1] * size)
    weights *= beside(problem, plan, "W")
    sums = aligned(outputs * problem.accumulator_bytes)
    with_residual = "IN and residual tile" if residual else "IN tile"
    weight = "W tile"
    if plan.resident == "IN":
        with_residual = with_residual.replace("IN", "resident IN", 1)
    elif plan.resident == "W":
        weight = "resident W tile"
    tiles: tuple[str, ...] = (with_residual, weight, "OUT tile of accumulators")
    if isinstance(machine.memories, SharedMemory):
        tiles = (f"{with_residual}, {weight.removesuffix(' tile')} and OUT tile",)
    needs = memory_needs(machine.memories, inputs + residual, weights, sums)
    for what, (memory, needed, most) in zip(tiles, needs, strict=True):
        yield what, memory, needed, part_bytes(most, plan.buffers)
    yield "biases of a tile", "bias memory", filters * BIAS_BYTES, machine.bias_bytes


def no_room(problem: ConvProblem, machine: LoopMachine, tile: LoopPlan | None = None) -> Infeasible:
    """Why not even the smallest tiles fit (or ``tile``, the smallest that a planner allows)."""
    smallest = LoopPlan(1, 1, 1, 1) if tile is None else tile
    words = "the smallest tiles"
    if tile is not None:
        words += (
            f" that the planner allows ({tile.tile_m} filters, {tile.tile_n} channels, "
            f"{tile.tile_r} rows, {tile.tile_c} columns)"
        )
    for _, memory, needed, available in _needs(problem, smallest, machine):
        if needed > available:
            return Infeasible(memory, needed, available, f"{words} do not fit", _REMEDY)
    fault = check_loop_plan(problem, smallest, machine)
    return Infeasible("memory", 0, 0, f"no plan found: {fault}", _REMEDY)


_REMEDY = "give the machine a larger one"
