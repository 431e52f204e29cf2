"""What a DMA transfer moves: segments and boxes, from DRAM, to DRAM, and from MB2 to MB0."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.nmp.state import Array, Costs, Descriptor, State
from tvm_npu.sim.nmp.xnmp import DmaRegister

CHANNELS, ROWS, COLUMNS = (
    int(DmaRegister.CHANNELS), int(DmaRegister.ROWS), int(DmaRegister.COLUMNS),
)  # fmt: skip
CHANNEL_STRIDE, ROW_STRIDE = int(DmaRegister.CHANNEL_STRIDE), int(DmaRegister.ROW_STRIDE)
START_CHANNEL = int(DmaRegister.START_CHANNEL)
START_ROW, START_COLUMN = int(DmaRegister.START_ROW), int(DmaRegister.START_COLUMN)
BOX_CHANNELS, BOX_ROWS = int(DmaRegister.BOX_CHANNELS), int(DmaRegister.BOX_ROWS)
BOX_COLUMNS, FILL = int(DmaRegister.BOX_COLUMNS), int(DmaRegister.FILL)
ELEMENT_BYTES, SEGMENTS = int(DmaRegister.ELEMENT_BYTES), int(DmaRegister.SEGMENTS)
SEGMENT_BYTES = int(DmaRegister.SEGMENT_BYTES)
SEGMENT_STRIDE = int(DmaRegister.SEGMENT_STRIDE)

CORE, ADDRESS, LOCAL = Descriptor.CORE, Descriptor.ADDRESS, Descriptor.LOCAL
REGISTERS = Descriptor.REGISTERS


@device
def load_segments(s: State, m: Costs, d: Array, target: Array) -> None:
    size = d[REGISTERS + SEGMENT_BYTES]
    at = d[LOCAL]
    for k in range(d[REGISTERS + SEGMENTS]):
        base = d[ADDRESS] - m.dram_base + k * d[REGISTERS + SEGMENT_STRIDE]
        for i in range(size):
            target[at + i] = np.int8(s.dram[base + i])
        at += size


@device
def load_box(s: State, m: Costs, d: Array, target: Array) -> None:
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL]
    fill_low, fill_high = np.int8(r[FILL] & 0xFF), np.int8((r[FILL] >> 8) & 0xFF)
    w0 = max(r[START_COLUMN], 0)
    w1 = max(min(r[START_COLUMN] + r[BOX_COLUMNS], r[COLUMNS]), w0)
    row_bytes = r[BOX_COLUMNS] * size
    left = min((w0 - r[START_COLUMN]) * size, row_bytes)
    middle = min((w1 - w0) * size, row_bytes - left)
    for c in range(r[START_CHANNEL], r[START_CHANNEL] + r[BOX_CHANNELS]):
        for h in range(r[START_ROW], r[START_ROW] + r[BOX_ROWS]):
            inside = 0 <= c < r[CHANNELS] and 0 <= h < r[ROWS]
            begin = left if inside else row_bytes
            end = left + middle if inside else row_bytes
            for i in range(begin):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            if inside:
                base = d[ADDRESS] - m.dram_base + c * r[CHANNEL_STRIDE] + h * r[ROW_STRIDE]
                base += w0 * size
                for i in range(middle):
                    target[at + begin + i] = np.int8(s.dram[base + i])
            for i in range(end, row_bytes):
                target[at + i] = fill_low if size == 1 or i & 1 == 0 else fill_high
            at += row_bytes


@device
def store_segments(s: State, m: Costs, d: Array) -> None:
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL] // size
    count = r[SEGMENT_BYTES] // size
    memory = s.mb2[d[CORE]]
    for k in range(r[SEGMENTS]):
        base = (d[ADDRESS] - m.dram_base + k * r[SEGMENT_STRIDE]) // size
        if size == 2:
            for i in range(count):
                s.dram_half[base + i] = np.int16(memory[at + i])
        else:
            for i in range(count):
                s.dram[base + i] = np.uint8(memory[at + i] & 0xFF)
        at += count


@device
def store_box(s: State, m: Costs, d: Array) -> None:
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL] // size
    memory = s.mb2[d[CORE]]
    for c in range(r[START_CHANNEL], r[START_CHANNEL] + r[BOX_CHANNELS]):
        for h in range(r[START_ROW], r[START_ROW] + r[BOX_ROWS]):
            if 0 <= c < r[CHANNELS] and 0 <= h < r[ROWS]:
                base = d[ADDRESS] - m.dram_base + c * r[CHANNEL_STRIDE] + h * r[ROW_STRIDE]
                base = base // size + r[START_COLUMN]
                w0 = max(0, -r[START_COLUMN])
                w1 = min(r[BOX_COLUMNS], r[COLUMNS] - r[START_COLUMN])
                if size == 2:
                    for i in range(w0, w1):
                        s.dram_half[base + i] = np.int16(memory[at + i])
                else:
                    for i in range(w0, w1):
                        s.dram[base + i] = np.uint8(memory[at + i] & 0xFF)
            at += r[BOX_COLUMNS]


@device
def forward_segments(s: State, d: Array, receiver: int) -> None:
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    count = r[SEGMENT_BYTES] // size
    at = d[LOCAL] // size
    source, half, byte = s.mb2[d[CORE]], s.mb0_half[receiver], s.mb0[receiver]
    for k in range(r[SEGMENTS]):
        base = (d[ADDRESS] + k * r[SEGMENT_STRIDE]) // size
        if size == 2:
            for i in range(count):
                half[at + i] = np.int16(source[base + i])
        else:
            for i in range(count):
                byte[at + i] = np.int8(source[base + i])
        at += count


@device
def forward_box(s: State, d: Array, receiver: int) -> None:
    r = d[REGISTERS:]
    size = r[ELEMENT_BYTES]
    at = d[LOCAL] // size
    source, half, byte = s.mb2[d[CORE]], s.mb0_half[receiver], s.mb0[receiver]
    for c in range(r[START_CHANNEL], r[START_CHANNEL] + r[BOX_CHANNELS]):
        for h in range(r[START_ROW], r[START_ROW] + r[BOX_ROWS]):
            inside = 0 <= c < r[CHANNELS] and 0 <= h < r[ROWS]
            base = (d[ADDRESS] + c * r[CHANNEL_STRIDE] + h * r[ROW_STRIDE]) // size
            for w in range(r[START_COLUMN], r[START_COLUMN] + r[BOX_COLUMNS]):
                value = r[FILL]
                if inside and 0 <= w < r[COLUMNS]:
                    value = source[base + w]
                if size == 2:
                    half[at] = np.int16(value)
                else:
                    byte[at] = np.int8(value)
                at += 1
