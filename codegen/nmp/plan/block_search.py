"""Plans for blocks: a ranked part of the space.

Every spread of rows, columns and filters over all TLEs and the TLTs of each; for every T_R, full
width or a part that is not too narrow; tiles of the head's filters that divide a TLT's; rounds and
T_N as large as fit; rings wherever TLEs share. All of it is ranked by a closed-form estimate
(`block_estimate`), and the best `PREDICTED` by the cost model.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, with_prediction
from tvm_npu.codegen.nmp.plan.block_check import SEMAPHORES, block_needs, check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.block_estimate import Candidates, Spread, estimate, fitting
from tvm_npu.codegen.nmp.plan.check import Deal, Need, most_lacking
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Split
from tvm_npu.codegen.nmp.plan.input_residual import adds_what_it_reads
from tvm_npu.codegen.nmp.plan.kept_rows import least_tile_rows, may_keep_rows
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import Infeasible, Prediction, share, slice_of, tile_sizes
from tvm_npu.sim.nmp.machine import NmpMachine

_REMEDY = "run its layers one after the other"
PREDICTED = 16
RANKED = 4 * PREDICTED
NARROWEST = 4
"""Tiles of no less than this part of a TLT's columns."""
DRIFT = 0.05
"""Share of the loads' time that counts beside the predicted time; by simulation of SqueezeNet's
blocks, where plans with half of the loads are up to 5 % faster than predictions tell."""


def plan_block(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits, name: str
) -> BlockPlan | Infeasible:
    """The best plan of the space above; ties go to the earlier candidate."""
    if machine.ring is None or machine.dme.semaphores < SEMAPHORES:
        return Infeasible(
            "semaphores", 0, 0, f"a block needs rings and {SEMAPHORES} semaphores", _REMEDY
        )
    ranked = _ranked(problem, machine, limits)
    sound = (plan for plan in ranked if check_block(problem, plan, machine) is None)
    predicted = [
        (predict_block(problem, plan, machine), plan) for plan in islice(sound, PREDICTED)
    ]
    if predicted:
        prediction, plan = min(predicted, key=lambda entry: _with_drift(*entry))
        return with_prediction(plan, prediction, name)
    if next(_spreads(problem, machine), None) is None:
        return Infeasible("TLTs", 0, 0, "no grid of all TLTs has work of a block for each", _REMEDY)
    memory, _, needed, available = _least_need(problem, machine, limits)
    return Infeasible(memory, needed, available, "no tile of a block fits", _REMEDY)


def _least_need(problem: BlockProblem, machine: NmpMachine, limits: TileLimits) -> Need:
    """What the smallest tiles of a spread lack most, of the spread that lacks least."""
    needs = []
    for spread in _spreads(problem, machine):
        one = np.ones(1, np.int64)
        columns = _choices(problem, spread, machine, limits)[1].min(keepdims=True)
        smallest = Candidates(
            spread, one, columns, filters=one, channels=one, passed=one, keeps_in=0 * one,
            buffers=one, slots=one, keeps_rows=0 * one, on_chip=0 * one,
        )  # fmt: skip
        plan = _plan(smallest, 0)
        deal = Deal.of(problem.head, plan.head, machine)
        needs.append(max(block_needs(problem, plan, machine, deal), key=most_lacking))
    return min(needs, key=most_lacking)


def _with_drift(prediction: Prediction, plan: BlockPlan) -> float:
    """Cycles by which plans are compared. Under OS, where every tile of filters brings its IN tiles
    anew behind rounds under which nothing is loaded, engines that have more to do hide less of it,
    as TLEs drift apart at the DRAM."""
    drift = DRIFT if plan.head.schedule == "OS" else 0.0
    return prediction.cycles + drift * prediction.load_cycles


def _grids(total: int) -> Iterator[tuple[int, int, int]]:
    """Rows x columns x filters of ``total`` cores."""
    divisors = [one for one in range(1, total + 1) if total % one == 0]
    for rows, columns in product(divisors, divisors):
        if total % (rows * columns) == 0:
            yield rows, columns, total // (rows * columns)


