"""Which chains there are in a graph, and how each is planned.

A chain's space is small: strips, rounds, buffers, rows of the input that are kept or not. By bytes,
the plan is the best of all; bounds of its time break ties. By time it is the best of all, too:
plans are timed by the clocks that predict them, in the order of their bounds, until no bound is
less than the best time. Two limits keep planning short: `MOST_STEPS`, `chain_space.MOST_TRIED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates, sees_input
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.planner import Goal
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    Need,
    least_need,
)
from tvm_npu.codegen.tiles.plan.chain_bound import ChainBound
from tvm_npu.codegen.tiles.plan.chain_space import ChainSpace, Counts, Place, spaces
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

CHAIN_PLANNERS = ("exact", "exact-traffic")
"""Planners that take chains."""
MOST_STEPS = 5_000
"""Steps of tiles that are timed for a chain; behind them the best that was found is taken."""
Clock = Callable[[ChainProblem, ChainPlan, TileMachine], float]
"""Predicts the cycles of a plan without a fault."""
Buffers = Literal[1, 2]
BUFFERS: tuple[Buffers, Buffers] = (1, 2)
_MEMORIES = {
    "biases": "the bias memory", "weights": "the weight memory", "sums": "the output memory"
}  # fmt: skip
"""Where what takes room lies."""
Value = tuple[float, float]
"""By the goal, then by the other one."""


def chain_problem(
    layer: FixedBlock, shapes: Mapping[str, Shape], precision: Precision, machine: TileMachine
) -> ChainProblem:
    """What is asked about ``layer``; widths are those in the machine's memories."""
    size, sums = machine.element_bytes(precision), machine.accumulator_bytes(precision)

    def asked(one: FixedConv) -> ConvProblem:
        found = conv_problem(one, shapes[one.inputs[0]], shapes[one.output], size)
        return replace(found, accumulator_bytes=sums, is_dense=False)

    head = layer.head
    first, window = (head.conv, head.window) if isinstance(head, FixedCascade) else (head, None)
    assert window is None or isinstance(window, FixedConv)
    adds_input = len(layer.point.inputs) > 1 and layer.point.inputs[1] == layer.inputs[0]
    return ChainProblem(
        asked(first), None if window is None else asked(window), asked(layer.point), adds_input
    )


def plan_chain(
    problem: ChainProblem,
    machine: TileMachine,
    planner: str,
    clock: Clock,
    limits: TileLimits = NO_LIMITS,
    goal: Goal = "cycles",
) -> ChainPlan | Infeasible:
    """The best plan within ``limits`` by ``goal``; of equals the one of fewest and
    largest tiles, by time the one of the least bound."""
    tries = all_tries(problem, machine, Place(), limits)
    if not tries and limits != NO_LIMITS and all_tries(problem, machine, Place()):
        return beyond_limits("strips and rounds of the chain", limits)
    if not tries:
        return no_room(
            least_need(smallest_tiles(problem, Place()), machine),
            "no strips and rounds of the chain fit", "run its layers one by one",
        )  # fmt: skip
    if goal == "cycles":
        return _fastest(tries, lambda plan: clock(problem, plan, machine), planner)
    _, tiles, buffers = min((one.best("bytes") for one in tries), key=lambda one: one[0])
    return plan_of(tiles, buffers, planner)


def _fastest(
    tries: Sequence[Tried], cycles: Callable[[ChainPlan], float], planner: str
) -> ChainPlan:
    """In the order of the bounds, until these reach the least time."""
    bounds = np.concatenate([one.bounds for one in tries])
    begins = np.cumsum([0, *(len(one.bounds) for one in tries)])
    best: ChainPlan | None = None
    least, steps = inf, 0
    for at in np.argsort(bounds, kind="stable"):
        if bounds[at] >= least:
            break
        number = int(np.searchsorted(begins, at, side="right")) - 1
        tiles = tries[number].tiles(int(at - begins[number]))
        steps += len(tiles.strips) * len(tiles.rounds)
        if best is not None and steps > MOST_STEPS:
            break
        plan = plan_of(tiles, tries[number].buffers, planner)
        time = cycles(plan) if steps <= MOST_STEPS else bounds[at]
        if time < least:
            least, best = time, plan
    assert best is not None  # something fits
    return best


