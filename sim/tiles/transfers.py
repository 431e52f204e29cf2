"""tload and tstore: what they move."""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arrays import copy_run
from tvm_npu.sim.compiled.spans import product, reach, volume
from tvm_npu.sim.tiles.isa import LARGEST_EXTENT, TileMemory
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.operands import (
    GO,
    STOP,
    fits,
    in_bounds,
    mark_written,
    spend,
    trap,
    use,
    was_written,
)
from tvm_npu.sim.tiles.state import MOVER_READS, MOVER_WRITES, Costs, State
from tvm_npu.sim.tiles.timing import book_transfer
from tvm_npu.sim.tiles.traps import TileTrapCode as Code

MEM, BASE, STREAM = 2, 3, 5
STREAMS = 7
LARGEST_RUN = 1 << 24
LARGEST_STRIDE = (1 << 31) - 1


@device
def tload(s: State, m: Costs, row: int) -> int:
    return transfer(s, m, row, True)


@device
def tstore(s: State, m: Costs, row: int) -> int:
    return transfer(s, m, row, False)


@device
def transfer(s: State, m: Costs, row: int, loads: bool) -> int:
    if not m.has_mover:
        return trap(s, Code.NO_UNIT, 0, 0, 0, 0, 0)
    memory, base, stream = s.decoded[row, MEM], s.decoded[row, BASE], s.decoded[row, STREAM]
    if stream >= STREAMS:
        return trap(s, Code.ILLEGAL_INSTRUCTION, s.words[row], 0, 0, 0, 0)
    if memory > TileMemory.BIAS:
        return trap(s, Code.WRONG_MEMORY, 0, 0, 0, memory, Reg.OPERANDS)
    if base != TileMemory.ACTIVATIONS and (base != TileMemory.CONSTANTS or not loads):
        return trap(s, Code.WRONG_MEMORY, 0, 0, 0, base, Reg.OPERANDS)
    if not in_bounds(s, Reg.RUN_BYTES, Reg.RUN_BYTES, 1, LARGEST_RUN):
        return STOP
    for count, stride in ((Reg.COUNT_INNER, Reg.STRIDE_INNER), (Reg.COUNT_OUTER, Reg.STRIDE_OUTER)):
        if not in_bounds(s, count, count, 1, LARGEST_EXTENT):
            return STOP
        if s.registers[count] > 1 and not in_bounds(s, stride, stride, 0, LARGEST_STRIDE):
            return STOP
    r = s.registers
    run, inner, outer = r[Reg.RUN_BYTES], r[Reg.COUNT_INNER], r[Reg.COUNT_OUTER]
    inner_stride = r[Reg.STRIDE_INNER] if inner > 1 else run
    outer_stride = r[Reg.STRIDE_OUTER] if outer > 1 else product(inner, inner_stride)
    size = volume(outer, inner, run)
    if not fits(s, memory, r[Reg.CHIP_OFFSET], size, Reg.CHIP_OFFSET):
        return STOP
    chip = s.places[memory, 0] + r[Reg.CHIP_OFFSET]
    extent = reach(reach(run, inner, inner_stride), outer, outer_stride)
    if r[Reg.ADDRESS] < 0 or r[Reg.ADDRESS] + extent > s.places[base, 1]:
        end = r[Reg.ADDRESS] + extent
        return trap(
            s, Code.TRANSFER_OUTSIDE, r[Reg.ADDRESS], end, s.places[base, 1], base, Reg.ADDRESS
        )
    if not spend(s, size):
        return STOP
    outside = s.places[base, 0] + r[Reg.ADDRESS]
    if not loads and not was_written(s, m, memory, chip, chip + size):
        return STOP
    if outer_stride == inner * inner_stride:  # one row of runs
        inner, outer = inner * outer, 1
    if inner_stride == run:
        run, inner = run * inner, 1
    for i in range(outer):
        for j in range(inner):
            here = chip + (i * inner + j) * run
            there = outside + i * outer_stride + j * inner_stride
            if loads:
                copy_run(s.memory, here, s.memory, there, run, 1)
            else:
                copy_run(s.memory, there, s.memory, here, run, 1)
    if loads:
        mark_written(s, m, chip, chip + size, 1)
    use(s, MOVER_WRITES if loads else MOVER_READS, chip, chip + size)
    if m.has_core:  # nothing else but the transfers themselves reaches out of the chip
        use(s, MOVER_READS if loads else MOVER_WRITES, outside, outside + extent)
    layer = s.layer_of[row]
    link = 0 if loads else 1
    s.layer_bytes[layer, link, stream] += size
    s.layer_memory_bytes[layer, memory, 1 if loads else 0] += size
    book_transfer(s, m, row, size, stream, link)
    return GO
