"""What a plan costs on a machine: `predict`.

The model knows no search. It counts a plan exactly: ragged edge tiles, clipping at the borders of
the IFM, how rows, columns and filters are dealt to TLEs and TLTs, and who loads what for whom.

A TLE works in steps: one tile of each TLT, one run of tile_n channels. All its TLTs start together
and the first, whose tiles are the largest, sets the MAC time of the step. In a step

  IN  is loaded once for each set of TLTs with the same rows and columns; with ``ring_in`` only
      the TLE's run of ceil(tile_n / filter_slices) channels of it, which may be short or empty
  W   is loaded once for each set of TLTs with the same filters; with ``ring_weights`` only the
      TLE's run of ceil(tile_m / sharing TLEs) filters of it: TLE p of them takes run
      (p + filter part) % sharing

and a TLT stores its OUT tile, after it has loaded its residual tile, at the end of the channels.
OS and IS load both for every step; WS loads W, with all channels, once a turn over its filters;
``keeps_in`` loads IN once a place. TLEs that share a stream over the ring make as many turns as
the longest of them and load their runs in all of those. Biases are one 1-D load a TLT.

Times. With one buffer a TLE loads, multiplies and stores in turn:

    loads + MAC + stores

where `traffic` says how long all transfers of the TLE together take, and `mac_cycles` what a step
takes its MAC unit; but in the grouped mode, where one TLT works while others load
(`rounds.rounds_cycles`).
With two, `overlap.overlapped_cycles` says how steps hide each other. Few steps with a window behind
are walked event by event, with one buffer or two (`few_steps`). The TLEs run side by side:
the slowest sets the time, unless the DRAM that they share or the Global Ringbus takes longer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check_choices import choice_fault
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.few_steps import few_steps_cycles, takes_few_steps
from tvm_npu.codegen.nmp.plan.mac_time import mac_cycles, step_cycles
from tvm_npu.codegen.nmp.plan.tle_cost import TleCost
from tvm_npu.codegen.nmp.plan.tle_walk import TleWalk
from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC
from tvm_npu.codegen.nmp.plan.turns import TleTurns, tle_turns
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.sim.nmp.machine import NmpMachine

__all__ = ["mac_cycles", "one_group", "predict", "step_cycles"]


def one_group(problem: ConvProblem) -> ConvProblem:
    """One group of a grouped convolution as a convolution of its own."""
    return replace(
        problem,
        filters=problem.filters // problem.groups,
        channels=problem.channels // problem.groups,
        groups=1,
    )


def predict(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Prediction:
    """Exact count of the plan's transfers and MAC steps, and the time that follows.

    ``cycles`` is the slowest TLE's time, the DRAM's or the ring's, whichever is longest, and
    ``bound`` what needs most of it if the others took nothing;
    ``mac_cycles``, ``load_cycles`` and ``store_cycles`` are the slowest TLE's, as if its engine
    had the DRAM to itself; the bytes are those
    that cross the DRAM bus for the whole layer (a multicast or a forwarded load counts once;
    residual tiles count as input, biases as weights). PlanningError for a plan whose choices
    contradict each other or need what the machine lacks; whether its tiles fit is `check_plan`'s
    question.
    """
    fault = choice_fault(problem, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    repeats = 1
    if plan.mode == "multicast" and problem.groups > 1:
        repeats = problem.groups
        problem = one_group(problem)
    costs: Counter[TleCost] = Counter()
    kinds = Counter(
        turns
        if plan.ring_in or plan.ring_weights
        else TleTurns(turns.rows, turns.columns, turns.items)
        for turns in tle_turns(problem, plan, machine)
    )
    for turns, tles in kinds.items():
        walk = TleWalk(problem, plan, machine, turns)
        cost = walk.cost()
        if problem.window is not None and takes_few_steps(walk):
            cost = replace(cost, overlapped_cycles=few_steps_cycles(walk))
        costs[cost] += tles
    return combined(costs, repeats, machine)


def combined(costs: Counter[TleCost], repeats: int, machine: NmpMachine) -> Prediction:
    slowest = max(costs, key=lambda cost: cost.cycles(machine))
    inputs = weights = outputs = NO_TRAFFIC
    for cost, tles in costs.items():
        inputs += (cost.inputs + cost.residuals) * (tles * repeats)
        weights += cost.weights * (tles * repeats)
        outputs += cost.outputs * (tles * repeats)
    everything = inputs + weights + outputs
    own = slowest.cycles(machine) * repeats
    load, store = slowest.load_cycles(machine) * repeats, slowest.store_cycles(machine) * repeats
    mac = slowest.mac_cycles * repeats
    dram, ring = everything.dram_cycles(machine), everything.ring_cycles(machine)
    cycles = max(own, dram, ring)
    needs = {"mac": mac, "dma": load + store, "dram": dram, "ring": ring}
    return Prediction(
        cycles=cycles,
        mac_cycles=mac,
        load_cycles=load,
        store_cycles=store,
        in_bytes=inputs.bytes,
        weight_bytes=weights.bytes,
        out_bytes=outputs.bytes,
        ring_bytes=everything.ring_bytes,
        bound=max(needs, key=needs.__getitem__),  # type: ignore[arg-type]
    )
