"""What a loop plan costs on a machine: `predict_loops`.

Traffic is exact (`traffic.tile_traffic`). A transfer takes C + s * p + n * t (double-buffer paper,
Equation 1): start, segments, bytes. A step takes the array the product over the loops of
ceil(tile / PEs on that loop) (e-PlaNNer, Equation 6.9), kernel taps divided by those at once.

On machines whose clocks are known (`walk`), these go through all steps and say the time, unless
steps are very many. What follows is said of others.

With one buffer nothing overlaps, as the tile that comes overwrites the one in use, but for residual
tiles and biases, for which only the finish of a tile waits, and resident tiles. With two, the mover
brings the tiles of the next step and stores the results of the last while the engine works. Steps
differ by the loop that moves on (`_Advance`): those inside of it begin anew, and only tiles that
depend on one of them come and go. So the time is the sum over the four kinds of steps of
max(transfers, engine), plus what comes before the first and after the last step. Where the core
waits between the transfers of a tile, all but the last of these are beside nothing. Tiles of one
kind count as equally large here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.loops.axes import in_axis, kept_rows
from tvm_npu.codegen.plan.loops.machine import EngineCost, LoopMachine, TransferCost
from tvm_npu.codegen.plan.loops.plan import (
    IN_LOOPS,
    LOOPS,
    OUT_LOOPS,
    WEIGHT_LOOPS,
    Loop,
    LoopPlan,
    extent,
    group_runs,
    seen,
    step_count,
    trips,
    visits,
)
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.loops.traffic import (
    Moved,
    TileTraffic,
    in_arrivals,
    in_loads,
    tile_traffic,
)
from tvm_npu.codegen.plan.loops.walked import MOST_WALKED, can_be_walked, walked_cycles
from tvm_npu.codegen.plan.problem import Bound, ConvProblem, Prediction


def transfer_cycles(cost: TransferCost, moved: Moved) -> float:
    """What transfers take."""
    starts = cost.start * moved.transfers + cost.segment * moved.segments
    return starts + cost.byte * moved.size_bytes


def iterations(total: int, tile: int, pes: int) -> int:
    """Sum of ceil(part / pes) over the tiles that ``total`` is cut into."""
    whole, rest = divmod(total, tile)
    return whole * -(-tile // pes) + -(-rest // pes)


def engine_cycles(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> float:
    """What all steps take the compute engine."""
    cost = machine.engine
    runs = group_runs(problem, plan)
    counts = {loop: trips(problem, plan, loop) for loop in LOOPS}
    steps = runs
    passes = problem.groups * -(-problem.kernel[0] * problem.kernel[1] // plan.taps_at_once)
    for loop in LOOPS:
        steps *= counts[loop]
        passes *= iterations(extent(problem, loop), plan.tile(loop), machine.pes_on(loop))
    outputs = problem.filters * problem.rows * problem.columns
    cycles = cost.iteration * passes + cost.setup * steps + cost.output * outputs
    if plan.keeps_rows:
        cycles += _keeping_cycles(problem, plan, cost)
    if cost.total == cost.finish == cost.byte == 0:
        return cycles
    size, spread = problem.element_bytes, counts["R"] * counts["C"]
    depth = problem.channels // problem.groups * problem.kernel[0] * problem.kernel[1]
    source = seen(problem, plan)
    inside = in_axis(source, "R", plan.tile_r).inside * in_axis(source, "C", plan.tile_c).inside
    read = inside * problem.channels * counts["M"] + problem.filters * depth * spread + outputs
    touched = size * read + problem.accumulator_bytes * outputs * counts["N"]
    return (
        cycles
        + cost.total * outputs * counts["N"]
        + cost.finish * runs * counts["M"] * spread
        + cost.byte * touched
    )


def _keeping_cycles(problem: ConvProblem, plan: LoopPlan, cost: EngineCost) -> float:
    """What the engine takes to move rows from IN tile to IN tile, a channel at a time."""
    kept = kept_rows(problem, plan.tile_r)
    columns = in_axis(problem, "C", plan.tile_c)
    times = problem.channels * visits(problem, plan, IN_LOOPS)
    elements = kept.kept * columns.inside
    each = cost.output + 2 * problem.element_bytes * cost.byte
    return times * (cost.finish * kept.tiles * columns.filled + each * elements)


def predict_loops(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> Prediction:
    """Exact traffic, and the time that follows.

    Residual tiles count as input, biases as weights, partial sums of both ways as output. Raises
    PlanningError for a plan that `check_loop_plan` refuses.
    """
    fault = check_loop_plan(problem, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    return predicted(problem, plan, machine)


def predicted(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> Prediction:
    """`predict_loops` for a plan that is known to be sound."""
    traffic, cost = tile_traffic(problem, plan, machine), machine.transfer
    engine = engine_cycles(problem, plan, machine)
    loads, stores = transfer_cycles(cost, traffic.loads), transfer_cycles(cost, traffic.stores)
    if can_be_walked(problem, machine) and step_count(problem, plan) <= MOST_WALKED:
        cycles = walked_cycles(problem, plan, machine)
    elif plan.buffers == 1:
        hidden = _beside_products(problem, plan, traffic, machine, engine)
        cycles = loads + stores + engine - hidden
    else:
        cycles = _overlapped(problem, plan, traffic, machine, engine)
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


def _beside_products(
    problem: ConvProblem,
    plan: LoopPlan,
    traffic: TileTraffic,
    machine: LoopMachine,
    engine: float,
) -> float:
    """Of a plan with one buffer: cycles in which residual tiles and biases, which only the finish
    of a tile waits for, come beside its products, and resident tiles beside those of the step
    before, behind which nothing is stored."""
    outputs = problem.filters * problem.rows * problem.columns
    products = (engine - machine.engine.output * outputs) / step_count(problem, plan)
    late = transfer_cycles(machine.transfer, traffic.residual + traffic.biases)
    hidden = min(late, products * traffic.outputs.transfers)
    if not plan.resident:
        return hidden
    is_in = plan.resident == "IN"
    moved = traffic.inputs if is_in else traffic.weights
    times = in_arrivals(problem, plan) if is_in else moved.transfers
    each = transfer_cycles(machine.transfer, moved) / times if times else 0.0
    kinds = [kind for kind in _advances(problem, plan) if not kind.moved & OUT_LOOPS]
    come = sum(kind.inputs if is_in else kind.weights for kind in kinds)
    return hidden + come * min(each, products)


@dataclass(frozen=True)
class _Advance:
    """Steps at whose begin the same loops move on; how many of them bring an IN tile, how many a W
    tile."""

    steps: int
    moved: frozenset[Loop]
    inputs: int
    weights: int


def _advances(problem: ConvProblem, plan: LoopPlan) -> Iterator[_Advance]:
    """The kinds of steps, from the first of each run of groups to those of the innermost loop."""
    counts = [trips(problem, plan, loop) for loop in plan.order]
    before, outer = 0, group_runs(problem, plan)
    for depth in range(len(counts) + 1):
        if depth:
            outer *= counts[depth - 1]
        inner = zip(plan.order[max(depth - 1, 0) :], counts[max(depth - 1, 0) :], strict=True)
        moved = frozenset(loop for loop, count in inner if count > 1 or depth == 0)
        steps = outer - before
        if steps:
            inputs, weights = (steps if moved & one else 0 for one in (IN_LOOPS, WEIGHT_LOOPS))
            if plan.resident == "IN":
                inputs = _bringing(problem, plan, depth, IN_LOOPS, inputs)
            elif plan.resident == "W":
                weights = _bringing(problem, plan, depth, WEIGHT_LOOPS, weights)
            yield _Advance(steps, moved, inputs, weights)
        before = outer


def _bringing(
    problem: ConvProblem, plan: LoopPlan, depth: int, loops: frozenset[str], steps: int
) -> int:
    """How many of ``steps``, at which the loop at ``depth`` - 1 moves on and which a tile of
    ``loops`` would come with, a resident one does come with: loops that it does not depend on,
    inside of all that make its place, have to be at their first trip."""
    several = [at for at, loop in enumerate(plan.order) if trips(problem, plan, loop) > 1]
    place = max((at for at in several if plan.order[at] in loops - {"N"}), default=-1)
    staying = [at for at in several if at > place and plan.order[at] not in loops]
    if depth - 1 in staying:
        return 0
    return steps // prod(trips(problem, plan, plan.order[at]) for at in staying if at < depth)


def _overlapped(
    problem: ConvProblem, plan: LoopPlan, traffic: TileTraffic, machine: LoopMachine, engine: float
) -> float:
    """With two buffers."""
    cost, come = machine.transfer, in_arrivals(problem, plan)
    each_in = transfer_cycles(cost, traffic.inputs) / come if come else 0.0
    waited = 0.0
    if machine.waits_between and come:
        waited = each_in * (1 - in_loads(problem, plan) / traffic.inputs.transfers)
    each_weights = transfer_cycles(cost, traffic.weights) / traffic.weights.transfers
    kinds = list(_advances(problem, plan))
    steps = sum(kind.steps for kind in kinds)
    out_tiles = traffic.outputs.transfers
    leaving = out_tiles + traffic.partial_stores.transfers
    # What a change of the OUT tile costs the mover on average: results or partial sums out,
    # residual tiles and partial sums in.
    changing = traffic.stores + traffic.partial_loads + traffic.residual
    change = transfer_cycles(cost, changing) / leaving
    work = engine / steps
    total, first = waited * sum(kind.inputs for kind in kinds), True
    for kind in kinds:
        changes = change if kind.moved & OUT_LOOPS else 0.0
        for count, arrive in _arrivals(kind, each_in - waited, each_weights):
            if first:  # nothing runs beside the first loads, nor beside the last store
                total += arrive + max(work, transfer_cycles(cost, traffic.biases)) + change
                count, first = count - 1, False
            total += count * max(arrive + changes, work)
    return total


def _arrivals(
    kind: _Advance, each_in: float, each_weights: float
) -> tuple[tuple[int, float], ...]:
    """(steps, what loads of each take): those that bring both tiles, one, and none."""
    both, some = min(kind.inputs, kind.weights), max(kind.inputs, kind.weights)
    one = each_in if kind.inputs > kind.weights else each_weights
    return (both, each_in + each_weights), (some - both, one), (kind.steps - some, 0.0)
