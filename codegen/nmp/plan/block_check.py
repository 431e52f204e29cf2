"""Whether a plan computes its block: every product once, in tiles that fit.

Independent of planners, of the cost model and of code generation. The head is checked as any
convolution (`check`). Behind it, the channels of every round of a crew are written out, and the
filters of the pointwise convolution of every member: both must be partitions of their wholes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    crew_size,
    made_filters,
    point_shares,
)
from tvm_npu.codegen.nmp.plan.check import (
    Deal,
    Need,
    checked_deal,
    copies_of,
    in_tiles,
    longest,
    longest_tile,
    require_partition,
)
from tvm_npu.codegen.nmp.plan.check_choices import Found, require
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.input_residual import adds_what_it_reads, all_in_one_step
from tvm_npu.codegen.nmp.plan.kept_rows import in_room
from tvm_npu.codegen.nmp.plan.twin import all_guard_elements, lies_inside, made_channels
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem, slice_of
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

SEMAPHORES = 15
"""A level of semaphores that code of blocks counts on."""


def check_block(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> PlanFault | None:
    """The first fault of ``plan`` for ``problem`` on ``machine``; None for a sound plan."""
    try:
        deal = checked_deal(problem.head, plan.head, machine)
        _check_choices(problem, plan, machine)
        _check_rounds(problem, plan, machine, deal)
        _check_room(problem, plan, machine, deal)
    except Found as found:
        return found.fault
    return None


def _check_choices(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> None:
    head, own = plan.head, problem.head
    if head.keeps_rows:  # of one tile of filters: what the others made would be in its place
        require(head.schedule == "WS", "schedule with keeps_rows", head.schedule, "WS")
    for what, value, limit in (
        ("mode of a head", head.mode, "multicast"),
        ("groups of a head", own.groups, 1),
        ("a residual of a head", own.has_residual, False),
        ("is_dense of a head", own.is_dense, False),
        ("table bytes of a head", own.table_bytes, None),
        ("out_bytes of a head", own.out_bytes, None),
    ):
        require(value == limit, what, value, limit)
    if own.has_twin:
        _check_twin(own, head)
    require(machine.ring is not None, f"ring of {machine.name}", None, "there for a block")
    available = machine.dme.semaphores
    require(available >= SEMAPHORES, "dme.semaphores", available, f"at least {SEMAPHORES}")
    require(plan.passed >= 1, "passed", plan.passed, "at least 1")
    ports = machine.memories.ports
    require(plan.slots in (1, ports), "slots", plan.slots, f"1 or memories.ports: {ports}")
    require(problem.filters >= 1, "filters", problem.filters, "at least 1")
    if plan.residual_on_chip:
        _check_residual(problem, plan, machine)
    if head.filter_slices == 1:
        return
    # A crew over several TLEs keeps all cores in step, so all of them must have a share.
    tles = machine.cores.tles
    used = head.row_slices * head.column_slices * head.filter_slices
    require(used == tles, "TLEs in use with filter_slices > 1", used, f"all {tles}")
    for name, slices, total in (
        ("row_slices", head.row_slices, own.out_rows),
        ("column_slices", head.column_slices, own.out_columns),
        ("filter_slices", head.filter_slices, own.filters),
    ):
        last = slice_of(total, slices, slices - 1)[1]
        require(last > 0, f"{name} of a crew", slices, f"so few that none of {total} is empty")


def _check_residual(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> None:
    """Whole rows of every TLT's own channels, which one step's IN tile has."""
    head, own, what = plan.head, problem.head, "residual_on_chip"
    is_input = adds_what_it_reads(problem)
    require(is_input, f"{what} of a block", True, "False: it does not add what its head reads")
    width, cuts = own.out_columns, head.column_slices * head.tlt_columns
    require(cuts == 1, f"column slices and parts with {what}", cuts, "1")
    require(head.tile_c >= width, f"tile_c with {what}", head.tile_c, f"all {width} columns")
    require(
        all_in_one_step(problem, plan, machine), f"tile_n with {what}", head.tile_n,
        "such that the filters of each TLT are all in one tile of channels",
    )  # fmt: skip


def _check_twin(own: ConvProblem, head: ConvPlan) -> None:
    inside = "inside of the other's windows"
    require(lies_inside(own), "windows of a twin, with padding", own.padding, inside)
    has_kernels = own.window is not None and own.window.has_weights
    require(not has_kernels, "kernels of the window behind a twin", has_kernels, False)
    if head.schedule != "WS" and head.tile_n < own.channels:
        require(head.weights == "tiles", "weights of a head with a twin", head.weights, "tiles")


def _check_rounds(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine, deal: Deal
) -> None:
    """Channels are passed on once each; filters of the pointwise convolution have one owner."""
    head, size = plan.head, crew_size(plan, machine)
    members = [part for parts in deal.items for part in parts]
    require(len(members) == size, "members of a crew", len(members), size)
    extents = {end - begin for begin, end in members}
    require(len(extents) == 1, "filters of the members of a crew", sorted(extents), "equal")
    own = extents.pop()
    made_once = made_filters(problem, plan)
    what = "channels of a tile"
    require(made_once % plan.passed == 0, what, made_once, f"whole rounds: {plan.passed}")
    require(own % head.tile_m == 0, "filters of a TLT", own, f"whole tiles: {head.tile_m}")
    if head.schedule == "WS":
        require(head.tile_m == own, "tile_m of a head under WS", head.tile_m, f"all {own} filters")
    made = [made_channels(problem.head, begin, own, head.tile_m) for begin, _ in members]
    passed = [
        (channel, channel + 1)
        for at in range(0, len(made[0]), plan.passed)
        for channels in made
        for channel in channels[at : at + plan.passed]
    ]
    rounds = made_filters(problem, plan) // plan.passed
    require(rounds >= plan.slots, "rounds of a tile", rounds, f"at least one a slot: {plan.slots}")
    require_partition("channels over rounds", passed, (0, problem.point.channels))
    shares = point_shares(problem.filters, plan, machine)
    owned = [(begin, begin + count) for begin, count in shares]
    require_partition("filters of the pointwise convolution", owned, (0, problem.filters))


def _check_room(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine, deal: Deal
) -> None:
    for _, what, needed, available in block_needs(problem, plan, machine, deal):
        require(needed <= available, what, needed, f"at most {available}")


def block_needs(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine, deal: Deal
) -> Iterator[Need]:
    """The largest tiles that occur, against the memories of a TLT."""
    head, own, memories = plan.head, problem.head, machine.memories
    size, members = own.element_bytes, crew_size(plan, machine)
    rows, columns = longest_tile(deal.rows, head.tile_r), longest_tile(deal.columns, head.tile_c)
    box = own.middle_tile(rows, columns)
    middle = min(box[0], own.rows), min(box[1], own.columns)
    depth = longest(in_tiles((0, own.channels), head.tile_n))
    in_bytes = depth * own.in_tile_rows(middle[0]) * own.in_tile_columns(middle[1]) * size
    guard = all_guard_elements(own, head.keeps_rows, *middle) * size
    w_bytes = own.channels if head.schedule == "WS" else depth
    w_bytes *= head.tile_m * own.taps * size
    made = made_filters(problem, plan)
    most = max(count for _, count in point_shares(problem.filters, plan, machine))
    area = rows * columns * size
    copies = copies_of(head, deal, len(in_tiles((0, own.channels), head.tile_n)))
    residual = most * area if problem.has_residual else 0
    behind = [plan.slots * members * plan.passed * area]
    mb2, kernels, layers = made * area + most * area, 0, 1 + own.planes
    if own.window is not None:
        behind.append(made * box[0] * box[1] * size)
        mb2 += made * middle[0] * middle[1] * size
        if own.window.has_weights:
            kernels = deal.most_items * own.window.kernel[0] * own.window.kernel[1] * size
            layers += 1
    all_in = in_room(in_bytes, copies["IN"], guard)
    beside = all_in if head.buffers == 2 or head.keeps_in else 0
    if beside:  # what lies there comes behind the head's products, but for the residual
        require(guard <= max(behind), "room behind IN tiles", max(behind), f"{guard} bytes")
    # With two buffers a residual arrives while all else behind the IN tiles is in use.
    needed_behind = max(behind) + residual if head.buffers == 2 else max(residual, *behind)
    mb0 = max(all_in + guard, beside + needed_behind)
    if plan.residual_on_chip:  # it waits while all else is in use
        mb0 = max(all_in + guard, beside + max(behind)) + residual
        mb2 += residual
    if head.keeps_rows:
        mb0 = max(mb0, beside + (made + 1) * box[0] * box[1] * size)
    mb1 = copies["W"] * w_bytes + kernels + most * members * made * size
    biases = ((layers - 1) * deal.most_items + most) * BIAS_BYTES
    yield "MB0", "IN tiles and what is passed on in MB0, bytes", mb0, memories.mb0_bytes
    yield "MB1", "weights of a block in MB1, bytes", mb1, memories.mb1_bytes
    yield "MB2", "tiles of a block in MB2, bytes", mb2, memories.mb2_bytes
    yield "the bias buffer", "biases of a block, bytes", biases, memories.bias_bytes
