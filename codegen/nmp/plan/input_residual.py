"""Residuals that a block takes from its own IN tiles.

What a block adds is often what it reads: MobileNetV2's bottlenecks. The channels that a TLT adds
are then among those that its crew multiplies, and lie in its MB0 while a step of the head's has
them. With `BlockPlan.residual_on_chip` it copies them to MB2 in that step, of the first tile of the
head's filters, and passes them on to a place of their own in MB0, where they wait for the end of
the OUT tile. The residual moves over a ring then, and not once more from the DRAM.

With `ConvPlan.keeps_rows` IN tiles have new rows alone. The last ones of a tile, which the next one
adds, stay in MB2.
"""

from __future__ import annotations

from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    most_point_filters,
    point_shares,
)
from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows
from tvm_npu.codegen.nmp.plan.mac_time import ROW_INSTRUCTIONS, pass_cycles
from tvm_npu.sim.nmp.machine import NmpMachine


def adds_what_it_reads(problem: BlockProblem) -> bool:
    """Every element that is added lies at the same place of the head's input, under a head whose
    IN tiles have no border."""
    head, window = problem.head, problem.head.window
    return (
        problem.has_residual
        and problem.adds_input
        and head.kernel == head.stride == (1, 1)
        and not any(head.padding)
        and (window is None or window.stride == (1, 1))
        and head.channels == problem.filters
        and (head.in_rows, head.in_columns) == (head.out_rows, head.out_columns)
    )


def carried_rows(problem: BlockProblem, plan: BlockPlan) -> int:
    """Of a tile's residual, those that the IN tile of the tile above brought: 0 or 1, as rows are
    kept under windows alone that end at most a row below the OFM."""
    window = problem.head.window
    if not plan.head.keeps_rows or window is None:
        return 0
    return shared_rows(problem.head) - window.padding[0]


def step_channel(begin: int, count: int, plan: BlockPlan) -> int | None:
    """At which channel the step begins that has filters ``begin`` to ``begin`` + ``count`` of the
    pointwise convolution among its channels; None where no step has all of them."""
    tile = plan.head.tile_n
    first = begin // tile
    return first * tile if begin + count <= (first + 1) * tile else None


def all_in_one_step(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> bool:
    """Every TLT finds what it adds in the tile of one step."""
    shares = point_shares(problem.filters, plan, machine)
    return all(step_channel(*own, plan) is not None for own in shares)


def taken_cycles(
    problem: BlockProblem, plan: BlockPlan, machine: NmpMachine, rows: int, columns: int
) -> float:
    """What a TLT does in a tile to get its residual out of IN tiles. Where it waits for the ring,
    all of its crew wait for it, and for others in other steps; else its next products go on
    beside."""
    filters, size = most_point_filters(problem, plan, machine), problem.element_bytes
    carried, one = carried_rows(problem, plan), machine.cores.instruction_cycles
    if rows == problem.head.out_rows:
        copies = pass_cycles(1, filters * rows * columns, size, machine)
    else:
        copies = sum(
            filters * (pass_cycles(1, part * columns, size, machine) + ROW_INSTRUCTIONS * one)
            for part in (rows - carried, carried)
            if part > 0
        )
    if machine.memories.ports == 2 and not carried:
        return copies
    assert machine.ring is not None
    shares = point_shares(problem.filters, plan, machine)
    steps = len({step_channel(*own, plan) for own in shares})
    moved = filters * rows * columns * size / machine.ring.bytes_per_cycle
    # With two buffers the engine has about as much to do in front of it.
    passing = plan.head.buffers * machine.cores.tlts_per_tle * (machine.dme.setup_cycles + moved)
    return steps * copies + passing
