"""How long the code of layers is at least, from their plans alone, before any of it is made.

Tile machines have no loops, so each tile takes instructions of its own. What is counted is emitted
for certain: a transfer is an instruction (two with a DMA controller: each start is waited for
once), and so is work on tiles. Registers are counted where two transfers must differ in them: those
of one stream, one after the other, lie at different addresses; those of different channels of a DMA
controller have different programs; IN, W and OUT tiles have different places where they share a
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import prod
from typing import Any

from tvm_npu.codegen.errors import CapacityError
from tvm_npu.codegen.plan.loops.axes import in_axis, kept_rows
from tvm_npu.codegen.plan.loops.plan import (
    IN_LOOPS,
    LoopPlan,
    group_runs,
    seen,
    step_count,
    trips,
    visits,
)
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.loops.traffic import in_arrivals, tile_traffic
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.tiles.plan.broadcast import BroadcastShape, BroadcastTiles
from tvm_npu.codegen.tiles.plan.chain import ChainPlan, ChainProblem, ChainTiles, chain_fault
from tvm_npu.codegen.tiles.plan.flat import FlatShape, FlatTiles
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.plan.moves import MoveShape, MoveTiles
from tvm_npu.codegen.tiles.plan.pads import PadShape, PadTiles, border_boxes, count_of
from tvm_npu.codegen.tiles.plan.pools import WindowShape, WindowTiles
from tvm_npu.codegen.tiles.plan.run import RunPlan, RunProblem, run_fault, run_tiles
from tvm_npu.sim.tiles.isa import TileRegister
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

MOST_CODE_BYTES = 1 << 24
"""Of a program; whole networks take some hundred thousand instructions."""
LONGEST_COMMAND = 2 * len(TileRegister) + 8
"""Instructions, at most: halves of registers, waits for channels, the command. The code of a
program may end that much behind its limit: each command begins within."""


@dataclass(frozen=True)
class Length:
    """What a layer's commands are at least. ``registers``: those that any machine must set;
    ``turns``: from transfers of one channel of a DMA controller to those of another; ``apart``:
    from one place of a memory that all tiles share to another."""

    transfers: int = 0
    works: int = 0
    registers: int = 0
    turns: int = 0
    apart: int = 0

    def __add__(self, other: Length) -> Length:
        mine, others = astuple(self), astuple(other)
        return Length(*(one + more for one, more in zip(mine, others, strict=True)))

    def instructions(self, machine: TileMachine) -> int:
        result = self.transfers + self.works + self.registers
        if isinstance(machine.memories, SharedMemory):
            result += self.apart
        return result if machine.dmac is None else result + self.transfers + self.turns


def length_of(problem: Any, plan: Any, machine: TileMachine) -> Length:
    """Nothing for a plan that the machine cannot run, which those who emit it refuse."""
    found = _LENGTHS.get(type(plan))
    return Length() if found is None else found(problem, plan, machine)


def fewest_instructions(problem: Any, plan: Any, machine: TileMachine) -> int:
    """A lower bound of the layer's code; near to it where tiles are many."""
    return length_of(problem, plan, machine).instructions(machine)


def too_long(problem: Any, plan: Any, machine: TileMachine) -> bool:
    """Whether no program can have the layer."""
    fewest = fewest_instructions(problem, plan, machine)
    return (fewest - LONGEST_COMMAND) * WORD_BYTES > MOST_CODE_BYTES


def check_length(
    emitted: Sequence[int], names: Sequence[str], fewest: Sequence[int], machine: TileMachine
) -> None:
    """CapacityError where the program becomes too long for certain: the first of its layers have
    ``emitted`` instructions up to now, the others (those of the last one of ``emitted``, too) have
    at least ``fewest``."""
    begun = len(emitted)
    later = max(0, sum(fewest[begun:]) - LONGEST_COMMAND)
    needed = (sum(emitted) + later) * WORD_BYTES
    if needed <= MOST_CODE_BYTES:
        return
    known = [max(pair) for pair in zip((*emitted, *fewest[begun:]), fewest, strict=True)]
    longest = max(range(len(known)), key=known.__getitem__)
    sizes = machine.memories.model_dump(exclude_none=True)
    memories = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    needed = max(needed, sum(known) * WORD_BYTES)
    raise CapacityError(
        f"layer {names[longest]!r}: its tiles in the memories of machine {machine.name!r} "
        f"({memories}) are so small that it needs at least {known[longest]:,} of the at least "
        f"{needed // WORD_BYTES:,} instructions of the program; at most "
        f"{MOST_CODE_BYTES // WORD_BYTES:,} instructions are emitted; make the memories larger, or "
        "the model smaller",
        needed,
        MOST_CODE_BYTES,
    )


def _there_and_back(steps: int) -> int:
    """Changes of the channel at least, when each step loads and stores, with any buffers."""
    return max(0, 2 * steps - 3)


