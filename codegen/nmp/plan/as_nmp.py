"""Planners of tile machines on an NMP.

A TLT is a tile machine: MB0, MB1 and MB2 are its memories, its MAC unit an array, its share of the
DMA engine a mover. For every way in which TSO spreads a layer over TLEs (KS, KS&OFM, OFM), and rows
or filters over the TLTs of each, the planner plans the largest share of one TLT; the answer, with
the split, is a plan of the NMP. Partial sums stay on chip there, so only what needs none outside is
planned, or becomes output stationary. Among the splits the planner's own measure decides: by
performance / bytes, transfer time, or bytes, of the NMP's exact prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.cost import one_group, predict
from tvm_npu.codegen.nmp.plan.tso import SPLITS, TsoPlanner, tle_slices
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.plan import TilePlan, trips
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Infeasible, Prediction, Schedule
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.tiles.machine import Mover, PeArray, SplitMemories, TileMachine, Words

Measure = Literal["metric", "transfers", "bytes"]


class TilePlanner(Protocol):
    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> TilePlan | Infeasible: ...


def tlt_machine(machine: NmpMachine, element_bytes: int) -> TileMachine:
    """One TLT of ``machine`` as a tile machine. Sums lie in MB2 at the width of elements (guard
    bits come on top); the MAC unit takes channels side by side."""
    memories, dme = machine.memories, machine.dme
    tlts = machine.cores.tlts_per_tle
    return TileMachine(
        name=f"{machine.name[:60]}-tlt",
        isa="tiles",
        frequency_mhz=machine.frequency_mhz,
        words=Words(int8_bytes=1, int16_bytes=2),
        memories=SplitMemories(
            input_bytes=memories.mb0_bytes,
            weight_bytes=memories.mb1_bytes,
            output_bytes=memories.mb2_bytes,
            bias_bytes=memories.bias_bytes,
        ),
        array=PeArray(
            width=machine.macs_per_cycle(element_bytes),
            height=1,
            column_mapping="IC",
            row_mapping="OC",
            setup_cycles=machine.mac.setup_cycles,
        ),
        mover=Mover(
            setup_cycles=dme.setup_cycles,
            segment_cycles=dme.burst_cycles,
            bytes_per_cycle=max(dme.bytes_per_cycle / tlts, 0.01),
        ),
        dram={  # type: ignore[arg-type]
            "base_address": machine.dram.base_address,
            "capacity_bytes": machine.dram.capacity_bytes,
        },
    )


@dataclass(frozen=True)
class _Cut:
    """A way to spread a layer."""

    split: Any
    row_slices: int
    filter_slices: int
    tlt_rows: int


def _cuts(machine: NmpMachine) -> Iterator[_Cut]:
    tlts = machine.cores.tlts_per_tle
    for split in SPLITS:
        slices = tle_slices(split, machine.cores.tles)
        if slices is not None:
            for parts in (1, tlts) if tlts > 1 else (1,):
                yield _Cut(split, *slices, parts)


def _share(problem: ConvProblem, cut: _Cut, tlts: int) -> ConvProblem:
    """What the TLT with most rows and filters computes, without borders. In the grouped mode its
    filters are whole groups."""

    def most(total: int, slices: int, each: int) -> int:
        dealt = -(-total // slices)
        return -(-dealt // each)

    rows = most(problem.rows, cut.row_slices, cut.tlt_rows)
    parts = cut.filter_slices, tlts // cut.tlt_rows
    if problem.groups > 1:
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


def conv_plan(problem: ConvProblem, share: ConvProblem, tile: TilePlan, cut: _Cut) -> ConvPlan:
    """``tile`` of one TLT's share as a plan of the NMP."""
    grouped = problem.groups > 1
    schedule: Schedule = "OS"
    keeps_in = False
    if grouped:
        schedule = "WS"
    elif trips(share, tile, "N") == 1:
        moving = [loop for loop in tile.order if trips(share, tile, loop) > 1]
        if moving and moving[-1] in ("R", "C"):
            schedule = "WS"
        else:
            keeps_in = True
    return ConvPlan(
        mode="grouped" if grouped else "multicast",
        split=cut.split,
        row_slices=cut.row_slices,
        filter_slices=cut.filter_slices,
        schedule=schedule,
        tile_m=tile.tile_groups * tile.tile_m,
        tile_n=tile.tile_n,
        tile_r=tile.tile_r,
        tile_c=tile.tile_c,
        tlt_rows=cut.tlt_rows,
        keeps_in=keeps_in,
    )


def _score(
    problem: ConvProblem, machine: NmpMachine, prediction: Prediction, measure: Measure
) -> float:
    """Larger is better."""
    moved = prediction.in_bytes + prediction.weight_bytes + prediction.out_bytes
    if measure == "transfers":
        return -(prediction.load_cycles + prediction.store_cycles)
    if measure == "bytes":
        return -moved
    used = problem.macs / max(prediction.mac_cycles, 1e-9)
    return min(used, machine.dram.bytes_per_cycle * problem.macs / moved) / moved


@dataclass(frozen=True)
class OnNmp:
    """``planner``, which plans tile machines, for an NMP. TSO plans layers for which no split gives
    a plan (biases or residual tiles that need another one), or says what is too large."""

    planner: TilePlanner
    measure: Measure = "metric"
    limits: TileLimits = NO_LIMITS

    @property
    def name(self) -> str:
        return self.planner.name

    def plan(self, problem: ConvProblem, machine: NmpMachine) -> ConvPlan | Infeasible:
        view = tlt_machine(machine, problem.element_bytes)
        best: tuple[float, ConvPlan] | None = None
        kinds = (problem,) if problem.groups == 1 else (problem, one_group(problem))
        for kind in kinds:
            for cut in _cuts(machine):
                if kind.groups > 1 and cut.tlt_rows > 1:
                    continue
                share = _share(kind, cut, machine.cores.tlts_per_tle)
                tile = self.planner.plan(share, view)
                if isinstance(tile, Infeasible):
                    continue
                whole = (tile.tile_m, tile.tile_n) == (
                    share.filters // share.groups, share.channels // share.groups,
                )  # fmt: skip
                if kind.groups > 1 and not whole:
                    continue
                plan = replace(conv_plan(kind, share, tile, cut), buffers=1, planner=self.name)
                sound = _sound(problem, plan, machine)
                if sound is None:
                    continue
                prediction = predict(problem, sound, machine)
                score = _score(problem, machine, prediction, self.measure)
                if best is None or score > best[0]:
                    best = score, replace(sound, prediction=prediction)
        if best is not None:
            return best[1]
        found = TsoPlanner(limits=self.limits).plan(problem, machine)
        return found if isinstance(found, Infeasible) else replace(found, planner=self.name)


def _sound(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> ConvPlan | None:
    """``plan`` or, where its IN tile does not stay beside what else MB0 has to take, the same
    without that; None where neither is sound."""
    for one in (plan, replace(plan, keeps_in=False)):
        if check_plan(problem, one, machine) is None:
            return one
    return None
