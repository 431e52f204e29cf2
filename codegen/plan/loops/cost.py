"""What a tile plan costs on a machine: `predict_tiles`.

Traffic is exact (`traffic.tile_traffic`). A transfer takes C + s * p + n * t (double-buffer paper,
Equation 1): start, segments, bytes. A step takes the array the product over the loops of
ceil(tile / PEs on that loop) (e-PlaNNer, Equation 6.9).

With one buffer nothing overlaps: the tile that comes overwrites the one in use. With two, the mover
brings the tiles of the next step and stores the results of the last while the engine works. Steps
differ by the loop that moves on (`_Advance`): those inside of it begin anew, and only tiles that
depend on one of them come and go. So the time is the sum over the four kinds of steps of
max(transfers, engine), plus what comes before the first and after the last step. Tiles of one kind
count as equally large here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.loops.axes import in_axis
from tvm_npu.codegen.plan.loops.plan import (
    IN_LOOPS,
    LOOPS,
    OUT_LOOPS,
    WEIGHT_LOOPS,
    Loop,
    TilePlan,
    extent,
    group_runs,
    trips,
)
from tvm_npu.codegen.plan.loops.room import check_tile_plan
from tvm_npu.codegen.plan.loops.traffic import Moved, TileTraffic, tile_traffic
from tvm_npu.codegen.plan.problem import Bound, ConvProblem, Prediction
from tvm_npu.sim.parts.pl330.isa import LARGEST_BURST_BEATS
from tvm_npu.sim.tiles.machine import ArrayAxis, PeArray, TileMachine

ARRAY_LOOPS: dict[ArrayAxis, Loop] = {"OC": "M", "IC": "N", "OH": "R", "OW": "C"}


@dataclass(frozen=True)
class TransferCost:
    """Equation 1 of the double-buffer paper, in cycles: ``start`` (C) a transfer, ``segment`` (p) a
    contiguous run, ``byte`` (t / element size) a byte."""

    start: float
    segment: float
    byte: float

    def cycles(self, moved: Moved) -> float:
        return (
            self.start * moved.transfers
            + self.segment * moved.segments
            + self.byte * moved.size_bytes
        )


def transfer_cost(machine: TileMachine) -> TransferCost:
    """C, p and t of a machine's mover or DMA controller."""
    mover = machine.mover
    if mover is not None:
        return TransferCost(mover.setup_cycles, mover.segment_cycles, 1 / mover.bytes_per_cycle)
    dmac = machine.dmac
    assert dmac is not None  # a machine has one of them
    # A program: some ten instructions in three lines around its loops. Bursts follow each other as
    # far as the FIFO holds them, and what is loaded arrives with the latency of DDR.
    burst = min(LARGEST_BURST_BEATS * dmac.bus_bytes, dmac.fifo_bytes)
    dram = dmac.burst_cycles + burst / dmac.ddr_bytes_per_cycle
    chip = dmac.burst_cycles + burst / dmac.on_chip_bytes_per_cycle
    in_turn = (dmac.ddr_latency_cycles + dram + chip) / (dmac.fifo_bytes // burst)
    start = dmac.start_cycles + 10 * dmac.instruction_cycles + 3 * dmac.line_cycles
    each = max(dram, chip, 3 * dmac.instruction_cycles, in_turn)
    return TransferCost(start, dmac.jump_cycles, each / burst)


def pes_on(array: PeArray, loop: Loop) -> int:
    """PEs that the array spreads over ``loop``."""
    if ARRAY_LOOPS[array.column_mapping] == loop:
        return array.width
    return array.height if ARRAY_LOOPS[array.row_mapping] == loop else 1


def iterations(total: int, tile: int, pes: int) -> int:
    """Sum of ceil(part / pes) over the tiles that ``total`` is cut into."""
    whole, rest = divmod(total, tile)
    return whole * -(-tile // pes) + -(-rest // pes)


@dataclass(frozen=True)
class EngineCost:
    """Cycles of the compute engine: ``iteration`` a pass over all loops with as many PEs on each
    as the array has, ``setup`` a step, ``output`` an element that is finished; of a core also
    ``total`` a sum in each step that adds to it, ``finish`` a tile that is finished, ``byte`` a
    byte of a tile that comes into the cache for a step."""

    iteration: float
    setup: float
    output: float
    total: float = 0.0
    finish: float = 0.0
    byte: float = 0.0


def engine_cost(machine: TileMachine) -> EngineCost:
    """An array takes a cycle an iteration; a core two operands and a product a MAC. Tiles are taken
    to fit its cache."""
    array = machine.array
    if array is not None:
        return EngineCost(1.0, array.setup_cycles, 1 / (array.width * array.height))
    core = machine.core
    assert core is not None  # a machine has one of them
    access = core.chip_access_cycles if core.cache_bytes == 0 else core.hit_cycles
    byte = 0.0 if core.cache_bytes == 0 else core.chip_miss_cycles / core.line_bytes
    return EngineCost(
        core.mac_cycles + 2 * access, core.setup_cycles, core.operation_cycles + 2 * access,
        2 * access, core.setup_cycles, byte,
    )  # fmt: skip


def engine_cycles(problem: ConvProblem, plan: TilePlan, machine: TileMachine) -> float:
    """What all steps take the compute engine."""
    cost, array = engine_cost(machine), machine.array
    runs = group_runs(problem, plan)
    counts = {loop: trips(problem, plan, loop) for loop in LOOPS}
    steps = runs
    passes = problem.groups * problem.kernel[0] * problem.kernel[1]
    for loop in LOOPS:
        steps *= counts[loop]
        pes = 1 if array is None else pes_on(array, loop)
        passes *= iterations(extent(problem, loop), plan.tile(loop), pes)
    outputs = problem.filters * problem.rows * problem.columns
    cycles = cost.iteration * passes + cost.setup * steps + cost.output * outputs
    if array is not None:
        return cycles
    size, spread = problem.element_bytes, counts["R"] * counts["C"]
    depth = problem.channels // problem.groups * problem.kernel[0] * problem.kernel[1]
    inside = in_axis(problem, "R", plan.tile_r).inside * in_axis(problem, "C", plan.tile_c).inside
    read = inside * problem.channels * counts["M"] + problem.filters * depth * spread + outputs
    touched = size * read + problem.accumulator_bytes * outputs * counts["N"]
    return (
        cycles
        + cost.total * outputs * counts["N"]
        + cost.finish * runs * counts["M"] * spread
        + cost.byte * touched
    )


def predict_tiles(problem: ConvProblem, plan: TilePlan, machine: TileMachine) -> Prediction:
    """Exact traffic, and the time that follows.

    Residual tiles count as input, biases as weights, partial sums of both ways as output. Raises
    PlanningError for a plan that `check_tile_plan` refuses.
    """
    fault = check_tile_plan(problem, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    return predicted(problem, plan, machine)


def predicted(problem: ConvProblem, plan: TilePlan, machine: TileMachine) -> Prediction:
    """`predict_tiles` for a plan that is known to be sound."""
    traffic, cost = tile_traffic(problem, plan, machine), transfer_cost(machine)
    engine = engine_cycles(problem, plan, machine)
    loads, stores = cost.cycles(traffic.loads), cost.cycles(traffic.stores)
    if plan.buffers == 1:
        cycles = loads + stores + engine
    else:
        cycles = _overlapped(problem, plan, traffic, cost, engine)
    bound: Bound = "mac" if engine >= loads + stores else "dma"
    return Prediction(
        cycles=cycles,
        mac_cycles=engine,
        load_cycles=loads,
        store_cycles=stores,
        in_bytes=(traffic.inputs + traffic.residual).size_bytes,
        weight_bytes=(traffic.weights + traffic.biases).size_bytes,
        out_bytes=traffic.stores.size_bytes + traffic.partial_loads.size_bytes,
        bound=bound,
    )


@dataclass(frozen=True)
class _Advance:
    """Steps at whose begin the same loops move on."""

    steps: int
    moved: frozenset[Loop]


def _advances(problem: ConvProblem, plan: TilePlan) -> Iterator[_Advance]:
    """The kinds of steps, from the first of each run of groups to those of the innermost loop."""
    counts = [trips(problem, plan, loop) for loop in plan.order]
    before, outer = 0, group_runs(problem, plan)
    for depth in range(len(counts) + 1):
        if depth:
            outer *= counts[depth - 1]
        inner = zip(plan.order[max(depth - 1, 0) :], counts[max(depth - 1, 0) :], strict=True)
        moved = frozenset(loop for loop, count in inner if count > 1 or depth == 0)
        if outer > before:
            yield _Advance(outer - before, moved)
        before = outer


def _overlapped(
    problem: ConvProblem, plan: TilePlan, traffic: TileTraffic, cost: TransferCost, engine: float
) -> float:
    """With two buffers."""

    def each(moved: Moved) -> float:
        return cost.cycles(moved) / moved.transfers if moved.transfers else 0.0

    kinds = list(_advances(problem, plan))
    steps = sum(kind.steps for kind in kinds)
    out_tiles = traffic.outputs.transfers
    leaving = out_tiles + traffic.partial_stores.transfers
    # What a change of the OUT tile costs the mover on average: results or partial sums out,
    # residual tiles and partial sums in.
    changing = traffic.stores + traffic.partial_loads + traffic.residual
    change = cost.cycles(changing) / leaving
    work = engine / steps
    total, first = 0.0, True
    for kind in kinds:
        arrive = each(traffic.inputs) if kind.moved & IN_LOOPS else 0.0
        arrive += each(traffic.weights) if kind.moved & WEIGHT_LOOPS else 0.0
        both = arrive + (change if kind.moved & OUT_LOOPS else 0.0)
        count = kind.steps
        if first:  # nothing runs beside the first loads, nor beside the last store
            total += cost.cycles(traffic.biases) + arrive + work + change
            count, first = count - 1, False
        total += count * max(both, work)
    return total
