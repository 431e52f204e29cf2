"""Layers as instructions of the Loom: tiles come, are worked on, and go, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from loom_npu.isa import LOOM_ISA, Pad, Reg, Segment
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import Step, in_extent, steps
from tvm_npu.codegen.plan.loops.room import tile_places
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.layer_words import Operands
from tvm_npu.sim.machine_parts import BIAS_BYTES

Range = tuple[int, int]
"""(begin, count)."""
Box = tuple[Range, Range, Range]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Planes:
    """What a pool asks: shapes of input and output."""

    source: Shape
    target: Shape
    element_bytes: int

    @property
    def bytes_each(self) -> tuple[int, int]:
        """Of a plane."""
        return tuple(prod(shape[1:]) * self.element_bytes for shape in (self.source, self.target))  # type: ignore[return-value]


@dataclass(frozen=True)
class Chunks:
    """What a sum, a product or a copy asks."""

    elements: int
    operands: int
    element_bytes: int

    @property
    def bytes_each(self) -> tuple[int, int]:
        """Of an element."""
        return self.operands * self.element_bytes, self.element_bytes


@dataclass(frozen=True)
class Portion:
    """The answer to both: how many planes or elements are worked on at a time."""

    count: int
    prediction: None = None
    planner: str = ""


class Writer:
    """Writes layers; knows what the registers hold, and sets only what changes."""

    def __init__(self, machine: LoopMachine) -> None:
        self.machine, self.words = machine, list[int]()
        self.held: dict[Reg, int] = dict.fromkeys(Reg, 0)

    def layer(self, one: Any, at: Operands) -> list[int]:
        self.words = []
        kinds = {ConvProblem: self._conv, Planes: self._pool, Chunks: self._flat}
        kinds[type(one.problem)](one.layer, one.problem, one.plan, at)
        return self.words

    def do(self, mnemonic: str, registers: Mapping[Reg, int], **operands: int) -> None:
        for rd, value in registers.items():
            if self.held[rd] != value:
                bits = value & 0xFFFF_FFFF
                self.words.append(LOOM_ISA.encode("set", rd=rd, imm=bits & 0xFFFF))
                if bits >> 16:
                    self.words.append(LOOM_ISA.encode("high", rd=rd, imm=bits >> 16))
                self.held[rd] = value
        self.words.append(LOOM_ISA.encode(mnemonic, **operands))

    def _move(
        self, pad: Pad, place: int, box: Box, shape: Shape, size: int, address: int,
        segment: Segment = Segment.ACTIVATIONS,
    ) -> None:  # fmt: skip
        """A box of a tensor of elements of ``size`` bytes comes; to OUTPUT: goes."""
        first, rows, columns = box
        pitch = shape[2] * size
        begin = (first[0] * shape[1] + rows[0]) * pitch + columns[0] * size
        registers = {
            Reg.ADDRESS: address + begin, Reg.PLACE: place, Reg.RUN_BYTES: columns[1] * size,
            Reg.RUNS: rows[1], Reg.RUN_STRIDE: pitch,
            Reg.GROUPS: first[1], Reg.GROUP_STRIDE: shape[1] * pitch,
        }  # fmt: skip
        if pad == Pad.OUTPUT:
            self.do("store", registers)
        else:
            self.do("load", registers, pad=pad, segment=segment)

    def _conv(self, layer: Any, problem: ConvProblem, plan: Any, at: Operands) -> None:
        size = problem.element_bytes
        depth, filters = problem.channels // problem.groups, problem.filters // problem.groups
        taps = problem.kernel[0] * problem.kernel[1]
        (place,) = tile_places(problem, plan, self.machine)
        for step in steps(problem, plan):
            first = (step.groups[0] * filters + step.filters[0], step.filters[1])
            out: Box = (first, step.rows, step.columns)
            target = _result(out, place.out_offset)
            if step.loads_weights:
                part = (step.channels[0] * taps, step.channels[1] * taps)
                self._move(Pad.WEIGHT, place.weight_offset, (first, (0, 1), part),
                           (problem.filters, 1, depth * taps), size, at.weight,
                           Segment.CONSTANTS)  # fmt: skip
            if step.first:
                self.do("zero", target)
            self._mac(problem, step, place.in_offset, place.weight_offset, target, at)
            if step.last:
                self._finish(layer, problem, out, place, at)

    def _mac(self, problem: ConvProblem, step: Step, in_: int, weight: int,
             target: Mapping[Reg, int], at: Operands) -> None:  # fmt: skip
        rows = in_extent(problem, *step.rows, "R")
        columns = in_extent(problem, *step.columns, "C")
        if not rows[1] or not columns[1]:
            return  # nothing but padding
        if step.loads_in:
            begin = step.groups[0] * (problem.channels // problem.groups) + step.channels[0]
            shape = (problem.channels, problem.in_rows, problem.in_columns)
            box = ((begin, step.channels[1]), rows[:2], columns[:2])
            self._move(Pad.INPUT, in_, box, shape, problem.element_bytes, at.inputs[0])
        tile = {Reg.IN: in_, Reg.N: step.channels[1], Reg.H: rows[1], Reg.L: columns[1]}
        window = _window(problem.kernel, problem.stride, problem.dilation, (rows[2], columns[2]))
        self.do("mac", {**target, **tile, **window, Reg.W: weight})

    def _finish(self, layer: Any, problem: ConvProblem, out: Box, place: Any,
                at: Operands) -> None:  # fmt: skip
        shape = (problem.filters, problem.rows, problem.columns)
        self._move(Pad.BIASES, 0, (out[0], (0, 1), (0, 1)), (problem.filters, 1, 1), BIAS_BYTES,
                   at.bias, Segment.CONSTANTS)  # fmt: skip
        registers = {**_result(out, place.out_offset), **_end(layer), Reg.BIAS: 0}
        if problem.has_residual:
            self._move(Pad.INPUT, place.residual_offset, out, shape, problem.element_bytes,
                       at.inputs[1])  # fmt: skip
            shifts = {Reg.SHIFT_A: layer.accumulator_shift, Reg.SHIFT_B: layer.residual_shift}
            self.do("residual", {**registers, **shifts, Reg.IN: place.residual_offset})
        else:
            self.do("finish", registers)
        self._move(Pad.OUTPUT, place.out_offset, out, shape, problem.element_bytes, at.output)

    def _pool(self, layer: Any, asked: Planes, plan: Portion, at: Operands) -> None:
        top, left, bottom, right = layer.counted_padding if layer.count_include_pad else (0,) * 4
        for begin in range(0, asked.target[0], plan.count):
            planes = (begin, min(plan.count, asked.target[0] - begin))
            boxes = [(planes, (0, s[1]), (0, s[2])) for s in (asked.source, asked.target)]
            self._move(Pad.INPUT, 0, boxes[0], asked.source, asked.element_bytes, at.inputs[0])
            self.do(layer.kind, {
                **_result(boxes[1], 0), **_end(layer),
                **_window(layer.kernel, layer.stride, (1, 1), layer.padding[:2]),
                Reg.IN: 0, Reg.N: planes[1], Reg.H: asked.source[1], Reg.L: asked.source[2],
                Reg.COUNT_LOW: top << 16 | left, Reg.COUNT_HIGH: bottom << 16 | right,
            })  # fmt: skip
            self._move(Pad.OUTPUT, 0, boxes[1], asked.target, asked.element_bytes, at.output)

    def _flat(self, layer: Any, asked: Chunks, plan: Portion, at: Operands) -> None:
        shape, size = (1, 1, asked.elements), asked.element_bytes
        second = plan.count * size
        for begin in range(0, asked.elements, plan.count):
            box = ((0, 1), (0, 1), (begin, min(plan.count, asked.elements - begin)))
            for place, address in zip((0, second), at.inputs, strict=False):
                self._move(Pad.INPUT, place, box, shape, size, address)
            shifts = {Reg.SHIFT_A: layer.shift_a, Reg.SHIFT_B: layer.shift_b}
            operands = {Reg.IN: 0, Reg.W: second}
            self.do(layer.op, {**_result(box, 0), **_end(layer), **shifts, **operands})
            self._move(Pad.OUTPUT, 0, box, shape, size, at.output)


def _result(box: Box, place: int) -> dict[Reg, int]:
    return {Reg.OUT: place, Reg.M: box[0][1], Reg.R: box[1][1], Reg.C: box[2][1]}


def _end(layer: Any) -> dict[Reg, int]:
    return {Reg.SHIFT: layer.shift, Reg.LOW: layer.low, Reg.HIGH: layer.high}


def _window(kernel: Range, stride: Range, dilation: Range, padding: Range) -> dict[Reg, int]:
    names = (Reg.KH, Reg.KW, Reg.SH, Reg.SW, Reg.DH, Reg.DW, Reg.TOP, Reg.LEFT)
    return dict(zip(names, (*kernel, *stride, *dilation, *padding), strict=True))
