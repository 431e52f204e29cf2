"""What the Loom's instructions do: a method each, on registers, scratchpads and memory."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from loom_npu.isa import Pad, Reg, Segment
from loom_npu.machine import LoomMachine
from tvm_npu.sim.image import ProgramImage
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.numerics import convolve, requantize, window_counts, windows
from tvm_npu.sim.plain import Fault, tile_view
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tally import Tally

STREAMS = (Stream.IN, Stream.WEIGHT, Stream.OUT, Stream.BIAS)
WINDOW = (Reg.R, Reg.C, Reg.KH, Reg.KW, Reg.SH, Reg.SW, Reg.DH, Reg.DW, Reg.TOP, Reg.LEFT)


class Engine:
    def __init__(self, machine: LoomMachine, dram: Any, image: ProgramImage, tally: Tally) -> None:
        self.machine, self.dram, self.tally = machine, dram, tally
        self.dtype = np.dtype(f"<i{ELEMENT_BYTES[image.of_one_precision()]}")
        ranges = image.constants, image.activations
        base = machine.dram.base_address
        self.segments = [(one.address - base, one.size_bytes) for one in ranges]
        sizes = machine.scratchpads.model_dump()
        self.pads = [np.zeros(sizes[f"{pad.name.lower()}_bytes"], np.uint8) for pad in Pad]
        self.r = [0] * len(Reg)

    def set(self, rd: int, imm: int) -> None:
        self.r[rd] = imm
        self.tally.work("control", 1.0)

    def high(self, rd: int, imm: int) -> None:
        value = (self.r[rd] & 0xFFFF) | imm << 16
        self.set(rd, value - (1 << 32) if value >> 31 else value)

    def load(self, pad: int, segment: int) -> None:
        at = self._transfer("loaded", Pad(pad), Segment(segment))
        self._tile(Pad(pad), Reg.PLACE, (len(at),), np.uint8)[:] = self.dram[at]

    def store(self) -> None:
        at = self._transfer("stored", Pad.OUTPUT, Segment.ACTIVATIONS)
        self.dram[at] = self._tile(Pad.OUTPUT, Reg.PLACE, (len(at),), np.uint8)

    def _transfer(self, link: str, pad: Pad, segment: Segment) -> Any:
        """Where its bytes lie in DRAM, in the order in which they go."""
        counts = self._of(Reg.GROUPS, Reg.RUNS, Reg.RUN_BYTES)
        strides = (*self._of(Reg.GROUP_STRIDE, Reg.RUN_STRIDE), 1)
        first, (begin, size) = self.r[Reg.ADDRESS], self.segments[segment]
        last = first + sum((n - 1) * step for n, step in zip(counts, strides, strict=True))
        runs = counts[0] * counts[1]
        moved = runs * counts[2]
        if min(*counts, *strides) < 1 or first < 0 or last >= size or moved > len(self.pads[pad]):
            raise Fault(f"{moved} bytes, {first} to {last} of {segment.name}, which has {size}")
        mover = self.machine.mover
        cycles = mover.setup_cycles + runs * mover.run_cycles + moved / mover.bytes_per_cycle
        self.tally.work("mover", cycles)
        box = (begin + first, counts[2], counts[1], strides[1], counts[0], strides[0])
        where = box if link == "stored" else None
        self.tally.move(link, STREAMS[pad], pad.name.lower(), moved, runs, where)
        a, b, c = (np.arange(n) * step for n, step in zip(counts, strides, strict=True))
        return (begin + first + a[:, None, None] + b[:, None] + c).reshape(-1)

    def _of(self, *names: Reg) -> tuple[int, ...]:
        return tuple(self.r[name] for name in names)

    def _check(self, name: Reg, low: int, high: int) -> int:
        if not low <= self.r[name] <= high:
            raise Fault(f"{name.name} is {self.r[name]}; allowed are {low} to {high}")
        return self.r[name]

    def _tile(self, pad: Pad, place: Reg, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return tile_view(self.pads[pad], pad.name, self.r[place], shape, dtype or self.dtype)

    def _operand(self, place: Reg) -> Any:
        return self._tile(Pad.INPUT, place, self._of(Reg.M, Reg.R, Reg.C)).astype(np.int64)

    def _sums(self, dtype: Any = np.int64) -> Any:
        return self._tile(Pad.OUTPUT, Reg.OUT, self._of(Reg.M, Reg.R, Reg.C), dtype)

    def _pairs(self) -> list[tuple[int, int]]:
        """Results, kernel, stride, dilation and padding of a window, (rows, columns) each."""
        of = [self._check(name, int(name < Reg.TOP), 4096) for name in WINDOW]
        pairs = list(zip(of[::2], of[1::2], strict=True))
        if prod(of[:8]) * self.r[Reg.N] > 1 << 28:
            raise Fault(f"windows reach too far: {pairs}")
        return pairs

    def _windows(self, fill: int) -> Any:
        x = self._tile(Pad.INPUT, Reg.IN, self._of(Reg.N, Reg.H, Reg.L)).astype(np.int64)
        return windows(x, *self._pairs(), fill)  # type: ignore[call-arg]

    def _work(self, operations: int, macs: int = 0) -> None:
        engine = self.machine.engine
        self.tally.work("lanes", engine.setup_cycles + -(-operations // engine.lanes), macs)

    def zero(self) -> None:
        self._sums()[:] = 0
        self._work(self._sums().size)

    def mac(self) -> None:
        filters, lanes, x = self.r[Reg.M], self.machine.engine.lanes, self._windows(0)
        shape = self._of(Reg.M, Reg.N, Reg.KH, Reg.KW)
        self._sums()[:] += convolve(self._tile(Pad.WEIGHT, Reg.W, shape), x)
        self._work(-(-filters // lanes) * lanes * x.size, filters * x.size)

    def _end(self, values: Any, operations: int = 1) -> None:
        shift, limits = self._check(Reg.SHIFT, -24, 62), self._of(Reg.LOW, Reg.HIGH)
        self._sums(self.dtype)[:] = requantize(values, shift, *limits, self.dtype)
        self._work(values.size * operations)

    def finish(self) -> None:
        self._end(self._biased())

    def residual(self) -> None:
        sums = self._biased() << self._check(Reg.SHIFT_A, 0, 24)
        self._end(sums + (self._operand(Reg.IN) << self._check(Reg.SHIFT_B, 0, 24)))

    def _biased(self) -> Any:
        biases = self._tile(Pad.BIAS, Reg.BIAS, self._of(Reg.M), np.int32)
        return self._sums() + biases.astype(np.int64)[:, None, None]

    def max(self) -> None:
        found = self._windows(int(np.iinfo(self.dtype).min))
        self._end(found.max(axis=(3, 4)), self.r[Reg.KH] * self.r[Reg.KW])

    def avg(self) -> None:
        counted = [(self.r[name] >> 16, self.r[name] & 0xFFFF) for name in (Reg.FRONT, Reg.BEHIND)]
        results, kernel, stride, _, padding = self._pairs()
        size = self.r[Reg.H], self.r[Reg.L]
        count = window_counts(size, results, kernel, stride, padding, *counted)
        if np.min(count) < 1:
            raise Fault("a window counts no element")
        sums = self._windows(0).sum(axis=(3, 4))
        self._end((2 * sums + count) // (2 * count), self.r[Reg.KH] * self.r[Reg.KW])

    def add(self) -> None:
        first = self._operand(Reg.IN) << self._check(Reg.SHIFT_A, 0, 24)
        self._end(first + (self._operand(Reg.W) << self._check(Reg.SHIFT_B, 0, 24)))

    def mul(self) -> None:
        self._end(self._operand(Reg.IN) * self._operand(Reg.W))

    def copy(self) -> None:
        self._end(self._operand(Reg.IN))
