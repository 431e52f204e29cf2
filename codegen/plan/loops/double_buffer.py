"""Double-buffer tiling (the double-buffer paper, section 4), and the naive tiling beside it.

The loops are those of its Listing 1.1: rows, columns, channels, filters from the outside in. Tile
sizes divide the map, IN, OUT and W tiles with their biases take at most half of the memory, and all
tilings of that kind are tried. Here tiles are named by OFM rows and columns, so sigma_s is tile_r *
stride; that the tiles with their halos and full-width accumulators fit two buffers is demanded as
well. Groups are planned one by one.

The paper's naive tilings were made by hand with the only aim to fill the memory by at least 80 %.
`naive` stands for them with a rule: of the tilings that fill it so far (where there are none, of
those that fill it most) the one that cuts all loops most evenly, by the smallest share that a tile
has of its loop; of equals the one that fills more, then the first in ascending sizes.

Where no tiling fits two buffers, one buffer is planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.eplanner import finished
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LOOPS, Loop, LoopPlan, extent
from tvm_npu.codegen.plan.loops.questions import Measure
from tvm_npu.codegen.plan.loops.room import no_room
from tvm_npu.codegen.plan.loops.space import Tilings, limited, tilings
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible

ORDER: tuple[Loop, ...] = ("R", "C", "N", "M")
FILLED_SHARE = 0.8


@dataclass(frozen=True)
class TransferModel:
    """Equation 1, T = C + s * p + n * t: cycles to begin a transfer, for a jump of the address, and
    for an element."""

    start: float
    jump: float
    element: float

    @classmethod
    def of(cls, machine: LoopMachine, element_bytes: int) -> TransferModel:
        cost = machine.transfer
        return cls(cost.start, cost.segment, cost.byte * element_bytes)

    def layer_cycles(self, problem: ConvProblem, m: Any, n: Any, r: Any, c: Any) -> Any:
        """All transfers of a layer: Equations 2 to 7, of one group times the groups."""
        stride = problem.stride
        taps = problem.kernel[0] * problem.kernel[1]
        rows, columns = r * stride[0], c * stride[1]
        begin, jump, each = self.start, self.jump, self.element
        inputs = begin + rows * n * jump + rows * columns * n * each  # (2)
        outputs = 2 * (begin + r * m * jump + r * c * m * each)  # (3)
        weights = begin + (m + 1) * jump + (n * m * taps + m) * each  # (4)
        channels, filters = extent(problem, "N"), extent(problem, "M")
        in_calls = problem.rows * problem.columns * channels / (r * c * n)  # (5)
        return problem.groups * in_calls * (inputs + filters / m * (outputs + weights))  # (6, 7)


def used_elements(problem: ConvProblem, m: Any, n: Any, r: Any, c: Any) -> Any:
    """Left side of the constraint of section 4.2."""
    taps = problem.kernel[0] * problem.kernel[1]
    area = r * problem.stride[0] * c * problem.stride[1]
    return area * n + r * c * m + n * m * taps + m


def divisor_tilings(
    problem: ConvProblem, machine: LoopMachine, limits: TileLimits, buffers: int
) -> Tilings:
    """Tile sizes that divide their loops and satisfy the constraints."""
    sizes = {}
    for loop in LOOPS:
        total, most = extent(problem, loop), limited(problem, loop, limits)
        sizes[loop] = [size for size in range(1, most + 1) if total % size == 0]
    found = tilings(problem, machine, sizes, buffers)
    used = used_elements(problem, found.m, found.n, found.r, found.c) * problem.element_bytes
    return found.where(used <= machine.tile_memory_bytes // buffers)


def filled_share(problem: ConvProblem, machine: LoopMachine, found: Tilings, buffers: int) -> Any:
    """Share of a buffer that tiles take, as the paper's Table 1 counts it."""
    used = used_elements(problem, found.m, found.n, found.r, found.c) * problem.element_bytes
    return used * buffers / machine.tile_memory_bytes


def _even(problem: ConvProblem, found: Tilings) -> NDArray[np.float64]:
    shares = [found.sizes(loop) / extent(problem, loop) for loop in LOOPS]
    return np.minimum.reduce(shares)


@dataclass(frozen=True)
class DoubleBuffer:
    """`double-buffer` and, with ``fills_only``, `naive`."""

    limits: TileLimits = NO_LIMITS
    name: str = "double-buffer"
    fills_only: bool = False
    measure: Measure = "transfers"
    splits_memory: bool = False

    def plan(self, problem: ConvProblem, machine: LoopMachine) -> LoopPlan | Infeasible:
        for buffers in (2, 1):
            found = divisor_tilings(problem, machine, self.limits, buffers)
            if len(found):
                choose = self._naive if self.fills_only else self._optimal
                index = choose(problem, machine, found, buffers)
                plan = found.plan(index, ORDER, 2 if buffers == 2 else 1)
                return finished(problem, plan, machine, self.name)
        return no_room(problem, machine)

    def _optimal(
        self, problem: ConvProblem, machine: LoopMachine, found: Tilings, buffers: int
    ) -> int:
        model = TransferModel.of(machine, problem.element_bytes)
        return int(np.argmin(model.layer_cycles(problem, found.m, found.n, found.r, found.c)))

    def _naive(
        self, problem: ConvProblem, machine: LoopMachine, found: Tilings, buffers: int
    ) -> int:
        share = filled_share(problem, machine, found, buffers)
        least = min(FILLED_SHARE, float(share.max()))
        even = np.where(share >= least, _even(problem, found), -1.0)
        best = even == even.max()
        return int(np.argmax(np.where(best, share, -1.0)))