def _spreads(problem: BlockProblem, machine: NmpMachine) -> Iterator[Spread]:
    head = problem.head
    for slices, parts in product(
        _grids(machine.cores.tles), _grids(machine.cores.tlts_per_tle)
    ):
        crew = slices[2] * parts[2]
        if head.filters % crew or slices[0] > head.out_rows or slices[1] > head.out_columns:
            continue
        rows, columns, point = (
            share(slice_of(extent, slices[axis], 0)[1], parts[axis], 0)[1]
            for axis, extent in enumerate((head.out_rows, head.out_columns, problem.filters))
        )
        yield Spread(slices, parts, rows, columns, head.filters // crew, point)


def _ranked(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits
) -> Iterator[BlockPlan]:
    """The `RANKED` best by the estimate, in its order."""
    found: list[tuple[float, int, int]] = []
    sets = [
        fitting(problem, machine, limits, spread, _choices(problem, spread, machine, limits))
        for spread in _spreads(problem, machine)
    ]
    for number, candidates in enumerate(sets):
        cycles = estimate(problem, machine, candidates)
        best = np.argsort(cycles, kind="stable")[:RANKED]
        found += [(float(cycles[at]), number, int(at)) for at in best]
    for _, number, at in sorted(found)[:RANKED]:
        yield _plan(sets[number], at)


def _choices(
    problem: BlockProblem, spread: Spread, machine: NmpMachine, limits: TileLimits
) -> tuple[np.ndarray, ...]:
    """Rows, columns and filters of a tile, whether IN stays, buffers, slots, whether rows are kept
    and whether the residual comes from IN tiles: all combinations."""
    most = min(spread.columns, limits.max_tile_c or spread.columns)
    columns = [
        one for one in tile_sizes(most) if one == most or NARROWEST * one >= spread.columns
    ]
    rows = list(tile_sizes(min(spread.rows, limits.max_tile_r or spread.rows)))
    filters = [
        one
        for one in range(1, min(spread.filters, limits.max_tile_m or spread.filters) + 1)
        if spread.filters % one == 0
    ]
    buffers = [1, 2][: machine.memories.ports]
    lower = [one for one in rows if one < spread.rows and one >= least_tile_rows(problem.head)]
    whole = [one for one in filters if one == spread.filters]
    parts = [_combinations(rows, columns, filters, [0, 1], buffers, buffers, [0], [0])]
    if may_keep_rows(problem.head) and lower:
        parts += [_combinations(lower, columns, whole, [0], buffers, buffers, [1], [0])]
    width = problem.head.out_columns
    if adds_what_it_reads(problem) and spread.columns == width and most == width:
        of_full_width = [part for part in parts if width in part[1]]
        for part in of_full_width:
            full = part[1] == width
            parts += [(*(values[full] for values in part[:-1]), np.ones_like(part[-1][full]))]
    return tuple(np.concatenate(values) for values in zip(*parts, strict=True))


def _combinations(*values: list[int]) -> tuple[np.ndarray, ...]:
    return tuple(grid.ravel() for grid in np.meshgrid(*values, indexing="ij"))


def _plan(candidates: Candidates, at: int) -> BlockPlan:
    spread = candidates.spread
    rows, columns, filters, channels, passed, keeps_in, buffers, slots, keeps_rows, on_chip = (
        int(values[at])
        for values in (
            candidates.rows, candidates.columns, candidates.filters, candidates.channels,
            candidates.passed, candidates.keeps_in, candidates.buffers, candidates.slots,
            candidates.keeps_rows, candidates.on_chip,
        )
    )  # fmt: skip
    sharing = spread.slices[0] * spread.slices[1]
    split: Split = "KS&OFM"
    if spread.slices[2] == 1:
        split = "OFM"
    elif sharing == 1:
        split = "KS"
    head = ConvPlan(
        "multicast", split, spread.slices[0], spread.slices[2],
        "WS" if filters == spread.filters else "OS", filters, channels, rows, columns,
        column_slices=spread.slices[1], tlt_rows=spread.parts[0], tlt_columns=spread.parts[1],
        keeps_in=bool(keeps_in), ring_in=spread.slices[2] > 1, ring_weights=sharing > 1,
        weights="tiles", linear_maps=True, buffers=buffers,  # type: ignore[arg-type]
        keeps_rows=bool(keeps_rows), macs_first=buffers == 2,
    )  # fmt: skip
    return BlockPlan(head, passed, slots=slots, residual_on_chip=bool(on_chip))  # type: ignore[arg-type]
