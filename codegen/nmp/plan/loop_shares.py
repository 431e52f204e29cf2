"""What planners of loops are asked about a layer on an NMP, and their answers as plans of the NMP.

A TLT is a machine of its own: MB0, MB1 and MB2 are its memories, its MAC unit an array, its share
of the DMA engine what moves tiles. For every way in which TSO spreads a layer over TLEs (KS,
KS&OFM, OFM), and rows or filters over the TLTs of each, there is a question: the largest share of
one TLT. The answer, with the way to spread, is a plan of the NMP. Partial sums stay on chip there,
so only what needs none outside is planned, or becomes output stationary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Schedule, Split
from tvm_npu.codegen.nmp.plan.cost import one_group, predict
from tvm_npu.codegen.nmp.plan.tso import SPLITS, tle_slices
from tvm_npu.codegen.plan.loops.machine import (
    EngineCost,
    LoopMachine,
    SplitMemories,
    TransferCost,
)
from tvm_npu.codegen.plan.loops.plan import LoopPlan, trips
from tvm_npu.codegen.plan.loops.questions import LoopQuestion
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine


def tlt_machine(machine: NmpMachine, element_bytes: int) -> LoopMachine:
    """One TLT of ``machine``. Sums lie in MB2 at the width of elements (guard bits come on top);
    the MAC unit takes channels side by side."""
    memories, dme = machine.memories, machine.dme
    lanes = machine.macs_per_cycle(element_bytes)
    rate = max(dme.bytes_per_cycle / machine.cores.tlts_per_tle, 0.01)
    return LoopMachine(
        name=f"a TLT of {machine.name}",
        memories=SplitMemories(memories.mb0_bytes, memories.mb1_bytes, memories.mb2_bytes),
        bias_bytes=memories.bias_bytes,
        pes=(1, lanes, 1, 1),
        macs_per_cycle=lanes,
        engine=EngineCost(1.0, machine.mac.setup_cycles, 1 / lanes),
        transfer=TransferCost(dme.setup_cycles, dme.burst_cycles, 1 / rate),
        outside_bytes_per_cycle=machine.dram.bytes_per_cycle,
        sums_leave=False,
    )


@dataclass(frozen=True)
class _Spread:
    """A way to spread a layer; ``grouped``: TLTs own whole groups."""

    split: Split
    row_slices: int
    filter_slices: int
    tlt_rows: int
    grouped: bool


def _spreads(machine: NmpMachine, grouped: bool) -> Iterator[_Spread]:
    tlts = machine.cores.tlts_per_tle
    for split in SPLITS:
        slices = tle_slices(split, machine.cores.tles)
        if slices is not None:
            for parts in (1, tlts) if tlts > 1 and not grouped else (1,):
                yield _Spread(split, *slices, parts, grouped)


def _share(problem: ConvProblem, spread: _Spread, tlts: int) -> ConvProblem:
    """What the TLT with most rows and filters computes, without borders. In the grouped mode its
    filters are whole groups."""

    def most(total: int, slices: int, each: int) -> int:
        dealt = -(-total // slices)
        return -(-dealt // each)

    rows = most(problem.rows, spread.row_slices, spread.tlt_rows)
    parts = spread.filter_slices, tlts // spread.tlt_rows
    if spread.grouped:
        groups = most(problem.groups, *parts)
        filters = groups * (problem.filters // problem.groups)
        channels = groups * (problem.channels // problem.groups)
    else:
        groups, channels = 1, problem.channels
        filters = most(problem.filters, *parts)
    in_rows = min(problem.in_tile_rows(rows), problem.in_rows)
    return replace(
        problem, filters=filters, channels=channels, groups=groups, rows=rows, in_rows=in_rows,
        padding=(0, problem.padding[1], 0, problem.padding[3]),
        accumulator_bytes=problem.element_bytes, window=None,
    )  # fmt: skip


def loop_questions(problem: ConvProblem, machine: NmpMachine) -> Iterator[LoopQuestion[ConvPlan]]:
    """One a way to spread the layer; groups several in a step, and one after another."""
    view = tlt_machine(machine, problem.element_bytes)
    kinds = (problem,) if problem.groups == 1 else (problem, one_group(problem))
    for kind in kinds:
        for spread in _spreads(machine, kind.groups > 1):
            share = _share(kind, spread, machine.cores.tlts_per_tle)
            realize = partial(_realized, problem, machine, share, spread)
            yield LoopQuestion(share, view, realize)


def _realized(
    problem: ConvProblem, machine: NmpMachine, share: ConvProblem, spread: _Spread, tile: LoopPlan
) -> ConvPlan | Infeasible:
    """``tile`` of one TLT's share as a plan of the NMP or, where its IN tile does not stay beside
    what else MB0 has to take, the same without that."""
    whole = (share.filters // share.groups, share.channels // share.groups)
    if spread.grouped and (tile.tile_m, tile.tile_n) != whole:
        return _refused(machine, "a tile of a part of a group, in the mode of many groups a step")
    plan = conv_plan(share, tile, spread)
    for one in (plan, replace(plan, keeps_in=False)):
        fault = check_plan(problem, one, machine)
        if fault is None:
            return replace(one, prediction=predict(problem, one, machine))
    return _refused(machine, str(fault))


def _refused(machine: NmpMachine, reason: str) -> Infeasible:
    return Infeasible(
        "scratchpads", 0, 0, f"machine {machine.name!r} cannot run the plan of a core: {reason}",
        "take smaller tiles or another planner",
    )  # fmt: skip


def conv_plan(share: ConvProblem, tile: LoopPlan, spread: _Spread) -> ConvPlan:
    """``tile`` of one TLT's share as a plan of the NMP, sound or not."""
    schedule: Schedule = "OS"
    keeps_in = False
    if spread.grouped:
        schedule = "WS"
    elif trips(share, tile, "N") == 1:
        moving = [loop for loop in tile.order if trips(share, tile, loop) > 1]
        if moving and moving[-1] in ("R", "C"):
            schedule = "WS"
        else:
            keeps_in = True
    return ConvPlan(
        mode="grouped" if spread.grouped else "multicast",
        split=spread.split,
        row_slices=spread.row_slices,
        filter_slices=spread.filter_slices,
        schedule=schedule,
        tile_m=tile.tile_groups * tile.tile_m,
        tile_n=tile.tile_n,
        tile_r=tile.tile_r,
        tile_c=tile.tile_c,
        tlt_rows=spread.tlt_rows,
        keeps_in=keeps_in,
    )
