"""How large the search space is before and after e-PlaNNer's pruning (Table 8.5).

Every published count after pruning is a multiple of three, so a pruned space is counted as tilings
times the three dataflows. Before pruning: for each of the six loops the tile sizes that give
different numbers of tiles, all combinations, in all 720 orders of the loops; the thesis does not
say how it counts, and none of some thousand countings that we tried (sizes, divisors, powers of
two or numbers of tiles of each loop, over all or distinct layers, with any common factor) gives its
five numbers. Both are sums over distinct layers.
"""

from __future__ import annotations

from math import factorial, prod

from tvm_npu.codegen.plan.loops.eplanner import pruned_space
from tvm_npu.codegen.plan.loops.eplanner_model import DATAFLOWS
from tvm_npu.codegen.plan.problem import ConvProblem, tile_sizes
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.tiles.machine import TileMachine


def whole_space(problem: ConvProblem) -> int:
    """Plans of a layer before pruning."""
    extents = (
        problem.filters, problem.channels, problem.rows, problem.columns, *problem.kernel,
    )  # fmt: skip
    tilings = prod(sum(1 for _ in tile_sizes(extent)) for extent in extents)
    return tilings * factorial(len(extents))


def kept_space(problem: ConvProblem, machine: TileMachine) -> int:
    """Plans of a layer that e-PlaNNer compares."""
    found = pruned_space(problem, loop_machine(machine))
    return 0 if found is None else len(found) * len(DATAFLOWS)
