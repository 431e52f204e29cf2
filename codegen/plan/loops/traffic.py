"""What a plan of loops moves between the chip and the memory outside, in closed form.

Every count equals the sum over `plan.steps`: a stream's tiles together, times how often they come
(`plan.visits`). Halos count as often as tiles need them, or once where the plan keeps rows, edge
tiles by their own size, padding not at all, partial sums at accumulator width both ways; of what
strides pass over nothing where the plan takes only what windows touch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tvm_npu.codegen.plan.loops.axes import NONE_KEPT, in_axis, kept_rows
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import (
    OUT_LOOPS,
    LoopPlan,
    extent,
    group_runs,
    in_visits,
    trips,
    visits,
    weight_visits,
)
from tvm_npu.codegen.plan.loops.room import biases_stay
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES


@dataclass(frozen=True)
class Moved:
    """Transfers, the contiguous runs outside of the chip that they are made of, and bytes."""

    transfers: int = 0
    segments: int = 0
    size_bytes: int = 0

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            self.transfers + other.transfers,
            self.segments + other.segments,
            self.size_bytes + other.size_bytes,
        )

    def __mul__(self, times: int) -> Moved:
        return Moved(self.transfers * times, self.segments * times, self.size_bytes * times)


@dataclass(frozen=True)
class TileTraffic:
    """By stream, over the whole layer."""

    inputs: Moved
    residual: Moved
    weights: Moved
    biases: Moved
    outputs: Moved
    partial_loads: Moved
    partial_stores: Moved

    @property
    def total(self) -> Moved:
        result = Moved()
        for field in fields(self):
            result += getattr(self, field.name)
        return result

    @property
    def loads(self) -> Moved:
        return self.inputs + self.residual + self.weights + self.biases + self.partial_loads

    @property
    def stores(self) -> Moved:
        return self.outputs + self.partial_stores


def tile_traffic(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> TileTraffic:
    """All transfers of ``plan``."""
    size = problem.element_bytes
    out_visits = visits(problem, plan, OUT_LOOPS)
    out, sums = (
        _out_tiles(problem, plan, size),
        _out_tiles(problem, plan, problem.accumulator_bytes),
    )
    return TileTraffic(
        inputs=_in_tiles(problem, plan, size) * in_visits(problem, plan),
        residual=out if problem.has_residual else Moved(),
        weights=_weight_tiles(problem, plan, size) * weight_visits(problem, plan),
        biases=_biases(problem, plan, machine),
        outputs=out,
        partial_loads=sums * (out_visits - 1),
        partial_stores=sums * (out_visits - 1),
    )


def _in_tiles(problem: ConvProblem, plan: LoopPlan, size: int) -> Moved:
    """Every IN tile once. Tiles of full columns are one run a channel, those of all rows as well
    one run in all; others a run a row. What comes of a tile that keeps rows is a transfer a
    channel."""
    if plan.touched_only:
        return _touched(problem, plan, size)
    rows = in_axis(problem, "R", plan.tile_r)
    kept = kept_rows(problem, plan.tile_r) if plan.keeps_rows else NONE_KEPT
    columns = in_axis(problem, "C", plan.tile_c)
    stacks = group_runs(problem, plan) * trips(problem, plan, "N")
    channels = problem.channels
    afresh, inside = rows.filled - kept.tiles, rows.inside - kept.kept
    wide = rows.full * stacks + (afresh - rows.full + kept.bringing) * channels
    narrow = inside * channels
    return Moved(
        columns.filled * (afresh * stacks + kept.bringing * channels),
        columns.full * wide + (columns.filled - columns.full) * narrow,
        inside * columns.inside * channels * size,
    )


def in_arrivals(problem: ConvProblem, plan: LoopPlan) -> int:
    """How often an IN tile comes; one that comes row by row or channel by channel counts once."""
    rows, columns = in_axis(problem, "R", plan.tile_r), in_axis(problem, "C", plan.tile_c)
    tiles = group_runs(problem, plan) * trips(problem, plan, "N") * rows.filled * columns.filled
    return tiles * in_visits(problem, plan)


def in_loads(problem: ConvProblem, plan: LoopPlan) -> int:
    """`in_arrivals` of which anything comes from outside: not all rows move on chip."""
    if not plan.keeps_rows:
        return in_arrivals(problem, plan)
    kept, columns = kept_rows(problem, plan.tile_r), in_axis(problem, "C", plan.tile_c)
    moved = (kept.tiles - kept.bringing) * columns.filled
    stacks = group_runs(problem, plan) * trips(problem, plan, "N")
    return in_arrivals(problem, plan) - moved * stacks * in_visits(problem, plan)


def _touched(problem: ConvProblem, plan: LoopPlan, size: int) -> Moved:
    """`_in_tiles` of what windows touch: a transfer a channel, a run an element."""
    elements = problem.rows * problem.columns * problem.channels
    tiles = trips(problem, plan, "R") * trips(problem, plan, "C")
    return Moved(tiles * problem.channels, elements, elements * size)


def _weight_tiles(problem: ConvProblem, plan: LoopPlan, size: int) -> Moved:
    """Every W tile once: one run with all channels, else a run a filter."""
    channel_tiles = trips(problem, plan, "N")
    tiles = group_runs(problem, plan) * trips(problem, plan, "M") * channel_tiles
    taps = problem.kernel[0] * problem.kernel[1]
    return Moved(
        tiles,
        tiles if channel_tiles == 1 else problem.filters * channel_tiles,
        problem.filters * (problem.channels // problem.groups) * taps * size,
    )


def _out_tiles(problem: ConvProblem, plan: LoopPlan, size: int) -> Moved:
    """Every OUT tile once, in runs as IN tiles."""
    row_tiles, column_tiles = trips(problem, plan, "R"), trips(problem, plan, "C")
    stacks = group_runs(problem, plan) * trips(problem, plan, "M")
    if column_tiles > 1:
        segments = problem.filters * problem.rows * column_tiles
    elif row_tiles > 1:
        segments = problem.filters * row_tiles
    else:
        segments = stacks
    return Moved(
        stacks * row_tiles * column_tiles,
        segments,
        problem.filters * problem.rows * problem.columns * size,
    )


def _biases(problem: ConvProblem, plan: LoopPlan, machine: LoopMachine) -> Moved:
    all_biases = problem.filters * BIAS_BYTES
    if biases_stay(problem, machine):
        return Moved(1, 1, all_biases)
    runs = group_runs(problem, plan) * trips(problem, plan, "M")
    # Tiles are finished in the last trip of the loop over channels only.
    last = replace(plan, tile_n=extent(problem, "N"))
    return Moved(runs, runs, all_biases) * visits(problem, last, frozenset("M"))
