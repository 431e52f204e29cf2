"""What a TLE of a block does at its places, in numba: a row a kind of place, from the kinds of
turns along rows and columns (`axis`), and what of it hangs on no channels of IN tiles."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from tvm_npu.codegen.nmp.plan.block_cost import (
    HIDDEN_KEEP_CYCLES,
    HIDDEN_PASS_CYCLES,
    KEPT_ROW_CYCLES,
    TURN_CYCLES,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.axis import (
    FIRST_OUT,
    FIRST_PASSED,
    IN,
    IN_EXTENT,
    IN_LINES,
    IN_SINGLE,
    IN_WHOLE,
    MIDDLE,
    OUT,
    OUT_EXTENT,
    OUT_LINES,
    OUT_SINGLE,
    OUT_WHOLE,
    PASSED,
    PASSED_TILES,
    TURNS,
)
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import engine, passed_through
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

# Of a place: how many are alike; loads of IN: transfers, and for a channel bursts of boxes and of
# 1-D transfers, runs of whole planes, elements; likewise stores of OUT for a filter; what the TLT
# with most multiplies, and stores; tiles and elements that go to windows for a filter.
NUMBER, P_IN, P_IN_BOXES, P_IN_LINEAR, P_IN_WHOLE, P_IN_AREA = range(6)
P_OUT, P_OUT_BOXES, P_OUT_LINEAR, P_OUT_WHOLE, P_OUT_AREA = range(6, 11)
P_ROWS, P_COLUMNS, P_OUT_ROWS, P_OUT_COLUMNS = range(11, 15)
P_PASSES, P_PASSED, P_KEPT_COLUMNS = range(15, 18)
# Of a choice: MAC cycles of a channel; of a step, beside it, and whether there is one; the end of
# the head's tile; what follows it up to the last products of the pointwise convolution, but for
# transfers to windows, and what of it may go on beside; the end of the OUT tile (without what
# comes of IN tiles); transfers to windows; the store of OUT tiles: cycles, transfers, bursts of
# boxes, of 1-D transfers, bytes.
CHANNEL, BESIDE, HAS_STEP, FINISH, BEHIND, HIDDEN, END, CHIP = range(18, 26)
STORE, STORE_MOVES, STORE_BOXES, STORE_LINEAR, STORE_BYTES = range(26, 31)
PLACE_WIDTH = 31


class Choice(NamedTuple):
    """What a plan chooses beside its spread, places and channels of IN tiles."""

    tile_m: int
    keeps_in: int
    buffers: int
    slots: int
    passed: int
    keeps_rows: int
    on_chip: int


@device
def fill_places(row_kinds, number_u, column_kinds, number_v, places):
    """All pairs of kinds, in the order of the loops."""
    at = 0
    for u in range(number_u):
        r = row_kinds[u]
        for v in range(number_v):
            c, p = column_kinds[v], places[at]
            p[NUMBER] = r[TURNS] * c[TURNS]
            p[P_IN], p[P_IN_AREA] = r[IN] * c[IN], r[IN_EXTENT] * c[IN_EXTENT]
            p[P_IN_BOXES] = r[IN_EXTENT] * c[IN_LINES] + r[IN_LINES] * c[IN_SINGLE]
            p[P_IN_LINEAR], p[P_IN_WHOLE] = r[IN_SINGLE] * c[IN_WHOLE], r[IN_WHOLE] * c[IN_WHOLE]
            p[P_OUT], p[P_OUT_AREA] = r[OUT] * c[OUT], r[OUT_EXTENT] * c[OUT_EXTENT]
            p[P_OUT_BOXES] = r[OUT_EXTENT] * c[OUT_LINES] + r[OUT_LINES] * c[OUT_SINGLE]
            p[P_OUT_LINEAR] = r[OUT_SINGLE] * c[OUT_WHOLE]
            p[P_OUT_WHOLE] = r[OUT_WHOLE] * c[OUT_WHOLE]
            p[P_ROWS], p[P_COLUMNS] = r[MIDDLE], c[MIDDLE]
            p[P_OUT_ROWS], p[P_OUT_COLUMNS] = r[FIRST_OUT], c[FIRST_OUT]
            p[P_PASSES] = r[PASSED_TILES] * c[PASSED_TILES]
            p[P_PASSED], p[P_KEPT_COLUMNS] = r[PASSED] * c[PASSED], c[FIRST_PASSED]
            at += 1
    return at


@device
def _window_cycles(block, machine, place, choice):
    """`TleWalk.through_window`."""
    channels = choice.tile_m * (1 + block.twin)
    area = int(place[P_OUT_ROWS] * place[P_OUT_COLUMNS])
    if area == 0:
        return 0.0
    taps = block.kernel_rows * block.kernel_columns
    cycles = passed_through(machine, channels, area * taps) + machine.step
    if block.has_kernels:
        cycles += passed_through(machine, 1, channels * area)
    columns = int(place[P_KEPT_COLUMNS])
    if choice.keeps_rows and columns:
        one = passed_through(machine, channels, columns) + machine.row
        copy = block.shared * one
        cycles += copy - (min(HIDDEN_KEEP_CYCLES, copy) if choice.buffers == 2 else 0.0)
    return cycles


@device
def passing_cycles(block, machine, spread, area, passed):
    """What a crew's engines take to pass on ``passed`` channels a TLT for ``area`` positions."""
    moved = passed * area * block.element_bytes * machine.ring_byte
    one = machine.transfer + moved
    if spread.filter_slices > 1:
        one += machine.hop
        return max(machine.tlts * one, machine.tlts * machine.tles * moved + one)
    return machine.tlts * one


