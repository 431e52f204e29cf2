"""What tiles of a convolution touch, for compiled code: taps, inputs, and units of memory."""

from __future__ import annotations

from typing import NamedTuple

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, MEMORY_UNIT_BYTES

COOP, INDP, LANE = range(3)
"""Modes, in the order of `tiling.MODES`."""


class Along(NamedTuple):
    """`steps.windows.Axis` in numbers."""

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int


@device
def first_tap(axis: Along, at: int) -> int:
    """The first tap of result ``at`` that is inside of the input."""
    begin = at * axis.stride - axis.before
    return ceil_div(-begin, axis.dilation) if begin < 0 else 0


@device
def end_tap(axis: Along, at: int) -> int:
    """Behind the last tap that is inside."""
    begin = at * axis.stride - axis.before
    return min(axis.kernel, (axis.size - 1 - begin) // axis.dilation + 1)


@device
def alike_tiles(axis: Along, begin: int, size: int) -> int:
    """How many tiles of ``size`` results, one behind the other from ``begin`` on, have all taps of
    all results inside of the input; 1 where the first of them has not."""
    if begin + size > axis.out or first_tap(axis, begin) > 0:
        return 1
    # Taps of result k end at k * stride - before + (kernel - 1) * dilation.
    inside = axis.size - 1 - (axis.kernel - 1) * axis.dilation + axis.before
    results = min(axis.out, inside // axis.stride + 1)
    return max(1, (results - begin) // size)


@device
def inside_tiles(axis: Along, size: int) -> int:
    """Tiles of ``size`` results that have all taps of all results inside of the input, but for any
    behind the first of them that have not."""
    begin = ceil_div(max(0, axis.before), axis.stride * size) * size
    tiles = alike_tiles(axis, begin, size)
    last = begin + tiles * size - 1
    if last >= axis.out or end_tap(axis, last) < axis.kernel:
        return 0
    return tiles


@device
def tap_step(axis: Along, count: int) -> int:
    """From tap to tap in a tile of ``count`` results."""
    return min(axis.dilation, (count - 1) * axis.stride + 1)


@device
def pieces(axis: Along, step: int) -> int:
    """How many `piece`s a tile with this `tap_step` has, empty ones included."""
    return 1 if step == axis.dilation else axis.kernel


@device
def piece(axis: Along, begin: int, count: int, step: int, number: int) -> tuple[int, int]:
    """(first input, how many) of a piece of what results from ``begin`` on touch."""
    low = begin * axis.stride - axis.before
    high = low + (count - 1) * axis.stride + 1
    if step == axis.dilation:
        high += (axis.kernel - 1) * axis.dilation
    else:
        low, high = low + number * axis.dilation, high + number * axis.dilation
    first = min(max(low, 0), axis.size)
    return first, max(0, min(high, axis.size) - first)


@device
def touched(axis: Along, begin: int, count: int, step: int) -> int:
    """Inputs of all pieces."""
    total = 0
    for number in range(pieces(axis, step)):
        total += piece(axis, begin, count, step, number)[1]
    return total


@device
def span(axis: Along, count: int) -> int:
    """Inputs of a tile of ``count`` results, padding included."""
    return (count - 1) * axis.stride + (axis.kernel - 1) * tap_step(axis, count) + 1


@device
def whole_lines(words: int) -> int:
    """Words rounded up to lines."""
    return ceil_div(words, LANES) * LANES


@device
def common(a: int, b: int) -> int:
    """The greatest common divisor."""
    while b:
        a, b = b, a % b
    return a


@device
def run_units(begin: int, size: int, step: int, runs: int) -> float:
    """64-byte units that ``runs`` runs of ``size`` bytes touch, ``step`` bytes apart, as the
    machine counts them; of many runs that begin everywhere in a unit the mean."""
    if runs <= 0 or size <= 0:
        return 0.0
    unit = MEMORY_UNIT_BYTES
    if runs == 1 or step == size:
        last = begin + (runs - 1) * step + size - 1
        return float(last // unit - begin // unit + 1)
    fine = common(step, unit)
    period = unit // fine
    if runs >= period:
        # Runs begin at all words of a unit that are ``fine`` bytes apart: each of them once has its
        # end in another unit behind so many ``fine`` bytes.
        return (period + (begin % fine + size - 1) // fine) * (runs / period)
    total = 0
    for k in range(runs):
        at = (begin + k * step) % unit
        total += (at + size - 1) // unit + 1
    return float(total)