@dataclass(frozen=True, eq=False)
class Tried:
    """All tiles of a space that fit, largest first: where they are in its arrays, how many cycles
    they take at least, and the bytes that they move."""

    space: ChainSpace
    buffers: Buffers
    at: tuple[Counts, Counts]
    bounds: NDArray[np.float64]
    moved_bytes: Counts

    def tiles(self, number: int) -> ChainTiles:
        rows, channels = self.at
        return self.space.tiles(int(rows[number]), int(channels[number]))

    def best(self, goal: Goal) -> tuple[Value, ChainTiles, Buffers]:
        """The first of the best."""
        both = self.bounds, self.moved_bytes
        wanted, other = both if goal == "cycles" else reversed(both)
        number = np.lexsort((other, wanted))[0]
        value = float(wanted[number]), float(other[number])
        return value, self.tiles(number), self.buffers


def all_tries(
    problem: ChainProblem, machine: TileMachine, place: Place, limits: TileLimits = NO_LIMITS
) -> list[Tried]:
    """With one buffer and with two, where any fit."""
    found = []
    bounds = [ChainBound(space) for space in spaces(problem, machine, place, limits)]
    for bound, buffers in product(bounds, BUFFERS):
        fitting = bound.space.fits(buffers)
        rows, channels = np.nonzero(fitting)
        if len(rows):
            cycles, moved = (
                np.broadcast_to(one, fitting.shape)[fitting]
                for one in (bound.cycles(buffers), bound.space.moved_bytes)
            )
            found.append(Tried(bound.space, buffers, (rows, channels), cycles, moved))
    return found


def plan_of(tiles: ChainTiles, buffers: Buffers, planner: str) -> ChainPlan:
    return ChainPlan(
        tiles.tile_rows, tiles.tile_channels, buffers, tiles.moved_bytes(), planner,
        tiles.keeps_rows,
    )  # fmt: skip


def smallest_tiles(problem: ChainProblem, place: Place) -> tuple[ChainTiles, ...]:
    """A channel in a round, a row in a strip or all of them: none need less room."""
    rows = problem.point.rows
    sizes = (rows,) if place.held else dict.fromkeys((1, rows))
    return tuple(ChainTiles(problem, one, 1, held=place.held, kept=place.kept) for one in sizes)


def no_room(need: Need, reason: str, remedy: str) -> Infeasible:
    what, needed, room = need
    memory = _MEMORIES.get(what, "the input memory")
    return Infeasible(memory, needed, room, reason, remedy)


def beyond_limits(what: str, limits: TileLimits) -> Infeasible:
    """There would be room for larger tiles."""
    said = ", ".join(f"{name} = {most}" for name, most in asdict(limits).items() if most)
    return Infeasible(
        "tile", 0, 0, f"no {what} keep to {said}", "raise the limits, or run the layers one by one"
    )


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
    """No window of the head lies in the padding altogether, and none leaves out rows or columns at
    an edge (padding of less than nothing: taps that met the padding alone are gone, or a crop)."""
    head = layer.head.conv if isinstance(layer.head, FixedCascade) else layer.head
    rows, columns = (
        (taps - 1) * apart + 1
        for taps, apart in zip(head.weight.shape[2:], head.dilation, strict=True)
    )
    return min(head.padding) >= 0 and sees_input(head, (rows, columns), fixed.shapes)


def members_of(layer: FixedBlock) -> tuple[str, ...]:
    """The tensors that a chain's convolutions make."""
    head = layer.head
    inner = (head.conv.output, head.output) if isinstance(head, FixedCascade) else (head.output,)
    return (*inner, layer.output)
