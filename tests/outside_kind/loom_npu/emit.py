"""Layers as instructions of the Loom: tiles come, are worked on, and go, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from loom_npu.isa import LOOM_ISA, Pad, Reg, Segment
from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.plan.loops.plan import LoopPlan, Step, in_extent, steps
from tvm_npu.codegen.plan.loops.room import Place, tile_places
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.layer_words import Operands
from tvm_npu.sim.machine_parts import BIAS_BYTES

Range = tuple[int, int]  # begin, count
Box = tuple[Range, Range, Range]
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Planes:
    """What a layer asks that makes each plane of its output from the same plane of its inputs."""

    source: Shape
    target: Shape
    operands: int
    element_bytes: int

    def bytes_each(self) -> tuple[int, int]:
        """Of the planes that one plane of the output is made of, and of that."""
        size = self.element_bytes
        return self.operands * prod(self.source[1:]) * size, prod(self.target[1:]) * size


@dataclass(frozen=True)
class PlanePlan:
    """The answer: so many planes are worked on at a time."""

    planes: int
    prediction: None = None
    planner: str = ""


class Writer:
    """Writes layers; knows what the registers hold, and sets only what changes."""

    def __init__(self, machine: LoopMachine) -> None:
        self.machine, self.words = machine, list[int]()
        self.held: dict[Reg, int] = dict.fromkeys(Reg, 0)

    def layer(self, one: Any, at: Operands) -> list[int]:
        self.words = []
        write = self._conv if isinstance(one.problem, ConvProblem) else self._planes
        write(one.layer, one.problem, one.plan, at)
        return self.words

    def do(self, mnemonic: str, registers: Mapping[Reg, int], **operands: int) -> None:
        for rd, value in registers.items():
            if self.held[rd] != value:
                low, high = value & 0xFFFF, value >> 16 & 0xFFFF
                self.words.append(LOOM_ISA.encode("set", rd=rd, imm=low))
                if high:
                    self.words.append(LOOM_ISA.encode("high", rd=rd, imm=high))
                self.held[rd] = value
        self.words.append(LOOM_ISA.encode(mnemonic, **operands))

    def _move(self, pad: Pad, place: int, box: Box, shape: Shape, size: int, address: int) -> None:
        """A box of a tensor of elements of ``size`` bytes comes; to OUTPUT: goes."""
        (first, count), (row, rows), (column, columns) = box
        pitch = shape[2] * size
        begin = address + (first * shape[1] + row) * pitch + column * size
        run, plane = columns * size, shape[1] * pitch
        if run == pitch:  # rows lie one behind the other, and so may planes
            run, rows = run * rows, 1
            if run == plane:
                run, count = run * count, 1
        names = "ADDRESS PLACE RUN_BYTES RUNS RUN_STRIDE GROUPS GROUP_STRIDE"
        registers = _of(names, begin, place, run, rows, pitch, count, plane)
        segment = Segment.ACTIVATIONS if pad == Pad.INPUT else Segment.CONSTANTS
        loads = {} if pad == Pad.OUTPUT else {"pad": pad, "segment": segment}
        self.do("load" if loads else "store", registers, **loads)

    def _conv(self, layer: Any, problem: ConvProblem, plan: LoopPlan, at: Operands) -> None:
        (place,) = tile_places(problem, plan, self.machine)
        filters = problem.filters // problem.groups
        depth, taps = problem.channels // problem.groups, prod(problem.kernel)
        weights, size = (problem.filters, 1, depth * taps), problem.element_bytes
        for step in steps(problem, plan):
            first = (step.groups[0] * filters + step.filters[0], step.filters[1])
            out = (first, step.rows, step.columns)
            if step.loads_weights:
                box = (first, (0, 1), (step.channels[0] * taps, step.channels[1] * taps))
                self._move(Pad.WEIGHT, place.weight_offset, box, weights, size, at.weight)
            if step.first:
                self.do("zero", _result(out, place.out_offset))
            self._mac(problem, step, place, _result(out, place.out_offset), at)
            if step.last:
                self._finish(layer, problem, out, place, at)

    def _mac(
        self, problem: ConvProblem, step: Step, place: Place, out: Mapping[Reg, int], at: Operands
    ) -> None:
        rows = in_extent(problem, *step.rows, "R")
        columns = in_extent(problem, *step.columns, "C")
        if not rows[1] or not columns[1]:
            return  # nothing but padding
        if step.loads_in:
            begin = step.groups[0] * (problem.channels // problem.groups) + step.channels[0]
            shape = (problem.channels, problem.in_rows, problem.in_columns)
            box, size = ((begin, step.channels[1]), rows[:2], columns[:2]), problem.element_bytes
            self._move(Pad.INPUT, place.in_offset, box, shape, size, at.inputs[0])
        window = _window(problem.kernel, problem.stride, problem.dilation, (rows[2], columns[2]))
        tile = _of("IN N H L", place.in_offset, step.channels[1], rows[1], columns[1])
        self.do("mac", {**out, **tile, **window, Reg.W: place.weight_offset})

    def _finish(
        self, layer: Any, problem: ConvProblem, out: Box, place: Place, at: Operands
    ) -> None:
        shape, size = (problem.filters, problem.rows, problem.columns), problem.element_bytes
        biases = (out[0], (0, 1), (0, 1))
        self._move(Pad.BIAS, 0, biases, (problem.filters, 1, 1), BIAS_BYTES, at.bias)
        registers = {**_result(out, place.out_offset), **_end(layer), Reg.BIAS: 0}
        if problem.has_residual:
            self._move(Pad.INPUT, place.residual_offset, out, shape, size, at.inputs[1])
            shifts = _of("SHIFT_A SHIFT_B", layer.accumulator_shift, layer.residual_shift)
            self.do("residual", {**registers, **shifts, Reg.IN: place.residual_offset})
        else:
            self.do("finish", registers)
        self._move(Pad.OUTPUT, place.out_offset, out, shape, size, at.output)

    def _planes(self, layer: Any, asked: Planes, plan: PlanePlan, at: Operands) -> None:
        size = asked.element_bytes
        behind = plan.planes * prod(asked.source[1:]) * size
        for begin in range(0, asked.target[0], plan.planes):
            planes = (begin, min(plan.planes, asked.target[0] - begin))
            box, out = ((planes, (0, s[1]), (0, s[2])) for s in (asked.source, asked.target))
            for number, address in enumerate(at.inputs):
                self._move(Pad.INPUT, number * behind, box, asked.source, size, address)
            registers = {**_result(out, 0), **_end(layer)}
            registers |= _of("IN N H L", 0, planes[1], *asked.source[1:])
            if hasattr(layer, "kind"):
                registers |= _window(layer.kernel, layer.stride, (1, 1), layer.padding[:2])
                up, left, down, right = (n * layer.count_include_pad for n in layer.counted_padding)
                counted = _of("FRONT BEHIND", up << 16 | left, down << 16 | right)
                self.do(layer.kind, {**registers, **counted})
            else:
                second = _of("W SHIFT_A SHIFT_B", behind, layer.shift_a, layer.shift_b)
                self.do(layer.op, {**registers, **second})
            self._move(Pad.OUTPUT, 0, out, asked.target, size, at.output)


def _of(names: str, *values: int) -> dict[Reg, int]:
    return {Reg[name]: value for name, value in zip(names.split(), values, strict=True)}


def _result(box: Box, place: int) -> dict[Reg, int]:
    return _of("OUT M R C", place, box[0][1], box[1][1], box[2][1])


def _end(layer: Any) -> dict[Reg, int]:
    return _of("SHIFT LOW HIGH", layer.shift, layer.low, layer.high)


def _window(kernel: Range, stride: Range, dilation: Range, padding: Range) -> dict[Reg, int]:
    return _of("KH KW SH SW DH DW TOP LEFT", *kernel, *stride, *dilation, *padding)
