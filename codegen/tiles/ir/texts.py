"""Execution plans in text as a capability of tile machines (`backend.PlanTexts`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan.loops.plan import LoopPlan, Step
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.tiles.ir.document import Ir
from tvm_npu.codegen.tiles.ir.read import read_ir
from tvm_npu.codegen.tiles.ir.run import assemble_ir, check_fits, random_bytes, random_layer
from tvm_npu.codegen.tiles.ir.write import write_ir, write_steps
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import TileMachine


class TileTexts:
    def write(
        self, problem: ConvProblem, plan: LoopPlan, machine: TileMachine, comment: tuple[str, ...]
    ) -> str:
        return write_ir(problem, plan, machine, comment)

    def write_steps(
        self,
        problem: ConvProblem,
        steps: Iterable[Step],
        machine: TileMachine,
        comment: tuple[str, ...],
    ) -> str:
        return write_steps(problem, steps, machine, comment)

    def read(self, text: str) -> Ir:
        return read_ir(text)

    def precision(self, read: Ir, machine: TileMachine) -> Precision:
        """The one with the text's widths of elements and sums; of both the machine's default."""
        wanted = (read.problem.element_bytes, read.problem.accumulator_bytes)
        precisions: tuple[Precision, ...] = (machine.default_precision, "int8", "int16")
        for precision in precisions:
            widths = machine.element_bytes(precision), machine.accumulator_bytes(precision)
            if widths == wanted:
                return precision
        return machine.default_precision

    def check_fits(self, read: Ir, machine: TileMachine) -> None:
        check_fits(read, machine)

    def random_bytes(self, read: Ir, element_bytes: Literal[1, 2]) -> int:
        return random_bytes(read.problem, element_bytes)

    def random_layer(
        self, read: Ir, element_bytes: Literal[1, 2], seed: int, name: str
    ) -> FixedGraph:
        return random_layer(read.problem, element_bytes, seed, name)

    def program(self, read: Ir, fixed: FixedGraph, machine: TileMachine) -> Program:
        return assemble_ir(read, fixed, machine)
