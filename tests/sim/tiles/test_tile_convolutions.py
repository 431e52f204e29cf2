"""Convolutions cut into tiles at random, by hand, equal the plain convolution to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.tiles.programs import (
    ACTIVATIONS,
    CONSTANTS,
    ON_CHIP,
    activations,
    machine,
    sets,
    simulator,
)
from tests.sim.tiles.reference import convolution, requantized
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class Case:
    """A convolution, its tiles, and the machine's words and memories."""

    channels: int  # of a group
    filters: int  # of a group
    groups: int
    rows: int
    columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int, int, int]  # top, left, bottom, right
    tile: tuple[int, int, int, int]  # filters, channels, rows, columns of the OFM
    order: tuple[int, ...]
    precision: Any
    words: dict[str, int]
    shared: bool
    residual: bool
    buffers: int

    @property
    def out(self) -> tuple[int, int]:
        size = (self.rows, self.columns)
        spans = [(self.kernel[a] - 1) * self.dilation[a] + 1 for a in (0, 1)]
        rows, columns = (
            (size[a] + self.pad[a] + self.pad[a + 2] - spans[a]) // self.stride[a] + 1
            for a in (0, 1)
        )
        return rows, columns


pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
few = st.integers(1, 6)
pads = st.integers(0, 2)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel, dilation = draw(pairs), draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    spans = [(kernel[a] - 1) * dilation[a] + 1 for a in (0, 1)]
    return Case(
        channels=draw(few), filters=draw(few), groups=draw(st.sampled_from([1, 1, 2, 3])),
        rows=draw(st.integers(spans[0], 10)), columns=draw(st.integers(spans[1], 10)),
        kernel=kernel, stride=draw(pairs), dilation=dilation,
        pad=draw(st.tuples(pads, pads, pads, pads)),
        tile=draw(st.tuples(few, few, few, few)), order=draw(st.permutations(range(4))).copy(),
        precision=draw(st.sampled_from(["int8", "int16"])),
        words=draw(st.sampled_from([
            {"int8_bytes": 1, "int16_bytes": 2, "int16_accumulator_bytes": 8},
            {"int8_bytes": 4, "int16_bytes": 4, "int8_accumulator_bytes": 8},
            {"int8_bytes": 2, "int16_bytes": 2},
        ])),
        shared=draw(st.booleans()), residual=draw(st.booleans()), buffers=draw(
            st.sampled_from([1, 2])
        ),
    )  # fmt: skip


def inside(case: Case, axis: int, begin: int, count: int) -> tuple[int, int, int]:
    """First row (column) of the IFM under ``count`` of the OFM, how many, and padding in front."""
    size = case.rows if axis == 0 else case.columns
    low = begin * case.stride[axis] - case.pad[axis]
    high = (begin + count - 1) * case.stride[axis] - case.pad[axis]
    high += (case.kernel[axis] - 1) * case.dilation[axis] + 1
    first = min(max(low, 0), size)
    return first, max(0, min(high, size) - first), max(0, -low)


@dataclass
class Layout:
    """Where what lies in ACTIVATIONS, and tiles on chip."""

    residual: int
    out: int
    partial: int
    chip: tuple[int, int, int, int]  # IN, residual, W, OUT


def box(memory: str, base: str, stream: str, store: bool, **registers: int) -> str:
    return sets(**registers) + f"{'tstore' if store else 'tload'} {memory}, {base}, {stream}\n"


