"""What residual tiles that come from IN tiles take of a TLE, in numba (`input_residual`)."""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.block_cost import HIDDEN_TAKE_CYCLES
from tvm_npu.codegen.nmp.plan.exact_blocks.numbers import passed_through
from tvm_npu.sim import compiled

device = partial(compiled.device, references=False)


@device
def taken_steps(block, spread, tile_n):
    """Steps in which TLTs find what they add; 0 where a step lacks some."""
    steps, last = 0, -1
    for tle in range(spread.filter_slices):
        base, extra = block.point_filters // spread.filter_slices, tle
        more = block.point_filters % spread.filter_slices
        begin, count = tle * base + min(extra, more), base + (tle < more)
        for part in range(spread.filter_parts):
            own = count // spread.filter_parts + (part < count % spread.filter_parts)
            if begin % tile_n + own > tile_n:
                return 0
            steps += begin // tile_n != last
            last = begin // tile_n
            begin += own
    return steps


@device
def taken_cycles(block, machine, spread, choice, steps, rows, columns):
    """`input_residual.taken_cycles`."""
    filters, carried = spread.point_filters, block.carried if choice.keeps_rows else 0
    if rows == block.out_rows:
        copies = passed_through(machine, 1, filters * rows * columns)
    else:
        copies = 0.0
        if rows > carried:
            one = passed_through(machine, 1, (rows - carried) * columns)
            copies += filters * (one + machine.row)
        if carried > 0:
            copies += filters * (passed_through(machine, 1, carried * columns) + machine.row)
    hidden = HIDDEN_TAKE_CYCLES if choice.buffers == 2 else 0.0
    if machine.ports == 2 and carried == 0:
        return max(0.0, copies - hidden)
    moved = filters * rows * columns * block.element_bytes * machine.ring_byte
    passing = choice.buffers * machine.tlts * (machine.transfer + moved)
    return max(0.0, steps * copies + passing - hidden)
