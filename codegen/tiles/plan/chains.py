"""Which chains there are in a graph, and how each is planned.

A chain's space is small: strips, rounds, buffers. By bytes, the plan is the best of all; time
breaks ties. By time, it is the best of the smallest strips and rounds for every number of them,
with transfers beside the work of other steps where there are two buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.plan.loops.cost import transfer_cycles
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.traffic import Moved
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, tile_sizes
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    Seat,
    can_keep_rows,
    fits,
)
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

GOALS = {"exact": "cycles", "exact-traffic": "bytes"}
"""What planners that take chains ask of them."""


def chain_problem(
    layer: FixedBlock, shapes: Mapping[str, Shape], precision: Precision, machine: TileMachine
) -> ChainProblem:
    """What is asked about ``layer``; widths are those in the machine's memories."""
    size, sums = machine.element_bytes(precision), machine.accumulator_bytes(precision)

    def asked(one: FixedConv) -> ConvProblem:
        found = conv_problem(one, shapes[one.inputs[0]], shapes[one.output], size)
        values = {**found.__dict__, "accumulator_bytes": sums, "is_dense": False}
        return ConvProblem(**values)

    head = layer.head
    first, window = (head.conv, head.window) if isinstance(head, FixedCascade) else (head, None)
    assert window is None or isinstance(window, FixedConv)
    adds_input = len(layer.point.inputs) > 1 and layer.point.inputs[1] == layer.inputs[0]
    return ChainProblem(
        asked(first), None if window is None else asked(window), asked(layer.point), adds_input
    )


def plan_chain(problem: ChainProblem, machine: TileMachine, planner: str) -> ChainPlan | Infeasible:
    """The best plan by the planner's goal; of equals the one of fewest and largest tiles."""
    goal = GOALS.get(planner, "cycles")
    found = best_tiles(all_tiles(problem, machine, goal), machine, goal)
    known = [(one, buffers) for one, buffers in zip(found, BUFFERS, strict=True) if one is not None]
    if known:
        (_, tiles), buffers = min(known, key=lambda one: one[0][0])
        return plan_of(tiles, buffers, planner)
    return Infeasible(
        "memories", 0, 0, "no strips and rounds of the chain fit", "run its layers one by one"
    )


Buffers = Literal[1, 2]
BUFFERS: tuple[Buffers, Buffers] = (1, 2)
Value = tuple[float, float]
"""By the goal, then by the other one."""
Best = tuple[Value, ChainTiles] | None
"""None where no tiles fit."""


def best_tiles(
    tries: Iterable[ChainTiles], machine: TileMachine, goal: str, seat: Seat | None = None
) -> tuple[Best, Best]:
    """The first of the best with one buffer, and with two."""
    view = loop_machine(machine)
    best: list[Best] = [None, None]
    for tiles in tries:
        cost: _Cost | None = None
        for at, buffers in enumerate(BUFFERS):
            if not fits(tiles, buffers, machine, seat):
                break
            cost = cost or _cost(tiles, view)
            time, moved = cost.cycles(buffers), float(cost.moved_bytes)
            value = (time, moved) if goal == "cycles" else (moved, time)
            before = best[at]
            if before is None or value < before[0]:
                best[at] = value, tiles
    return best[0], best[1]


def plan_of(tiles: ChainTiles, buffers: Buffers, planner: str) -> ChainPlan:
    return ChainPlan(
        tiles.tile_rows, tiles.tile_channels, buffers, tiles.moved_bytes(), planner,
        tiles.keeps_rows,
    )  # fmt: skip


def all_tiles(
    problem: ChainProblem, machine: TileMachine, goal: str, kept: bool = False
) -> Iterator[ChainTiles]:
    """Strips and rounds that may be best, largest first, whether they fit or not."""
    sizes = channels_of(problem, loop_machine(machine))
    for tile_rows in _rows(problem, machine, goal, kept):
        for tile_channels in sizes:
            keeps = goal == "bytes" and can_keep_rows(problem, tile_channels)
            yield ChainTiles(problem, tile_rows, tile_channels, keeps, kept=kept)


def _rows(problem: ChainProblem, machine: TileMachine, goal: str, kept: bool) -> list[int]:
    """Sizes of strips that fit, largest first: the smallest for every number of strips; by bytes
    all that move least. What is moved depends on a round's channels only in so far as one round
    with all of them keeps the weights, and rows of a depthwise head."""
    total = problem.point.rows
    tried = sorted(tile_sizes(total), reverse=True) if goal == "cycles" else range(total, 0, -1)
    moved: dict[int, int] = {}
    for tile_rows in tried:
        for tile_channels in (problem.point.channels, 1):
            keeps = can_keep_rows(problem, tile_channels)
            tiles = ChainTiles(problem, tile_rows, tile_channels, keeps, kept=kept)
            if fits(tiles, 1, machine):
                moved[tile_rows] = 0 if goal == "cycles" else tiles.moved_bytes()
                break
    least = min(moved.values(), default=0)
    return [tile_rows for tile_rows, size in moved.items() if size == least]


