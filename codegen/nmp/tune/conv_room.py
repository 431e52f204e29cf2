"""How much of a convolution one TLT has under a spread, and whether its tiles fit: what drawing and
changing plans needs thousands of times a second. `check_plan` has the last word on a plan."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import ConvProblem, slice_of
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class Most:
    """The most of each axis that one TLT has. Items are filters of a group (multicast) or groups
    (grouped) of ``item_filters`` filters each."""

    items: int
    item_filters: int
    channels: int
    rows: int
    columns: int


@dataclass(frozen=True)
class Excess:
    """Which memory a plan's tiles do not fit, and the tile extents that could be smaller."""

    memory: str
    extents: tuple[str, ...]


def most_of(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Most:
    grouped = plan.mode == "grouped"
    filters_each = problem.filters // problem.groups
    total = problem.groups if grouped else filters_each
    runs = machine.cores.tlts_per_tle // (plan.tlt_rows * plan.tlt_columns)
    return Most(
        _longest(total, plan.filter_slices, runs),
        filters_each if grouped else 1,
        problem.channels // problem.groups,
        _longest(problem.out_rows, plan.row_slices, plan.tlt_rows),
        _longest(problem.out_columns, plan.column_slices, plan.tlt_columns),
    )


def _longest(total: int, slices: int, parts: int) -> int:
    own = -(-total // slices)
    return -(-own // parts)


def has_empty_slice(total: int, slices: int) -> bool:
    return slice_of(total, slices, slices - 1)[1] == 0


def excess_of(
    problem: ConvProblem, plan: ConvPlan, machine: NmpMachine, most: Most
) -> Excess | None:
    """The first memory that the largest tiles of ``plan`` do not fit."""
    memories, size = machine.memories, problem.element_bytes
    items = plan.tile_m // most.item_filters
    filter_turns = -(-most.items // items)
    channel_turns = -(-most.channels // plan.tile_n)
    places = -(-most.rows // plan.tile_r) * -(-most.columns // plan.tile_c)
    box = problem.middle_tile(plan.tile_r, plan.tile_c)
    middle = min(box[0], problem.rows), min(box[1], problem.columns)
    in_area = problem.in_tile_rows(middle[0]) * problem.in_tile_columns(middle[1])
    in_channels = items * most.channels if plan.mode == "grouped" else plan.tile_n
    w_channels = most.channels if plan.schedule == "WS" else plan.tile_n
    taps = problem.kernel[0] * problem.kernel[1]
    in_bytes = in_channels * in_area * size
    w_bytes = plan.tile_m * w_channels * taps * size
    out_bytes = plan.tile_m * plan.tile_r * plan.tile_c * size
    in_turns = places * channel_turns * (1 if plan.keeps_in else filter_turns)
    w_turns = filter_turns * (1 if plan.schedule == "WS" else places * channel_turns)
    in_all = in_bytes * (plan.buffers if in_turns > 1 else 1)
    w_all = w_bytes * (plan.buffers if w_turns > 1 else 1)
    out_all = out_bytes * (plan.buffers if places * filter_turns > 1 else 1)
    stays = plan.buffers == 2 or plan.keeps_in
    place = ("tile_r", "tile_c")
    of_in = place if plan.keeps_in else ("tile_n", *place)
    if plan.mode == "grouped":
        of_in = ("tile_m", *place)
    of_weights = ("tile_m",) if plan.schedule == "WS" else ("tile_m", "tile_n")
    of_out = ("tile_m", *place)
    biases = most.items * most.item_filters * BIAS_BYTES
    bias_needs = biases
    window = problem.window
    if window is not None:
        middle_bytes = plan.tile_m * middle[0] * middle[1] * size
        if out_all + middle_bytes > memories.mb2_bytes:
            return Excess("MB2", of_out)
        if (in_all if stays else 0) + plan.tile_m * box[0] * box[1] * size > memories.mb0_bytes:
            return Excess("MB0", tuple(dict.fromkeys((*of_in, *of_out))))
        if window.has_weights:
            w_all += most.items * window.kernel[0] * window.kernel[1] * size
            bias_needs *= 2
    if bias_needs > memories.bias_bytes:
        return Excess("the bias buffer", ())
    if in_all > memories.mb0_bytes:
        return Excess("MB0", of_in)
    if w_all > memories.mb1_bytes:
        return Excess("MB1", of_weights)
    if out_all > memories.mb2_bytes:
        return Excess("MB2", of_out)
    if problem.has_residual and (in_all if stays else 0) + out_bytes > memories.mb0_bytes:
        return Excess("MB0", tuple(dict.fromkeys((*of_out, *(of_in if stays else ())))))
    return None
