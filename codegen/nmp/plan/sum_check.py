"""Whether a plan computes the sum of two convolutions: every product once, in tiles that fit.

Independent of planners, of the cost model and of code generation. The whole is checked as any
convolution (`check`); no tile of channels may have some of both, and there must be room for what
waits in MB0 and for two biases a filter.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.nmp.plan.check import (
    Deal,
    Need,
    checked_deal,
    copies_of,
    in_tiles,
    longest,
    longest_tile,
    require_partition,
    require_room,
)
from tvm_npu.codegen.nmp.plan.check_choices import Found, require
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


def check_sum(problem: SumProblem, plan: ConvPlan, machine: NmpMachine) -> PlanFault | None:
    """The first fault of ``plan`` for ``problem`` on ``machine``; None for a sound plan."""
    whole = problem.whole
    try:
        _check_layers(problem)
        require(machine.ring is not None, f"ring of {machine.name}", None, "there for a sum")
        require(plan.mode == "multicast", "mode of a sum", plan.mode, "multicast")
        require(not plan.keeps_in, "keeps_in of a sum", plan.keeps_in, False)
        deal = checked_deal(whole, plan, machine)
        require_room(whole, plan, machine, deal)
        own = problem.first.channels
        tiles = in_tiles((0, whole.channels), plan.tile_n)
        firsts = [tile for tile in tiles if tile[0] < own]
        require_partition("channels of the first over tiles", firsts, (0, own))
    except Found as found:
        return found.fault
    for _, what, needed, available in sum_needs(problem, plan, machine, deal):
        if needed > available:
            return PlanFault(what, needed, f"at most {available}")
    return None


def sum_needs(
    problem: SumProblem, plan: ConvPlan, machine: NmpMachine, deal: Deal
) -> Iterator[Need]:
    """What a sum takes beside what its whole takes as a convolution."""
    whole, size = problem.whole, problem.element_bytes
    tiles = in_tiles((0, whole.channels), plan.tile_n)
    rows, columns = longest_tile(deal.rows, plan.tile_r), longest_tile(deal.columns, plan.tile_c)
    in_bytes = whole.in_tile_rows(rows) * whole.in_tile_columns(columns)
    in_bytes *= longest(tiles) * size * copies_of(plan, deal, len(tiles))["IN"]
    waits = longest_tile(deal.items, plan.tile_m) * rows * columns * size
    biases = 2 * deal.most_items * BIAS_BYTES
    memories = machine.memories
    yield "MB0", "IN tiles and what waits in MB0, bytes", in_bytes + waits, memories.mb0_bytes
    yield "the bias buffer", "biases of both, bytes", biases, memories.bias_bytes


def _check_layers(problem: SumProblem) -> None:
    """Pointwise convolutions that make the same map."""
    first, second = problem.first, problem.second
    for one in (first, second):
        for what, value, limit in (
            ("kernel of a sum", one.kernel, (1, 1)),
            ("padding of a sum", one.padding, (0, 0, 0, 0)),
            ("groups of a sum", one.groups, 1),
            ("a residual of a sum", one.has_residual, False),
            ("is_dense of a sum", one.is_dense, False),
            ("a window behind a sum", one.window, None),
            ("table bytes of a sum", one.table_bytes, None),
            ("out_bytes of a sum", one.out_bytes, None),
        ):
            require(value == limit, what, value, limit)
    require(first.stride == (1, 1), "stride of the first", first.stride, (1, 1))
    made = _made(first)
    require(_made(second) == made, "what the second makes", _made(second), made)


def _made(problem: ConvProblem) -> tuple[int, ...]:
    return problem.filters, problem.rows, problem.columns, problem.element_bytes
