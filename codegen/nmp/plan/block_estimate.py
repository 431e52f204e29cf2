"""Candidates of plans for a block, all of one spread at a time: which fit, and about how long they
take. Arrays have one element a candidate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.block import BlockProblem
from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows
from tvm_npu.codegen.nmp.plan.mac_time import ROW_INSTRUCTIONS, step_cycles, twin_cycles
from tvm_npu.codegen.nmp.plan.twin import all_guard_elements
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine

Numbers = NDArray[Any]
RIVALS = 0.8
"""Share of the engines that want the DRAM at the same time."""


@dataclass(frozen=True)
class Spread:
    """Slices over TLEs and parts over TLTs of rows, columns and filters, and what one TLT has at
    most: rows, columns, filters of the head and of the pointwise convolution."""

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
class Candidates:
    """Rows, columns and filters of the head in a tile, channels of IN, channels that are passed on
    in a round, whether IN stays while filters are walked, buffers, and slots of rounds."""

    spread: Spread
    rows: Numbers
    columns: Numbers
    filters: Numbers
    channels: Numbers
    passed: Numbers
    keeps_in: Numbers
    buffers: Numbers
    slots: Numbers
    keeps_rows: Numbers
    on_chip: Numbers
    """Whether the residual comes from IN tiles."""


def fitting(
    problem: BlockProblem,
    machine: NmpMachine,
    limits: TileLimits,
    spread: Spread,
    choices: tuple[Numbers, ...],
) -> Candidates:
    """Those of ``choices`` (rows, columns, filters, keeps_in, buffers, slots, keeps_rows, on_chip)
    for which there is room, with the largest T_N and the largest rounds that fit."""
    rows, columns, filters, keeps_in, buffers, slots, keeps_rows, on_chip = choices
    head, memories, size = problem.head, machine.memories, problem.element_bytes
    window, taps, made = head.window, head.taps, filters * head.planes
    area = rows * columns * size
    box, middle = _under(head, rows, columns)
    in_area = head.in_tile_rows(middle[0]) * head.in_tile_columns(middle[1]) * size  # type: ignore[arg-type]
    guard = all_guard_elements(head, keeps_rows, *middle) * size  # type: ignore[arg-type]
    under, read, kernels = np.zeros_like(area), np.zeros_like(area), 0
    if window is not None:
        under, read = middle[0] * middle[1] * size, box[0] * box[1] * size
        if window.has_weights:
            kernels = spread.filters * window.kernel[0] * window.kernel[1] * size
    residual = spread.point_filters * area * problem.has_residual
    point_bytes = spread.point_filters * spread.crew * made * size
    stays = filters == spread.filters
    holds_in = (buffers == 2) | (keeps_in == 1)
    # What else lies behind IN may not be touched.
    beside = np.where((buffers == 2) | (on_chip == 1), residual, 0)

    behind = np.maximum(made * read, slots * spread.crew * area)
    behind = np.maximum(behind, residual - beside) + beside
    behind = np.maximum(behind, keeps_rows * (made + 1) * read)
    free = memories.mb0_bytes - np.where(holds_in, behind, 0)
    copies = np.where(keeps_in == 1, 1, buffers)
    guards = (copies - holds_in) * guard
    w_room = memories.mb1_bytes - kernels - point_bytes
    most = min(head.channels, limits.max_tile_n or head.channels)
    channels = np.minimum(most, (free - guards) // (copies * in_area))
    by_weights = np.maximum(w_room, 0) // (buffers * filters * taps * size)
    channels = np.where(stays, channels, np.minimum(channels, by_weights))
    # A step has all channels that a TLT adds.
    in_whole = channels - channels % spread.point_filters
    channels = np.where((on_chip == 1) & (channels < head.channels), in_whole, channels)
    room = memories.mb0_bytes - np.where(
        holds_in, copies * channels * in_area + guards, 0
    ) - beside  # fmt: skip
    most_passed = np.minimum(room // (slots * spread.crew * area), made // slots)
    passed = _largest_divisors(made, most_passed)
    fits = (
        (
            made * (under + area) + (1 + on_chip) * spread.point_filters * area
            <= memories.mb2_bytes
        )
        & (behind <= memories.mb0_bytes)
        & (~holds_in | (guard <= behind))
        & (channels >= 1)
        & (passed >= 1)
        & np.where(stays, w_room >= filters * head.channels * taps * size, w_room > 0)
        & ((keeps_in == 0) | (~stays & (channels == head.channels)))
    )
    chosen = (
        rows, columns, filters, channels, passed, keeps_in, buffers, slots, keeps_rows, on_chip
    )  # fmt: skip
    return Candidates(spread, *(values[fits] for values in chosen))


def _under(
    head: ConvProblem, rows: Numbers, columns: Numbers
) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """What windows of a tile see, with and without what lies outside of the OFM."""
    box: Any = head.middle_tile(rows, columns)  # type: ignore[arg-type]
    return box, (np.minimum(box[0], head.rows), np.minimum(box[1], head.columns))


def _largest_divisors(values: Numbers, limits: Numbers) -> Numbers:
    """The largest divisor of each value that is not above its limit; 0 where there is none."""
    found = np.zeros_like(values)
    for value in np.unique(values):
        divisors = _divisors(int(value))
        own = values == value
        most = np.maximum(limits[own], 0)
        found[own] = divisors[np.searchsorted(divisors, most, side="right") - 1]
    return found


@lru_cache(maxsize=1 << 12)
def _divisors(value: int) -> Numbers:
    """0, and all divisors from 1 up."""
    return np.array([0, *(one for one in range(1, value + 1) if value % one == 0)])


def estimate(problem: BlockProblem, machine: NmpMachine, candidates: Candidates) -> Numbers:
    """Time of a TLE: whole tiles, every byte at the rate of its kind of transfer."""
    spread = candidates.spread
    places = -(-spread.rows // candidates.rows) * -(-spread.columns // candidates.columns)
    turns = spread.filters // candidates.filters
    steps = -(-problem.head.channels // candidates.channels)
    loads = _transfers(problem, machine, candidates, places, turns, steps)
    macs = _macs(problem, machine, candidates, steps) * places * turns
    behind = _behind(problem, machine, candidates) * places * turns
    total = places * turns * steps
    hidden = np.maximum(loads, macs) + np.minimum(loads, macs) / total
    return np.where(candidates.buffers == 2, hidden, loads + macs) + behind


def _transfers(
    problem: BlockProblem,
    machine: NmpMachine,
    candidates: Candidates,
    places: Numbers,
    turns: Numbers,
    steps: Numbers,
) -> Numbers:
    """Cycles of the engine of a TLE."""
    head, size, spread = problem.head, problem.element_bytes, candidates.spread
    rows, columns = candidates.rows, candidates.columns
    middle = _under(head, rows, columns)[1]
    new_rows = _new_rows(problem, candidates, middle[0])
    in_rows, in_columns = (
        np.minimum(extent, total)
        for extent, total in (
            (head.in_tile_rows(new_rows), head.in_rows),  # type: ignore[arg-type]
            (head.in_tile_columns(middle[1]), head.in_columns),  # type: ignore[arg-type]
        )
    )
    grid, tlts = spread.parts[0] * spread.parts[1], machine.cores.tlts_per_tle
    walks = np.where(candidates.keeps_in == 1, 1, turns)
    cycles = head.channels * _plane_cycles(
        machine, in_rows, in_columns, head.in_columns, size, any(head.padding)
    ) * grid * places * walks / spread.slices[2]  # fmt: skip
    once = np.where(turns == 1, 1, places)
    filter_bytes = head.channels * head.taps * size
    sharing = spread.slices[0] * spread.slices[1]
    weights = spread.filters * spread.parts[2] * filter_bytes / sharing
    weights += head.filters * head.planes * spread.point_filters * tlts * size
    cycles += weights * once / machine.dme.bytes_per_cycle
    cycles += machine.dme.setup_cycles * places * turns * (steps * grid + tlts * (turns > 1))
    plane = _plane_cycles(machine, rows, columns, head.out_columns, size, False)
    stores = spread.point_filters * plane * tlts * places
    loads_residual = problem.has_residual * (1 - candidates.on_chip)
    result: Numbers = cycles + stores * (1 + loads_residual)
    return result


def _plane_cycles(
    machine: NmpMachine, rows: Numbers, columns: Numbers, width: int, size: int, is_padded: bool
) -> Numbers:
    """Of an engine, for one channel of a tile of a feature map."""
    whole = columns >= width
    segments = np.where(whole, 1, rows)
    segment = np.where(whole, rows, 1) * columns * size
    linear = machine.dme.burst_cycles if is_padded else machine.dme.linear_cycles
    bursts = -(-segment // machine.dram.burst_bytes)
    occupied = machine.dram.cas_cycles * bursts + segment / machine.dram.bytes_per_cycle
    alone = bursts * np.where(whole, linear, machine.dme.burst_cycles)
    alone = alone + segment / machine.dme.bytes_per_cycle
    result: Numbers = segments * np.maximum(alone, machine.cores.tles * RIVALS * occupied)
    return result


def _macs(
    problem: BlockProblem, machine: NmpMachine, candidates: Candidates, steps: Numbers
) -> Numbers:
    """Cycles of the products with a tile of the head's filters, and of their end: `mac_time`."""
    head, size, filters = problem.head, problem.element_bytes, candidates.filters
    rate, setup = machine.macs_per_cycle(size), machine.mac.setup_cycles
    efficiency = machine.mac.efficiency
    first = step_cycles(machine, 2, macs_first=True)
    step = np.where(candidates.buffers == 2, first, step_cycles(machine))
    middle = _under(head, candidates.rows, candidates.columns)[1]
    new_rows = _new_rows(problem, candidates, middle[0])
    middle_area = new_rows * middle[1]
    taps = head.kernel[0] * head.kernel[1]
    beats = np.where(
        candidates.keeps_rows == 1, new_rows * -(-middle[1] * taps // rate),
        -(-middle_area * taps // rate),
    )  # fmt: skip
    if head.has_twin:
        beats = beats + np.where(
            candidates.keeps_rows == 1, new_rows * -(-middle[1] // rate), -(-middle_area // rate)
        )
    cycles = head.channels * filters * beats / efficiency + steps * (setup + step)
    cycles += steps * head.has_twin * twin_cycles(machine)
    cycles += head.planes * (-(-filters * middle_area // rate) / efficiency + setup)
    each = ROW_INSTRUCTIONS * machine.cores.instruction_cycles + setup
    cycles += candidates.keeps_rows * steps * (new_rows - 1) * each
    return cycles


def _new_rows(problem: BlockProblem, candidates: Candidates, middle_rows: Numbers) -> Numbers:
    """Rows of the head's OFM under a tile that are not there already, on average."""
    strips = -(-candidates.spread.rows // candidates.rows)
    kept = candidates.keeps_rows * shared_rows(problem.head)
    result: Numbers = middle_rows - kept * (strips - 1) / strips
    return result


def _behind(problem: BlockProblem, machine: NmpMachine, candidates: Candidates) -> Numbers:
    """Cycles of what no load hides (`overlap`): the window, and the rounds."""
    head, size, spread = problem.head, problem.element_bytes, candidates.spread
    filters, passed = candidates.filters * head.planes, candidates.passed
    rate, setup = machine.macs_per_cycle(size), machine.mac.setup_cycles
    efficiency, step = machine.mac.efficiency, step_cycles(machine)
    area = candidates.rows * candidates.columns
    cycles: Numbers = np.zeros(len(area))
    if head.window is not None:
        taps = head.window.kernel[0] * head.window.kernel[1]
        cycles += filters * -(-area * taps // rate) / efficiency + 2 * setup + step
        cycles += -(-filters * area // rate) / efficiency
        middle_columns = _under(head, candidates.rows, candidates.columns)[1][1]
        copies = candidates.keeps_rows * shared_rows(head)
        each = ROW_INSTRUCTIONS * machine.cores.instruction_cycles + setup
        cycles += copies * (filters * -(-middle_columns // rate) / efficiency + each)
    assert machine.ring is not None
    tlts = machine.cores.tlts_per_tle
    moved = tlts * area * size * passed / machine.ring.bytes_per_cycle
    if spread.slices[2] > 1:
        moved = moved * machine.cores.tles
    products = spread.point_filters * spread.crew * passed * -(-area // rate) / efficiency
    products = products + setup + step
    passing = step + tlts * machine.dme.setup_cycles + moved
    hidden = np.where(candidates.slots == 2, np.minimum(products, passing), 0)
    rounds = filters // passed
    each = ROW_INSTRUCTIONS * machine.cores.instruction_cycles + setup
    copies = (1 + candidates.keeps_rows) * spread.point_filters * each + step
    steps = np.where(candidates.keeps_rows == 1, -(-head.channels // candidates.channels), 1)
    cycles += candidates.on_chip * (steps * copies + candidates.keeps_rows * passing)
    result: Numbers = cycles + rounds * (products + passing) - (rounds - 1) * hidden
    return result
