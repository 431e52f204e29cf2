"""Plans for blocks: a ranked part of the space.

Every spread of rows, columns and filters over all TLEs and the TLTs of each; for every T_R, full
width or as many columns as fit; tiles of the head's filters that divide a TLT's; rounds and T_N as
large as fit; rings wherever TLEs share. All of it is ranked by a closed-form estimate, and the
best `PREDICTED` by the cost model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import product

from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem, with_prediction
from tvm_npu.codegen.nmp.plan.block_check import SEMAPHORES, check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, Split
from tvm_npu.codegen.nmp.plan.mac_time import (
    finish_cycles,
    mac_cycles,
    step_cycles,
    window_cycles,
)
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import Infeasible, tile_sizes
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

PREDICTED = 16


@dataclass(frozen=True)
class _Spread:
    """Slices over TLEs, parts over TLTs, and what one TLT has at most: rows, columns, filters of
    the head and of the pointwise convolution."""

    slices: tuple[int, int, int]
    parts: tuple[int, int, int]
    rows: int
    columns: int
    filters: int
    point_filters: int

    @property
    def crew(self) -> int:
        return self.slices[2] * self.parts[2]


@dataclass(frozen=True)
class _Sizes:
    """Of a candidate: rows, columns, filters of the head in a tile, channels of IN, passed."""

    rows: int
    columns: int
    filters: int
    channels: int
    passed: int
    keeps_in: bool


def plan_block(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits, name: str
) -> BlockPlan | Infeasible:
    """The best plan of the space above; ties go to the earlier candidate."""
    if machine.ring is not None and machine.dme.semaphores >= SEMAPHORES:
        ranked = nsmallest(4 * PREDICTED, _candidates(problem, machine, limits), key=lambda e: e[0])
        sound = (plan for _, plan in ranked if check_block(problem, plan, machine) is None)
        predicted = [
            (predict_block(problem, plan, machine), plan) for _, plan in zip(range(PREDICTED), sound)
        ]
        if predicted:
            prediction, plan = min(predicted, key=lambda entry: entry[0].cycles)
            return with_prediction(plan, prediction, name)
    return Infeasible(
        "MB0", 0, machine.memories.mb0_bytes, "no tile of a block fits",
        "run its layers one after the other",
    )  # fmt: skip


def _grids(total: int) -> Iterator[tuple[int, int, int]]:
    """Rows x columns x filters of ``total`` cores."""
    divisors = [one for one in range(1, total + 1) if total % one == 0]
    for rows, columns in product(divisors, divisors):
        if total % (rows * columns) == 0:
            yield rows, columns, total // (rows * columns)


def _spreads(problem: BlockProblem, machine: NmpMachine) -> Iterator[_Spread]:
    head = problem.head
    tlts = machine.cores.tlts_per_tle
    for slices, parts in product(_grids(machine.cores.tles), _grids(tlts)):
        crew = slices[2] * parts[2]
        rows, columns = (
            -(-(-(-extent // slices[axis])) // parts[axis])
            for axis, extent in enumerate((head.out_rows, head.out_columns))
        )
        if head.filters % crew or slices[0] > head.out_rows or slices[1] > head.out_columns:
            continue
        point = -(-(-(-problem.filters // slices[2])) // parts[2])
        yield _Spread(slices, parts, rows, columns, head.filters // crew, point)


def _candidates(
    problem: BlockProblem, machine: NmpMachine, limits: TileLimits
) -> Iterator[tuple[float, BlockPlan]]:
    for spread in _spreads(problem, machine):
        most_rows = min(spread.rows, limits.max_tile_r or spread.rows)
        most_columns = min(spread.columns, limits.max_tile_c or spread.columns)
        for rows, columns in product(tile_sizes(most_rows), tile_sizes(most_columns)):
            if columns < most_columns and columns * 4 < spread.columns:
                continue
            for buffers in (1, 2)[: machine.memories.ports]:
                for sizes in _sizes(problem, machine, limits, spread, (rows, columns), buffers):
                    yield _estimate(problem, machine, spread, sizes, buffers)


def _sizes(
    problem: BlockProblem,
    machine: NmpMachine,
    limits: TileLimits,
    spread: _Spread,
    place: tuple[int, int],
    buffers: int,
) -> Iterator[_Sizes]:
    """With the largest T_N and rounds that fit, for every tile of filters that does."""
    head, memories, size = problem.head, machine.memories, problem.element_bytes
    window = head.window
    area = place[0] * place[1] * size
    box = head.middle_tile(*place)
    middle = min(box[0], head.rows), min(box[1], head.columns)
    in_area = head.in_tile_rows(middle[0]) * head.in_tile_columns(middle[1]) * size
    taps = head.kernel[0] * head.kernel[1]
    under = middle[0] * middle[1] * size if window is not None else 0
    read = box[0] * box[1] * size if window is not None else 0
    kernels = 0
    if window is not None and window.has_weights:
        kernels = spread.filters * window.kernel[0] * window.kernel[1] * size
    residual = spread.point_filters * area if problem.has_residual else 0
    most = min(spread.filters, limits.max_tile_m or spread.filters)
    for filters in range(most, 0, -1):
        if spread.filters % filters:
            continue
        if filters * (under + area) + spread.point_filters * area > memories.mb2_bytes:
            continue
        point_bytes = spread.point_filters * spread.crew * filters * size
        stays = filters == spread.filters
        w_room = memories.mb1_bytes - kernels - point_bytes
        for keeps_in in (False,) if stays else (False, True):
            needs = max(filters * read, spread.crew * area, residual)
            free = memories.mb0_bytes - (needs if buffers == 2 or keeps_in else 0)
            copies = 1 if keeps_in else buffers
            channels = min(head.channels, limits.max_tile_n or head.channels)
            channels = min(channels, free // (copies * in_area))
            if stays:
                if w_room < filters * head.channels * taps * size:
                    continue
            else:
                channels = min(channels, w_room // (buffers * filters * taps * size))
            if channels < 1 or needs > memories.mb0_bytes or keeps_in and channels < head.channels:
                continue
            beside = copies * channels * in_area if buffers == 2 or keeps_in else 0
            room = (memories.mb0_bytes - beside) // (spread.crew * area)
            passed = max(one for one in range(1, filters + 1) if filters % one == 0 and one <= room)
            yield _Sizes(*place, filters, channels, passed, keeps_in)


def _estimate(
    problem: BlockProblem, machine: NmpMachine, spread: _Spread, sizes: _Sizes, buffers: int
) -> tuple[float, BlockPlan]:
    """Time of a TLE, roughly: whole tiles, every byte at the rate of its kind of transfer."""
    head, size = problem.head, problem.element_bytes
    rows, columns, filters = sizes.rows, sizes.columns, sizes.filters
    box = head.middle_tile(rows, columns)
    middle = min(box[0], head.rows), min(box[1], head.columns)
    places = -(-spread.rows // rows) * -(-spread.columns // columns)
    turns, steps = spread.filters // filters, -(-head.channels // sizes.channels)
    grid = spread.parts[0] * spread.parts[1]
    tlts = machine.cores.tlts_per_tle

    loads = _map_cycles(
        machine, head.channels,
        (min(head.in_tile_rows(middle[0]), head.in_rows),
         min(head.in_tile_columns(middle[1]), head.in_columns)),
        head.in_columns, size, any(head.padding), rows == head.out_rows,
    ) * grid * places * (1 if sizes.keeps_in else turns) / spread.slices[2]  # fmt: skip
    sharing = spread.slices[0] * spread.slices[1]
    filter_bytes = head.channels * head.kernel[0] * head.kernel[1] * size
    once = 1 if turns == 1 else places
    rate = machine.dme.bytes_per_cycle
    loads += spread.filters * spread.parts[2] * filter_bytes * once / sharing / rate
    loads += head.filters * spread.point_filters * tlts * size * once / rate
    loads += machine.dme.setup_cycles * places * turns * (steps * grid + tlts * (turns > 1))
    out = _map_cycles(
        machine, spread.point_filters, (rows, columns), head.out_columns, size, False,
        rows == head.out_rows,
    ) * tlts * places  # fmt: skip
    loads += out * (2 if problem.has_residual else 1)

    mac = steps * mac_cycles(head, filters, sizes.channels, *middle, machine)
    mac += finish_cycles(head, filters, *middle, machine)
    mac += window_cycles(head, filters, rows, columns, machine)
    assert machine.ring is not None
    moved = tlts * rows * columns * size * sizes.passed / machine.ring.bytes_per_cycle
    moved *= machine.cores.tles if spread.slices[2] > 1 else 1
    in_round = mac_cycles(
        problem.point, spread.point_filters, spread.crew * sizes.passed, rows, columns, machine
    )
    in_round += step_cycles(machine) + tlts * machine.dme.setup_cycles + moved
    mac += filters // sizes.passed * in_round
    mac *= places * turns
    split: Split = "KS&OFM"
    if spread.slices[2] == 1:
        split = "OFM"
    elif sharing == 1:
        split = "KS"
    plan = ConvPlan(
        "multicast", split, spread.slices[0], spread.slices[2],
        "WS" if turns == 1 else "OS", filters, sizes.channels, rows, columns,
        column_slices=spread.slices[1], tlt_rows=spread.parts[0], tlt_columns=spread.parts[1],
        keeps_in=sizes.keeps_in, ring_in=spread.slices[2] > 1, ring_weights=sharing > 1,
        weights="tiles", linear_maps=True, buffers=buffers,  # type: ignore[arg-type]
    )  # fmt: skip
    total = max(loads, mac) if buffers == 2 else loads + mac
    return total, BlockPlan(plan, sizes.passed)


def _map_cycles(
    machine: NmpMachine,
    channels: int,
    extent: tuple[int, int],
    width: int,
    size: int,
    is_padded: bool,
    is_whole: bool,
) -> float:
    """Of the engine for ``channels`` of a tile of a feature map."""
    segments, segment = channels, extent[0] * extent[1] * size
    if extent[1] < width:
        segments, segment = channels * extent[0], extent[1] * size
    is_linear = extent[1] >= width and not is_padded
    burst = machine.dme.linear_cycles if is_linear else machine.dme.burst_cycles
    bursts = -(-segment // machine.dram.burst_bytes)
    occupied = machine.dram.cas_cycles * bursts + segment / machine.dram.bytes_per_cycle
    one = bursts * burst + segment / machine.dme.bytes_per_cycle
    return segments * max(one, machine.cores.tles * 0.8 * occupied)