@device
def rounds_cycles(block, machine, spread, area, made, buffers, slots, passed):
    """`BlockWalk._rounds` for ``area`` positions and ``made`` channels of a TLT, where nothing of
    the first pass goes on beside."""
    crew = spread.filter_slices * spread.filter_parts
    passing = passing_cycles(block, machine, spread, area, passed)
    products = 0.0
    if area:
        units = crew * passed * spread.point_filters * ceil_div(area, machine.rate)
        products = units * machine.beat + machine.operation + machine.step
    rounds, waiting = made // passed, machine.step
    if slots == 1:
        if buffers == 1:
            waiting = 0.0
        return rounds * (waiting + passing + products)
    products -= machine.step - TURN_CYCLES
    last = max(products, waiting + passing)
    return waiting + passing + (rounds - 1) * last + products


@device
def fill_choice(block, machine, spread, rivals, choice, point_long, point_longer, number, places):
    """The last columns of the first ``number`` places. The first ``point_longer`` filter parts of
    the TLE have ``point_long`` filters of the pointwise convolution, the others one less."""
    size, in_step = block.element_bytes, choice.buffers == 2
    shorter = spread.filter_parts - point_longer if point_long > 1 else 0
    filters = point_long * point_longer + (point_long - 1) * shorter
    plane = block.out_rows * block.out_columns * size
    merged = point_longer * ceil_div(point_long * plane, machine.burst_bytes)
    if shorter:
        merged += shorter * ceil_div((point_long - 1) * plane, machine.burst_bytes)
    m, planes = choice.tile_m, 1 + block.twin
    for at in range(number):
        p = places[at]
        rows, columns = int(p[P_ROWS]), int(p[P_COLUMNS])
        out_area = int(p[P_OUT_ROWS] * p[P_OUT_COLUMNS])
        lines, line = (rows, columns) if choice.keeps_rows else (1, rows * columns)
        beats = ceil_div(line * block.kernel, machine.rate)
        beats += block.twin * ceil_div(line, machine.rate)
        p[CHANNEL] = lines * m * beats * machine.beat
        one = machine.operation + block.twin * (machine.operation + machine.row)
        p[BESIDE] = lines * one + max(0, lines - 1) * machine.row
        if choice.keeps_rows and in_step:
            p[BESIDE] += KEPT_ROW_CYCLES * rows
        p[HAS_STEP] = columns > 0 and (rows > 0 or choice.keeps_rows)
        p[FINISH] = planes * passed_through(machine, 1, m * rows * columns)
        p[CHIP], p[BEHIND] = 0.0, 0.0
        if block.has_window:
            moves = p[P_PASSES] * spread.filter_parts
            volume = m * planes * p[P_PASSED] * spread.filter_parts * size
            p[CHIP] = moves * machine.transfer + volume * machine.ring_byte
            p[BEHIND] = _window_cycles(block, machine, p, choice)
        p[BEHIND] += rounds_cycles(
            block, machine, spread, out_area, m * planes, choice.buffers, choice.slots,
            choice.passed,
        )  # fmt: skip
        passing = passing_cycles(block, machine, spread, out_area, choice.passed)
        p[HIDDEN] = min(HIDDEN_PASS_CYCLES, passing)
        ends = 1 + block.residual
        p[END] = ends * passed_through(machine, 1, spread.point_filters * out_area)
        p[STORE_MOVES] = (point_longer + shorter) * p[P_OUT]
        p[STORE_BOXES] = filters * p[P_OUT_BOXES]
        p[STORE_LINEAR] = filters * p[P_OUT_LINEAR] + p[P_OUT_WHOLE] * merged
        p[STORE_BYTES] = filters * size * p[P_OUT_AREA]
        p[STORE] = engine(
            machine, rivals, in_step, p[STORE_MOVES], p[STORE_BOXES], p[STORE_LINEAR],
            p[STORE_BYTES],
        )  # fmt: skip
