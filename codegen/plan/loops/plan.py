"""How a convolution runs on one engine: tile sizes, loop order, and the steps that follow.

A step multiplies one IN tile with one W tile into one OUT tile. The tiles of the step before stay
on chip; only a tile that the step needs and that is not there comes from outside of the chip (the
loop at the innermost position reloads nothing that does not depend on it: e-PlaNNer, 5.3 and 6.2).
An OUT tile that has to make room before all its channels are summed leaves as partial sums, at
accumulator width, and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Literal

from tvm_npu.codegen.plan.problem import ConvProblem, Prediction

Loop = Literal["M", "N", "R", "C"]
"""Filters, channels, rows, columns (of one group)."""
LOOPS: tuple[Loop, ...] = ("M", "N", "R", "C")

IN_LOOPS = frozenset({"N", "R", "C"})
WEIGHT_LOOPS = frozenset({"M", "N"})
OUT_LOOPS = frozenset({"M", "R", "C"})

Resident = Literal["", "IN", "W"]
RESIDENTS: tuple[Resident, ...] = ("", "IN", "W")
"""Nothing, IN tiles, W tiles: `LoopPlan.resident`."""

Range = tuple[int, int]
"""(begin, count)."""


@dataclass(frozen=True)
class LoopPlan:
    """``tile_m`` filters and ``tile_n`` channels of each of ``tile_groups`` groups, ``tile_r`` rows
    and ``tile_c`` columns of the OFM; edge tiles are smaller. ``order`` lists the loops from the
    outermost in; the loop over groups is outside of all of them. ``tile_groups`` > 1 takes all
    filters and channels of its groups. ``buffers`` 2: every tile has two places that take turns, so
    that a transfer can run while the engine works on the other. ``keeps_rows``: an IN tile takes
    the rows that lie in the IN tile before, too, from there, and only the others come from outside
    (a line buffer); tiles then follow each other down the rows, no loop over channels or columns
    being inside. ``touched_only``: of the IFM under a 1x1 kernel with strides, tiles have only what
    windows touch (`touched`). ``taps_at_once``: so many kernel taps are multiplied beside each
    other, each on PEs of its own over the channels of a tile. ``resident``: IN tiles of all
    channels of a place, or W tiles of all channels of a range of filters, stay on chip beside each
    other until the next place or range, so that one tensor has larger tiles than the others."""

    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int
    order: tuple[Loop, ...] = LOOPS
    tile_groups: int = 1
    buffers: Literal[1, 2] = 1
    prediction: Prediction | None = None
    planner: str = ""
    keeps_rows: bool = False
    touched_only: bool = False
    taps_at_once: int = 1
    resident: Resident = ""

    def tile(self, loop: Loop) -> int:
        return {"M": self.tile_m, "N": self.tile_n, "R": self.tile_r, "C": self.tile_c}[loop]


def extent(problem: ConvProblem, loop: Loop) -> int:
    """Iterations of the untiled loop, within one group."""
    return {
        "M": problem.filters // problem.groups,
        "N": problem.channels // problem.groups,
        "R": problem.rows,
        "C": problem.columns,
    }[loop]


def trips(problem: ConvProblem, plan: LoopPlan, loop: Loop) -> int:
    """Tiles along a loop."""
    return -(-extent(problem, loop) // plan.tile(loop))


def group_runs(problem: ConvProblem, plan: LoopPlan) -> int:
    """Trips of the loop over groups."""
    return -(-problem.groups // plan.tile_groups)


def step_count(problem: ConvProblem, plan: LoopPlan) -> int:
    """How many steps `steps` gives."""
    return group_runs(problem, plan) * prod(trips(problem, plan, loop) for loop in LOOPS)


@dataclass(frozen=True)
class Step:
    """One multiplication of tiles; ``filters`` and ``channels`` count from the first group of the
    step."""

    groups: Range
    filters: Range
    channels: Range
    rows: Range
    columns: Range
    loads_in: bool
    loads_weights: bool
    enters_out: bool
    """The OUT tile is not the one of the step before."""
    first: bool
    """No channel has been summed for this OUT tile before: it starts at zero; with ``enters_out``
    and not ``first`` its partial sums come back."""
    last: bool
    """All channels are summed after this step: the OUT tile is finished and stored."""
    leaves_out: bool
    """The step after needs another OUT tile (or there is none): without ``last`` the partial sums
    are stored."""


def steps(problem: ConvProblem, plan: LoopPlan) -> Iterator[Step]:
    """All steps in execution order."""
    counts = {loop: trips(problem, plan, loop) for loop in LOOPS}

    def ranges(loop: Loop, index: int) -> tuple[int, int]:
        begin = index * plan.tile(loop)
        return begin, min(plan.tile(loop), extent(problem, loop) - begin)

    last_n = counts["N"] - 1
    for run in range(group_runs(problem, plan)):
        first_group = run * plan.tile_groups
        groups = (first_group, min(plan.tile_groups, problem.groups - first_group))
        held: tuple[int, ...] | None = None
        inputs, weights = (_OnChip(plan.resident == tensor) for tensor in ("IN", "W"))
        places = _places(plan.order, counts)
        here: tuple[int, ...] | None = next(places)
        while here is not None:
            following = next(places, None)
            m, n, r, c = here
            yield Step(
                groups,
                ranges("M", m),
                ranges("N", n),
                ranges("R", r),
                ranges("C", c),
                loads_in=inputs.comes((r, c), n),
                loads_weights=weights.comes((m,), n),
                enters_out=held is None or (held[0], held[2], held[3]) != (m, r, c),
                first=n == 0,
                last=n == last_n,
                leaves_out=following is None
                or (following[0], following[2], following[3]) != (m, r, c),
            )
            held, here = here, following


@dataclass
class _OnChip:
    """Which tiles of a tensor are there: the last one, or those of all channels of its place."""

    resident: bool
    place: tuple[int, ...] = ()
    channels: set[int] = field(default_factory=set)

    def comes(self, place: tuple[int, ...], channels: int) -> bool:
        """Whether this tile was not there; it is then."""
        if place == self.place and channels in self.channels:
            return False
        if place != self.place or not self.resident:
            self.place, self.channels = place, set()
        self.channels.add(channels)
        return True


def _places(order: tuple[Loop, ...], counts: dict[Loop, int]) -> Iterator[tuple[int, ...]]:
    """Tile indices (m, n, r, c), the last loop of ``order`` running fastest."""
    at = [order.index(loop) for loop in LOOPS]
    for place in product(*(range(counts[loop]) for loop in order)):
        yield tuple(place[position] for position in at)


def visits(problem: ConvProblem, plan: LoopPlan, loops: frozenset[str]) -> int:
    """How often each tile that depends on ``loops`` comes on chip, on average over its tiles: the
    product of the trips of all loops that it does not depend on and that lie outside of an
    innermost loop of more than one trip that it depends on (e-PlaNNer, Equations 6.2 to 6.4)."""
    result, pending = 1, 1
    for loop in reversed(plan.order):
        count = trips(problem, plan, loop)
        if loop in loops:
            if count > 1:
                pending = 0
        elif pending == 0:
            result *= count
    return result


def in_visits(problem: ConvProblem, plan: LoopPlan) -> int:
    """`visits` of IN tiles."""
    return visits(problem, _whole_where_resident(problem, plan, "IN"), IN_LOOPS)


def weight_visits(problem: ConvProblem, plan: LoopPlan) -> int:
    """`visits` of W tiles."""
    return visits(problem, _whole_where_resident(problem, plan, "W"), WEIGHT_LOOPS)


def _whole_where_resident(problem: ConvProblem, plan: LoopPlan, tensor: Resident) -> LoopPlan:
    """Tiles that stay beside each other come as often as one of all channels."""
    return replace(plan, tile_n=extent(problem, "N")) if plan.resident == tensor else plan


def beside(problem: ConvProblem, plan: LoopPlan, tensor: Resident) -> int:
    """How many tiles of a tensor lie beside each other in one place."""
    return trips(problem, plan, "N") if plan.resident == tensor else 1


def can_be_touched_only(problem: ConvProblem) -> bool:
    """Every window is one element, apart from the others in both directions."""
    is_point = problem.kernel == (1, 1) and not any(problem.padding)
    return is_point and min(problem.stride) > 1


def touched(problem: ConvProblem) -> ConvProblem:
    """The same convolution of only those rows and columns of the IFM that windows touch."""
    return replace(problem, in_rows=problem.rows, in_columns=problem.columns, stride=(1, 1))


def seen(problem: ConvProblem, plan: LoopPlan) -> ConvProblem:
    """What the tiles of ``plan`` are cut from."""
    return touched(problem) if plan.touched_only else problem


def in_extent(problem: ConvProblem, begin: int, count: int, loop: Loop) -> tuple[int, int, int]:
    """IFM rows (``loop`` "R") or columns ("C") under ``count`` OFM ones from ``begin``: (first one
    inside the IFM, how many are inside, how many lie in front of the IFM and are padding)."""
    axis = 0 if loop == "R" else 1
    size = problem.in_rows if loop == "R" else problem.in_columns
    low = begin * problem.stride[axis] - problem.padding[axis]
    high = low + (count - 1) * problem.stride[axis]
    high += (problem.kernel[axis] - 1) * problem.dilation[axis] + 1
    inside = min(max(low, 0), size)
    return inside, max(min(high, size) - inside, 0), max(-low, 0)
