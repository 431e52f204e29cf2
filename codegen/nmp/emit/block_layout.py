"""Where a block keeps its tiles in MB0, MB1 and MB2."""

from __future__ import annotations

from tvm_npu.codegen.nmp.emit.chip_layout import ChipLayout, Halves, halves_of
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.through_point import PointLayout
from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    crew_size,
    most_point_filters,
)
from tvm_npu.codegen.nmp.plan.kept_rows import in_room
from tvm_npu.sim.nmp.machine import NmpMachine


def block_layout(
    problem: BlockProblem, plan: BlockPlan, tiles: ConvTiles, machine: NmpMachine
) -> tuple[ChipLayout, PointLayout]:
    """For the head and for the pointwise convolution. MB0: IN tiles, and behind them, or in the
    place of one that need not stay, first what the window reads, then what the crew passes on, then
    the residual (with two buffers, or if it comes from IN tiles, behind all these). MB1: W tiles,
    the window's kernels, the pointwise weights. MB2: the head's OFM under a window, what the head
    makes, the pointwise OUT tile, what is on its way from IN tiles to the residual's place."""
    halves = halves_of(tiles)
    in_bytes, w_bytes, middle_bytes = tiles.tile_bytes()
    filters, _, rows, columns = tiles.largest
    stays = plan.head.buffers == 2 or plan.head.keeps_in
    all_in = in_room(in_bytes, halves.in_tiles, tiles.guard_bytes)
    second_offset = all_in if stays else 0
    window = problem.head.window
    slot_bytes = crew_size(plan, machine) * plan.passed * rows * columns * tiles.size
    behind_bytes = plan.slots * slot_bytes
    middle_elements, kernels, layers = 0, 0, problem.head.planes
    if window is not None:
        middle_elements = middle_bytes // tiles.size
        behind_bytes = max(behind_bytes, tiles.box_bytes)
    if window is not None and window.has_weights:
        kernels = tiles.most.filters * window.kernel[0] * window.kernel[1] * tiles.size
        layers += 1
    window_w_offset = w_bytes * halves.w_tiles
    chip = ChipLayout(
        Halves(halves.in_tiles, halves.w_tiles, 1), in_bytes + tiles.guard_bytes, w_bytes, 0,
        second_offset, middle_elements, window_w_offset,
    )  # fmt: skip
    out_element = middle_elements + filters * problem.head.planes * rows * columns
    out_elements = most_point_filters(problem, plan, machine) * rows * columns
    residual_offset = second_offset + (behind_bytes if plan.head.buffers == 2 else 0)
    if plan.residual_on_chip:
        residual_offset = max(all_in + tiles.guard_bytes, second_offset + behind_bytes)
    point = PointLayout(
        from_element=middle_elements,
        out_element=out_element,
        residual_element=out_element + out_elements,
        passed_offset=second_offset,
        slot_bytes=slot_bytes,
        residual_offset=residual_offset,
        w_offset=window_w_offset + kernels,
        first_bias=layers * tiles.most.filters,
    )
    return chip, point