def channels_of(problem: ChainProblem, view: LoopMachine) -> list[int]:
    """Sizes of rounds, largest first: the smallest for every number of rounds, and those that fill
    the PEs of the loops that channels of a round lie on."""
    total, pes = problem.point.channels, max(view.pes_on("M"), view.pes_on("N"))
    sizes = set(tile_sizes(total))
    sizes |= {min(total, -(-size // pes) * pes) for size in sizes}
    return sorted(sizes, reverse=True)


@dataclass(frozen=True)
class _Cost:
    """About what tiles take: ``work`` of the engine, ``moving`` of the mover, and what is beside no
    work with two buffers, the first loads and the last store."""

    work: float
    moving: float
    edges: float
    moved_bytes: int

    def cycles(self, buffers: int) -> float:
        """With one buffer everything is after everything else."""
        if buffers == 1:
            return self.work + self.moving
        return max(self.work, self.moving) + self.edges


def _cost(tiles: ChainTiles, view: LoopMachine) -> _Cost:
    """In a run the first loads and the last store are beside the work of other chains."""
    problem, rounds, strips = tiles.problem, tiles.rounds, tiles.strips
    work, cost, last = 0.0, view.engine, len(problem.convolutions) - 1
    rows_of = Counter((strip.middle[1], strip.rows[1]) for strip in strips)
    sizes = {rounds[0][1]: len(rounds) - 1}
    sizes[rounds[-1][1]] = sizes.get(rounds[-1][1], 0) + 1
    for ((front, behind), turns), (size, times) in product(rows_of.items(), sizes.items()):
        if not times:
            continue
        for at, one in enumerate(problem.convolutions):
            made, depth = (one.filters, size) if at == last else (size, one.channels // one.groups)
            rows = front if at == 0 else behind
            taken = _products(one, made, depth, rows, view)
            if at != last:
                taken += cost.output * made * rows * one.columns
            work += turns * times * taken
    point, moved = problem.point, tiles.moved_bytes()
    outputs = point.filters * point.rows * point.columns
    work += cost.output * outputs * (2 if tiles.kept else 1)
    steps, stores = len(strips) * len(rounds), 0 if tiles.kept else len(strips)
    loads = steps * len(problem.convolutions) if not tiles.weights_stay else 3
    loads += len(strips) * (tiles.loads_residual + (not tiles.held)) + 3
    moving = transfer_cycles(view.transfer, Moved(loads + stores, loads, moved))
    first = 0 if tiles.held else tiles.in_bytes + sum(tiles.weight_bytes)
    left = 0 if tiles.kept else tiles.out_bytes[-1] // len(strips)
    return _Cost(work, moving, transfer_cycles(view.transfer, Moved(4, 4, first + left)), moved)


def _products(
    one: ConvProblem, filters: int, depth: int, rows: int, view: LoopMachine
) -> float:
    taps = prod(one.kernel)
    passes = -(-taps // view.best_taps(depth, taps))
    if one.groups > 1:
        passes *= filters
    else:
        passes *= -(-filters // view.pes_on("M"))
    passes *= -(-depth // view.pes_on("N"))
    passes *= -(-rows // view.pes_on("R")) * -(-one.columns // view.pes_on("C"))
    return view.engine.setup + view.engine.iteration * passes


def possible_chains(fixed: FixedGraph, machine: TileMachine) -> list[FixedBlock]:
    """Convolutions over all channels with a depthwise one behind them, those alone, and depthwise
    ones, with a pointwise convolution behind; for arrays with memories of their own for inputs,
    weights and outputs. Every row of the OFM sees some of the IFM."""
    if machine.array is None or isinstance(machine.memories, SharedMemory):
        return []
    heads: list[FixedConv | FixedCascade] = [
        layer
        for layer in fixed.layers
        if isinstance(layer, FixedConv)
        and not layer.is_dense
        and layer.groups in (1, len(layer.weight))
        and layer.weight.shape[1] * layer.groups == fixed.shapes[layer.inputs[0]][0]
        and (layer.groups == 1 or layer.weight.shape[1] == 1)
    ]
    heads += [one for one in candidates(fixed) if isinstance(one.window, FixedConv)]
    return [one for one in blocks_behind(fixed, heads) if _sees_rows(one, fixed)]


def _sees_rows(layer: FixedBlock, fixed: FixedGraph) -> bool:
    """No window of the head lies in the padding altogether."""
    head = layer.head.conv if isinstance(layer.head, FixedCascade) else layer.head
    reach = [
        (taps - 1) * apart + 1
        for taps, apart in zip(head.weight.shape[2:], head.dilation, strict=True)
    ]
    out, inside = fixed.shapes[head.output], fixed.shapes[head.inputs[0]]
    for axis in (0, 1):
        front = head.padding[axis]
        last = (out[1 + axis] - 1) * head.stride[axis] - front
        if front >= reach[axis] or last >= inside[1 + axis]:
            return False
    return True


def members_of(layer: FixedBlock) -> tuple[str, ...]:
    """The tensors that a chain's convolutions make."""
    head = layer.head
    inner = (head.conv.output, head.output) if isinstance(head, FixedCascade) else (head.output,)
    return (*inner, layer.output)