def program(case: Case, element: int, accumulator: int, where: Layout, shift: int) -> str:
    """Tiles in the loops' order. The OUT tile goes out as partial sums whenever it is not
    complete, and comes back; ``buffers`` 2 uses two places in turn."""
    rows, columns = case.out
    limits = (case.filters, case.channels, rows, columns)
    text = sets(
        OPERANDS=ON_CHIP, GROUPS=1, KERNEL_ROWS=case.kernel[0], KERNEL_COLUMNS=case.kernel[1],
        STRIDE_ROWS=case.stride[0], STRIDE_COLUMNS=case.stride[1], DILATION_ROWS=case.dilation[0],
        DILATION_COLUMNS=case.dilation[1], SHIFT=shift, SHIFT_A=1, SHIFT_B=2,
        LOW=-100, HIGH=30000 if case.precision == "int16" else 127,
    )  # fmt: skip
    biases = 4 * case.groups * case.filters
    text += box("bias", "constants", "bias", False, ADDRESS=0, CHIP_OFFSET=0, RUN_BYTES=biases,
                COUNT_INNER=1, COUNT_OUTER=1)  # fmt: skip
    counts = [-(-limit // tile) for limit, tile in zip(limits, case.tile, strict=True)]
    half, turn = 4096 // case.buffers, 0
    for group in range(case.groups):
        done: dict[tuple[int, int, int], int] = {}
        for place in product(*(range(counts[loop]) for loop in case.order)):
            index = [place[case.order.index(loop)] for loop in range(4)]
            (f0, fs), (n0, ns), (r0, rs), (c0, cs) = (
                (i * tile, min(tile, limit - i * tile))
                for i, tile, limit in zip(index, case.tile, limits, strict=True)
            )
            at = [offset + half * turn for offset in where.chip]
            turn = (turn + 1) % case.buffers
            y, ys, top = inside(case, 0, r0, rs)
            x, xs, left = inside(case, 1, c0, cs)
            plane = case.rows * case.columns * element
            first = group * case.channels + n0
            if ys and xs:
                text += box(
                    "input", "activations", "in", False,
                    ADDRESS=first * plane + (y * case.columns + x) * element, CHIP_OFFSET=at[0],
                    RUN_BYTES=xs * element, COUNT_INNER=ys, STRIDE_INNER=case.columns * element,
                    COUNT_OUTER=ns, STRIDE_OUTER=plane,
                )  # fmt: skip
            taps = case.kernel[0] * case.kernel[1] * element
            filter_ = group * case.filters + f0
            text += box(
                "weight", "constants", "weight", False,
                ADDRESS=biases + (filter_ * case.channels + n0) * taps, CHIP_OFFSET=at[2],
                RUN_BYTES=ns * taps, COUNT_INNER=fs, STRIDE_INNER=case.channels * taps,
                COUNT_OUTER=1,
            )  # fmt: skip
            text += sets(
                IN_OFFSET=at[0], IN_CHANNELS=ns, IN_ROWS=ys, IN_COLUMNS=xs, W_OFFSET=at[2],
                OUT_OFFSET=at[3], OUT_CHANNELS=fs, OUT_ROWS=rs, OUT_COLUMNS=cs, PAD_TOP=top,
                PAD_LEFT=left,
            )  # fmt: skip

            def place_of(width: int, base: int) -> dict[str, int]:
                start = (filter_ * rows + r0) * columns + c0  # noqa: B023
                return {
                    "ADDRESS": base + start * width, "RUN_BYTES": cs * width,  # noqa: B023
                    "COUNT_INNER": rs, "STRIDE_INNER": columns * width,  # noqa: B023
                    "COUNT_OUTER": fs, "STRIDE_OUTER": rows * columns * width,  # noqa: B023
                }  # fmt: skip

            key = (index[0], index[2], index[3])
            partial = place_of(accumulator, where.partial)
            if key in done:
                text += box("output", "activations", "partial", False, CHIP_OFFSET=at[3], **partial)
            text += f"tconv {'keep' if key in done else 'zero'}\n"
            done[key] = done.get(key, 0) + 1
            if done[key] < counts[1]:
                text += box("output", "activations", "partial", True, CHIP_OFFSET=at[3], **partial)
                continue
            if case.residual:
                text += box("input", "activations", "residual", False, CHIP_OFFSET=at[1],
                            **place_of(element, where.residual))  # fmt: skip
            text += sets(IN_OFFSET=at[1], BIAS_OFFSET=4 * filter_)
            text += f"tfinish {'bias_residual' if case.residual else 'bias'}\n"
            text += box("output", "activations", "out", True, CHIP_OFFSET=at[3],
                        **place_of(element, where.out))  # fmt: skip
    return text + "tend\n"


def on(case: Case) -> TileMachine:
    """Memories of 8 KiB; shared, a tile of each kind has a quarter of half of it."""
    memories = {"shared_bytes": 8192} if case.shared else {
        "input_bytes": 8192, "weight_bytes": 8192, "output_bytes": 8192}  # fmt: skip
    return machine(words=case.words, memories=memories)


def fits(case: Case, element: int, accumulator: int) -> bool:
    room = 1000 if case.shared and case.buffers == 1 else 500
    m, n, r, c = case.tile
    spans = [
        (count - 1) * case.stride[a] + (case.kernel[a] - 1) * case.dilation[a] + 1
        for a, count in ((0, r), (1, c))
    ]
    taps = case.kernel[0] * case.kernel[1]
    sizes = (n * spans[0] * spans[1] * element, m * n * taps * element, m * r * c * accumulator)
    return max(sizes) <= room


@settings(max_examples=examples(120), deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_tiles_make_the_convolution(case: Case, seed: int) -> None:
    where = on(case)
    element = where.element_bytes(case.precision)
    accumulator = where.accumulator_bytes(case.precision)
    while not fits(case, element, accumulator):
        tile = [max(1, size // 2) for size in case.tile]
        if list(case.tile) == tile:
            return
        case = Case(**{**vars(case), "tile": tuple(tile)})
    random = np.random.default_rng(seed)
    low, high = (-128, 127) if case.precision == "int8" else (-32768, 32767)

    def numbers(*shape: int) -> np.ndarray:
        return random.integers(low, high, shape, endpoint=True)

    channels, filters = case.groups * case.channels, case.groups * case.filters
    x = numbers(channels, case.rows, case.columns)
    w = numbers(filters, case.channels, *case.kernel)
    residual, bias = numbers(filters, *case.out), random.integers(-(10**6), 10**6, filters)
    acc = convolution(x, w, case.out, case.pad[:2], case.stride, case.dilation, case.groups)
    total = acc + bias[:, None, None]
    if case.residual:
        total = (total << 1) + (residual << 2)
    shift = max(0, int(np.abs(total).max()).bit_length() - 8)
    top = 127 if case.precision == "int8" else 30000
    expected = requantized(total, shift, -100, top, 8 if case.precision == "int8" else 16)

    kind, count = f"<i{element}", filters * case.out[0] * case.out[1]
    begin = x.size * element
    layout = Layout(begin, begin + count * element, begin + 2 * count * element, (0, 1, 2, 3))
    quarter = 1024 if case.shared and case.buffers == 1 else 512
    layout.chip = (0, quarter, 2 * quarter, 3 * quarter) if case.shared else (0, 1100, 3, 5)
    found = simulator(
        program(case, element, accumulator, layout, shift), where, precision=case.precision
    )
    found.write(CONSTANTS, bias.astype(np.int32))
    found.write(CONSTANTS + 4 * filters, w.astype(kind))
    found.write(ACTIVATIONS, x.astype(kind))
    found.write(ACTIVATIONS + layout.residual, residual.astype(kind))
    statistics = found.run()
    there = activations(found, count, kind, layout.out)
    assert there.tolist() == expected.reshape(-1).tolist()
    assert statistics.macs == acc.size * w[0].size
    assert statistics.stored_bytes["out"] == count * element
    trips = -(-case.channels // case.tile[1])
    assert statistics.loaded_bytes.get("partial", 0) == (trips - 1) * count * accumulator
    assert statistics.stored_bytes.get("partial", 0) == (trips - 1) * count * accumulator
    assert found.run(timing=False).macs == statistics.macs