def _convolution(problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> Length:
    """Every step but those whose windows all lie in the padding multiplies, and brings an IN or a W
    tile; what it brings of both goes through two channels, an OUT tile that leaves through
    another. Under padding IN tiles may be equal to those before."""
    view = loop_machine(machine)
    if check_loop_plan(problem, plan, view) is not None:
        return Length()
    source = seen(problem, plan)
    traffic = tile_traffic(problem, plan, view)
    rows, columns = in_axis(source, "R", plan.tile_r), in_axis(source, "C", plan.tile_c)
    filled = rows.filled * columns.filled
    stacks = group_runs(problem, plan) * trips(problem, plan, "M") * trips(problem, plan, "N")
    works = stacks * filled + traffic.outputs.transfers
    arrivals, weights = in_arrivals(source, plan), traffic.weights.transfers
    stores, registers, turns = traffic.stores.transfers, 0, 0
    if plan.keeps_rows:
        times = columns.filled * visits(problem, plan, IN_LOOPS)
        slides = kept_rows(problem, plan.tile_r).tiles * times
        works += slides * problem.channels
        slides *= group_runs(problem, plan) * trips(problem, plan, "N")
        registers = max(0, 2 * slides - 1)  # OPERANDS, there and back
    else:
        both = max(0, arrivals + weights - step_count(problem, plan))
        turns = max(0, 2 * both - 1)
        if filled == rows.tiles * columns.tiles:
            turns += max(0, stores - 2)
    inputs = 0 if plan.keeps_rows or any(problem.padding) else traffic.inputs.transfers
    registers += max(weights, stores, inputs) - 1
    return Length(traffic.total.transfers, works, registers, turns, turns)


def _chain(problem: ChainProblem, plan: ChainPlan, machine: TileMachine) -> Length:
    if chain_fault(problem, plan, machine) is not None:
        return Length()
    return _chain_tiles(
        ChainTiles(problem, plan.tile_rows, plan.tile_channels, plan.keeps_rows)
    )


def _chain_tiles(tiles: ChainTiles) -> Length:
    """Of every strip an input and an output, of every round weights (unless they stay) and two
    commands for each convolution but the last, which is finished with a strip, and copied where it
    stays on chip."""
    strips, rounds, count = len(tiles.strips), len(tiles.rounds), len(tiles.problem.convolutions)
    steps = strips * rounds
    transfers = count * (1 if tiles.weights_stay else steps)
    if not tiles.held:
        transfers += 1 if tiles.keeps_rows else strips
    works = steps * (2 * count - 1) + strips
    if tiles.kept:
        works += 1 if strips == 1 else strips * tiles.problem.point.filters
    else:
        transfers += strips
    return Length(transfers, works)


def _run(problem: RunProblem, plan: RunPlan, machine: TileMachine) -> Length:
    if run_fault(problem, plan, machine) is not None:
        return Length()
    return sum(map(_chain_tiles, run_tiles(problem, plan)), Length())


def _windows(shape: WindowShape, tiles: WindowTiles, machine: TileMachine) -> Length:
    """Tiles whose windows all lie in the padding are filled: nothing is loaded."""
    channels = -(-shape.channels // tiles.tile_channels)
    axes = ((shape.rows, tiles.tile_r), (shape.columns, tiles.tile_c))
    filled = prod(
        sum(shape.inside(axis, at, min(each, total - at))[1] > 0 for at in range(0, total, each))
        for axis, (total, each) in enumerate(axes)
    )
    all_tiles = channels * prod(-(-total // each) for total, each in axes)
    loads = channels * filled
    turns = _there_and_back(all_tiles) if loads == all_tiles else 0
    return Length(loads + all_tiles, all_tiles, all_tiles - 1, turns, turns)


def _pad(shape: PadShape, tiles: PadTiles, machine: TileMachine) -> Length:
    result = Length()
    if tiles.copy is not None:
        result = _windows(shape.window, tiles.copy, machine)
        if shape.stride == (1, 1):
            result = replace(result, works=0, apart=0)  # tiles go from where they came
    if tiles.fill_elements:
        most = tiles.fill_elements
        pieces = sum(-(-count_of(box) // most) for box in border_boxes(shape))
        result += Length(pieces, 1, pieces - 1)
    return result


def _flat(shape: FlatShape, tiles: FlatTiles, machine: TileMachine) -> Length:
    count = -(-shape.elements // tiles.tile_elements)
    turns = _there_and_back(count)
    return Length((shape.operands + 1) * count, count, count - 1, turns, turns)


def _broadcast(shape: BroadcastShape, tiles: BroadcastTiles, machine: TileMachine) -> Length:
    count = -(-shape.channels // tiles.tile_channels) * -(-shape.positions // tiles.tile_positions)
    turns = _there_and_back(count)
    return Length(3 * count, 3 * count, count - 1, turns, turns)


def _move(shape: MoveShape, tiles: MoveTiles, machine: TileMachine) -> Length:
    """Tiles that repeat the source are stored as often."""
    result = Length()
    for piece, plan in zip(shape.pieces, tiles.pieces, strict=True):
        others = [axis for at, axis in enumerate(piece.axes) if at not in plan.order]
        count = prod(axis.extent for axis in others if axis.source)
        again = prod(axis.extent for axis in others if not axis.source)
        for at, each in zip(plan.order, plan.tile, strict=True):
            count *= -(-piece.axes[at].extent // each)
        result += Length(count * (1 + again), 0, count * again - 1, _there_and_back(count))
    return result


_LENGTHS: Mapping[type, Callable[[Any, Any, TileMachine], Length]] = {
    LoopPlan: _convolution,
    ChainPlan: _chain,
    RunPlan: _run,
    WindowTiles: _windows,
    PadTiles: _pad,
    FlatTiles: _flat,
    BroadcastTiles: _broadcast,
    MoveTiles: _move,
}
