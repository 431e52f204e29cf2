"""What a DMA transfer moves: segments and boxes, from DRAM, to DRAM, and from MB2 to MB0."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.arrays import copy_run
from tvm_npu.sim.nmp.columns import Descriptor
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.xnmp import DmaRegister as Reg

CORE, ADDRESS, LOCAL = Descriptor.CORE, Descriptor.ADDRESS, Descriptor.LOCAL
REGISTERS = Descriptor.REGISTERS


@device
def load_segments(s: State, m: Costs, d: Array, target: Array) -> None:
    size = d[REGISTERS + Reg.SEGMENT_BYTES]
    at = d[LOCAL]
    for k in range(d[REGISTERS + Reg.SEGMENTS]):
        base = d[ADDRESS] - m.dram_base + k * d[REGISTERS + Reg.SEGMENT_STRIDE]
        copy_run(target, at, s.dram, base, size, 1)
        at += size


@device
def load_box(s: State, m: Costs, d: Array, target: Array) -> None:
    r = d[REGISTERS:]
    size = r[Reg.ELEMENT_BYTES]
    at = d[LOCAL]
    fill_low, fill_high = np.int8(r[Reg.FILL] & 0xFF), np.int8((r[Reg.FILL] >> 8) & 0xFF)
    w0 = max(r[Reg.START_COLUMN], 0)
    w1 = max(min(r[Reg.START_COLUMN] + r[Reg.BOX_COLUMNS], r[Reg.COLUMNS]), w0)
    row_bytes = r[Reg.BOX_COLUMNS] * size
    left = min((w0 - r[Reg.START_COLUMN]) * size, row_bytes)
    middle = min((w1 - w0) * size, row_bytes - left)
    for c in range(r[Reg.START_CHANNEL], r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS]):
        for h in range(r[Reg.START_ROW], r[Reg.START_ROW] + r[Reg.BOX_ROWS]):
            inside = 0 <= c < r[Reg.CHANNELS] and 0 <= h < r[Reg.ROWS]
            begin = left if inside else row_bytes
            end = left + middle if inside else row_bytes
            for i in range(begin):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            if inside:
                base = d[ADDRESS] - m.dram_base + c * r[Reg.CHANNEL_STRIDE] + h * r[Reg.ROW_STRIDE]
                base += w0 * size
                copy_run(target, at + begin, s.dram, base, middle, 1)
            for i in range(end, row_bytes):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            at += row_bytes


@device
def store_segments(s: State, m: Costs, d: Array) -> None:
    r = d[REGISTERS:]
    size = r[Reg.ELEMENT_BYTES]
    at = d[LOCAL] // size
    count = r[Reg.SEGMENT_BYTES] // size
    memory = s.mb2[d[CORE]]
    for k in range(r[Reg.SEGMENTS]):
        base = (d[ADDRESS] - m.dram_base + k * r[Reg.SEGMENT_STRIDE]) // size
        if size == 2:
            copy_run(s.dram_half, base, memory, at, count, 1)
        else:
            copy_run(s.dram, base, memory, at, count, 1)
        at += count


@device
def store_box(s: State, m: Costs, d: Array) -> None:
    r = d[REGISTERS:]
    size = r[Reg.ELEMENT_BYTES]
    at = d[LOCAL] // size
    memory = s.mb2[d[CORE]]
    for c in range(r[Reg.START_CHANNEL], r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS]):
        for h in range(r[Reg.START_ROW], r[Reg.START_ROW] + r[Reg.BOX_ROWS]):
            if 0 <= c < r[Reg.CHANNELS] and 0 <= h < r[Reg.ROWS]:
                base = d[ADDRESS] - m.dram_base + c * r[Reg.CHANNEL_STRIDE] + h * r[Reg.ROW_STRIDE]
                base = base // size + r[Reg.START_COLUMN]
                w0 = max(0, -r[Reg.START_COLUMN])
                w1 = min(r[Reg.BOX_COLUMNS], r[Reg.COLUMNS] - r[Reg.START_COLUMN])
                if size == 2:
                    copy_run(s.dram_half, base + w0, memory, at + w0, w1 - w0, 1)
                else:
                    copy_run(s.dram, base + w0, memory, at + w0, w1 - w0, 1)
            at += r[Reg.BOX_COLUMNS]


@device
def forward_segments(s: State, d: Array, receiver: int) -> None:
    r = d[REGISTERS:]
    size = r[Reg.ELEMENT_BYTES]
    count = r[Reg.SEGMENT_BYTES] // size
    at = d[LOCAL] // size
    source, half, byte = s.mb2[d[CORE]], s.mb0_half[receiver], s.mb0[receiver]
    for k in range(r[Reg.SEGMENTS]):
        base = (d[ADDRESS] + k * r[Reg.SEGMENT_STRIDE]) // size
        if size == 2:
            copy_run(half, at, source, base, count, 1)
        else:
            copy_run(byte, at, source, base, count, 1)
        at += count


@device
def forward_box(s: State, d: Array, receiver: int) -> None:
    r = d[REGISTERS:]
    size = r[Reg.ELEMENT_BYTES]
    at = d[LOCAL] // size
    source, half, byte = s.mb2[d[CORE]], s.mb0_half[receiver], s.mb0[receiver]
    for c in range(r[Reg.START_CHANNEL], r[Reg.START_CHANNEL] + r[Reg.BOX_CHANNELS]):
        for h in range(r[Reg.START_ROW], r[Reg.START_ROW] + r[Reg.BOX_ROWS]):
            inside = 0 <= c < r[Reg.CHANNELS] and 0 <= h < r[Reg.ROWS]
            base = (d[ADDRESS] + c * r[Reg.CHANNEL_STRIDE] + h * r[Reg.ROW_STRIDE]) // size
            for w in range(r[Reg.START_COLUMN], r[Reg.START_COLUMN] + r[Reg.BOX_COLUMNS]):
                value = r[Reg.FILL]
                if inside and 0 <= w < r[Reg.COLUMNS]:
                    value = source[base + w]
                if size == 2:
                    half[at] = np.int16(value)
                else:
                    byte[at] = np.int8(value)
                at += 1
