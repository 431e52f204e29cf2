"""The Loom's simulator: executes the words of a program, one after the other, on bytes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from loom_npu.isa import LOOM_ISA, Pad, Reg, Segment
from loom_npu.machine import LoomMachine
from tvm_npu.sim.dram import check_room, write_bytes
from tvm_npu.sim.image import ProgramImage
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tally import Tally
from tvm_npu.sim.traps import Place, Trap

Worked = tuple[float, int]
"""(cycles, MACs)."""
LIMITS = {
    Reg.KH: (1, 255), Reg.KW: (1, 255), Reg.SH: (1, 255), Reg.SW: (1, 255), Reg.DH: (1, 255),
    Reg.DW: (1, 255), Reg.R: (1, 4096), Reg.C: (1, 4096), Reg.TOP: (0, 255), Reg.LEFT: (0, 255),
}  # fmt: skip
"""Of what `mac`, `max` and `avg` read."""


class Fault(Exception):
    """What a Loom does not do; the face of the simulator makes a trap of it."""


class Engine:
    """Registers, scratchpads and memory. A method with the name of an instruction executes it."""

    def __init__(self, machine: LoomMachine, dtype: str, dram: Any, segments: Any) -> None:
        self.machine, self.dtype, self.dram = machine, np.dtype(dtype), dram
        self.segments = segments
        pads = machine.scratchpads
        sizes = pads.input_bytes, pads.weight_bytes, pads.output_bytes, pads.bias_bytes
        self.pads = [np.zeros(size, np.uint8) for size in sizes]
        self.r = [0] * len(Reg)

    def set(self, rd: int, imm: int) -> Worked:
        self.r[rd] = imm
        return 1.0, 0

    def high(self, rd: int, imm: int) -> Worked:
        value = (self.r[rd] & 0xFFFF) | imm << 16
        self.r[rd] = value - (1 << 32) if value >> 31 else value
        return 1.0, 0

    def load(self, pad: int, segment: int) -> Worked:
        at, cycles = self._runs(Segment(segment))
        self._bytes(Pad(pad), Reg.PLACE, len(at))[:] = self.dram[at]
        return cycles, 0

    def store(self) -> Worked:
        at, cycles = self._runs(Segment.ACTIVATIONS)
        self.dram[at] = self._bytes(Pad.OUTPUT, Reg.PLACE, len(at))
        return cycles, 0

    def _runs(self, segment: Segment) -> tuple[Any, float]:
        """Where the bytes of a transfer lie in DRAM, in the order in which they go; its cycles."""
        counts = self._of(Reg.GROUPS, Reg.RUNS, Reg.RUN_BYTES)
        strides = (*self._of(Reg.GROUP_STRIDE, Reg.RUN_STRIDE), 1)
        first, (begin, size) = self.r[Reg.ADDRESS], self.segments[segment]
        last = first + sum((n - 1) * step for n, step in zip(counts, strides, strict=True))
        moved = counts[0] * counts[1] * counts[2]
        if min(*counts, *strides) < 1 or first < 0 or last >= size:
            raise Fault(f"bytes {first} to {last} of {segment.name}, which has {size}")
        if moved > max(map(len, self.pads)):
            raise Fault(f"{moved} bytes in one transfer: more than every scratchpad has")
        a, b, c = (np.arange(n) * step for n, step in zip(counts, strides, strict=True))
        mover = self.machine.mover
        cycles = mover.setup_cycles + counts[0] * counts[1] * mover.run_cycles
        at = begin + first + a[:, None, None] + b[:, None] + c
        return at.reshape(-1), cycles + moved / mover.bytes_per_cycle

    def _of(self, *names: Reg) -> tuple[int, ...]:
        return tuple(self.r[name] for name in names)

    def _check(self, name: Reg, low: int, high: int) -> int:
        value = self.r[name]
        if not low <= value <= high:
            raise Fault(f"{name.name} is {value}; allowed are {low} to {high}")
        return value

    def _bytes(self, pad: Pad, place: Reg, count: int) -> Any:
        begin, memory = self.r[place], self.pads[pad]
        if not (0 <= begin and 0 < count and begin + count <= len(memory)):
            raise Fault(f"bytes {begin} to {begin + count} of {pad.name}, which has {len(memory)}")
        return memory[begin : begin + count]

    def _tile(self, pad: Pad, place: Reg, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """A view of a tile. Shapes are products of registers: checked as Python's integers."""
        kind, count = np.dtype(dtype or self.dtype), 1
        for extent in shape:
            count *= max(extent, 0)
        if self.r[place] % kind.itemsize:
            raise Fault(f"{place.name} is {self.r[place]}; a multiple of {kind.itemsize} is needed")
        return self._bytes(pad, place, count * kind.itemsize).view(kind).reshape(shape)

    def _operand(self, place: Reg) -> Any:
        shape = self._of(Reg.M, Reg.R, Reg.C)
        return self._tile(Pad.INPUT, place, shape).astype(np.int64)

    def _sums(self) -> Any:
        return self._tile(Pad.OUTPUT, Reg.OUT, self._of(Reg.M, Reg.R, Reg.C), np.int64)

    def _worked(self, operations: int, macs: int = 0) -> Worked:
        engine = self.machine.engine
        return engine.setup_cycles + -(-operations // engine.lanes), macs

    def _windows(self, fill: int) -> Any:
        """[N, R, C, KH, KW]: what lies under each element of the result."""
        for name, (low, high) in LIMITS.items():
            self._check(name, low, high)
        x = self._tile(Pad.INPUT, Reg.IN, self._of(Reg.N, Reg.H, Reg.L)).astype(np.int64)
        around, view = [(0, 0)], []
        for size, names in zip(x.shape[1:], (
            (Reg.R, Reg.SH, Reg.KH, Reg.DH, Reg.TOP), (Reg.C, Reg.SW, Reg.KW, Reg.DW, Reg.LEFT),
        ), strict=True):  # fmt: skip
            results, stride, taps, dilation, before = self._of(*names)
            span = (taps - 1) * dilation + 1
            reach = (results - 1) * stride + span
            around.append((before, max(reach - before - size, 0)))
            view.append((reach, span, stride, dilation))
        (rows, *_), (columns, *_) = view
        x = np.pad(x, around, constant_values=fill)[:, :rows, :columns]
        spread = sliding_window_view(x, (view[0][1], view[1][1]), axis=(1, 2))
        return spread[:, :: view[0][2], :: view[1][2], :: view[0][3], :: view[1][3]]

    def zero(self) -> Worked:
        self._sums()[:] = 0
        return self._worked(self._sums().size)

    def mac(self) -> Worked:
        filters, channels, *taps = self._of(Reg.M, Reg.N, Reg.KH, Reg.KW)
        x = self._windows(0).astype(np.float64)  # exact: sums of a tile stay below 2**53
        w = self._tile(Pad.WEIGHT, Reg.W, (filters, channels, *taps)).astype(np.float64)
        self._sums()[:] += np.tensordot(w, x, ((1, 2, 3), (0, 3, 4))).astype(np.int64)
        lanes, each = self.machine.engine.lanes, x.size
        return self._worked(-(-filters // lanes) * lanes * each, filters * each)

    def _end(self, values: Any, operations: int = 1) -> Worked:
        """Round half up, saturate, clip, write."""
        shift, limits = self._check(Reg.SHIFT, -24, 62), np.iinfo(self.dtype)
        values = (values + (1 << shift >> 1)) >> shift if shift > 0 else values << -shift
        values = np.clip(values, limits.min, limits.max)
        result = self._tile(Pad.OUTPUT, Reg.OUT, self._of(Reg.M, Reg.R, Reg.C))
        result[:] = np.clip(values, *self._of(Reg.LOW, Reg.HIGH))
        return self._worked(values.size * operations)

    def _shifted(self, values: Any, amount: Reg) -> Any:
        return values << self._check(amount, 0, 24)

    def _biased(self) -> Any:
        biases = self._tile(Pad.BIASES, Reg.BIAS, self._of(Reg.M), np.int32)
        return self._sums() + biases.astype(np.int64)[:, None, None]

    def finish(self) -> Worked:
        return self._end(self._biased())

    def residual(self) -> Worked:
        sums = self._shifted(self._biased(), Reg.SHIFT_A)
        return self._end(sums + self._shifted(self._operand(Reg.IN), Reg.SHIFT_B))

    def max(self) -> Worked:
        found = self._windows(int(np.iinfo(self.dtype).min))
        return self._end(found.max(axis=(3, 4)), self.r[Reg.KH] * self.r[Reg.KW])

    def avg(self) -> Worked:
        sums = self._windows(0).sum(axis=(3, 4))
        count: Any = 1
        for axis, names in enumerate((
            (Reg.R, Reg.SH, Reg.KH, Reg.TOP, Reg.H), (Reg.C, Reg.SW, Reg.KW, Reg.LEFT, Reg.L),
        )):  # fmt: skip
            results, stride, taps, before, size = self._of(*names)
            low, high = (one >> 16 * (1 - axis) & 0xFFFF for one in self._of(*COUNTED))
            begin = np.arange(results) * stride - before
            inside = np.minimum(begin + taps, size + high) - np.maximum(begin, -low)
            count = count * np.expand_dims(inside, 1 - axis)
        if np.min(count) < 1:
            raise Fault("a window counts no element")
        return self._end((2 * sums + count) // (2 * count), self.r[Reg.KH] * self.r[Reg.KW])

    def add(self) -> Worked:
        first = self._shifted(self._operand(Reg.IN), Reg.SHIFT_A)
        return self._end(first + self._shifted(self._operand(Reg.W), Reg.SHIFT_B))

    def mul(self) -> Worked:
        return self._end(self._operand(Reg.IN) * self._operand(Reg.W))

    def copy(self) -> Worked:
        return self._end(self._operand(Reg.IN))


COUNTED = (Reg.COUNT_LOW, Reg.COUNT_HIGH)


class TrapCode(IntEnum):
    FAULT = 1


STREAMS = {Pad.INPUT: Stream.IN, Pad.WEIGHT: Stream.WEIGHT, Pad.BIASES: Stream.BIAS}
UNITS = {"set": "control", "high": "control", "load": "mover", "store": "mover", "halt": "control"}


class LoomSimulator:
    """What `tvm_npu.sim.kinds.Simulator` asks for."""

    def __init__(self, image: ProgramImage, machine: LoomMachine) -> None:
        self.image, self.machine = image, machine
        self.size = ELEMENT_BYTES[image.of_one_precision()]
        check_room(machine, image.end_address - machine.dram.base_address)
        self.dram = np.zeros(image.end_address - machine.dram.base_address, np.uint8)

    def write(self, address: int, data: Any) -> None:
        write_bytes(self.dram, self.machine.dram.base_address, address, data)

    def run(self, *, timing: bool = True) -> RunStatistics:
        code, base = self.image.code, self.machine.dram.base_address
        segments = [(one.address - base, one.size_bytes)
                    for one in (self.image.constants, self.image.activations)]  # fmt: skip
        engine = Engine(self.machine, f"<i{self.size}", self.dram, segments)
        tally = Tally(self.machine, self.image.layer_names, code.layer_of)
        for row, word in enumerate(code.words):
            layer, text = int(code.layer_of[row]), disassemble(int(word), LOOM_ISA)
            found = LOOM_ISA.decode(int(word))
            name = self.image.layer_names[layer] if layer >= 0 else ""
            place = Place(position=f"instruction {row}", index=row, instruction=text, layer=name)
            if found is None:
                raise Trap(TrapCode.FAULT, place, "no instruction")
            mnemonic, fields = found[0].mnemonic, found[1]
            if mnemonic == "halt":
                return tally.statistics(self.size, timing)
            try:
                cycles, macs = getattr(engine, mnemonic)(**fields)
            except Fault as fault:
                raise Trap(TrapCode.FAULT, place, str(fault)) from None
            tally.work(layer, UNITS.get(mnemonic, "lanes"), cycles, macs)
            if mnemonic in ("load", "store"):
                self._count(engine, tally, layer, fields)
        raise Trap(TrapCode.FAULT, place, "the code ends without halt")

    def _count(self, engine: Engine, tally: Tally, layer: int, fields: dict[str, int]) -> None:
        groups, runs, run = engine._of(Reg.GROUPS, Reg.RUNS, Reg.RUN_BYTES)
        pad = Pad(fields.get("pad", Pad.OUTPUT))
        link, stream = ("loaded", STREAMS[pad]) if fields else ("stored", Stream.OUT)
        tally.move(layer, link, stream, MEMORIES[pad], groups * runs * run, groups * runs)


MEMORIES = {Pad.INPUT: "input", Pad.WEIGHT: "weight", Pad.OUTPUT: "output", Pad.BIASES: "bias"}
