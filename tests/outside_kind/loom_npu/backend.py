"""What tvm-npu's code generation asks of the Loom: the object BACKEND, found by its entry point."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from loom_npu.emit import PlanePlan, Planes, Writer
from loom_npu.isa import LOOM_ISA
from loom_npu.machine import LoomMachine
from tvm_npu.codegen.backend import Emitted, PlannedGraph
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.loop_backend import LoopBackend
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPool
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.loops.machine import EngineCost, LoopMachine, SplitMemories, TransferCost
from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.program.layer_words import LayerWords
from tvm_npu.sim.machine_parts import Precision


class LoomBackend(LoopBackend[LoomMachine]):
    layer_types = frozenset({FixedConv, FixedPool, FixedElementwise})

    def loop_machine(self, machine: LoomMachine) -> LoopMachine:
        """A Loom as planners from the literature see it: three memories, one row of MAC units."""
        pads, mover, lanes = machine.scratchpads, machine.mover, machine.engine.lanes
        return LoopMachine(
            name=machine.name,
            memories=SplitMemories(pads.input_bytes, pads.weight_bytes, pads.output_bytes),
            bias_bytes=pads.bias_bytes,
            pes=(lanes, 1, 1, 1),
            macs_per_cycle=lanes,
            engine=EngineCost(1.0, machine.engine.setup_cycles, 1 / lanes),
            transfer=TransferCost(mover.setup_cycles, mover.run_cycles, 1 / mover.bytes_per_cycle),
            outside_bytes_per_cycle=mover.bytes_per_cycle,
            sums_leave=False,
            most_buffers=1,
            groups_together=False,
        )

    def accumulator_bytes(self, machine: LoomMachine, precision: Precision) -> int:
        return 8

    def problem(
        self, layer: Any, shapes: Mapping[str, Any], precision: Precision, machine: LoomMachine
    ) -> Any:
        if isinstance(layer, FixedConv):
            return self.conv_problem(layer, shapes, precision, machine)
        source, target = shapes[layer.inputs[0]], shapes[layer.output]
        size = machine.stored_element_bytes(precision)
        if isinstance(layer, FixedPool):
            return Planes(chw(source), chw(target), 1, size)
        if isinstance(layer, FixedElementwise):
            flat = (prod(target), 1, 1)
            return Planes(flat, flat, len(layer.inputs), size)
        raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")

    def plan(self, problem: Any, machine: LoomMachine, chosen: Planner, limits: TileLimits) -> Any:
        if isinstance(problem, ConvProblem):
            return chosen.plan(problem, machine)
        pads, (read, written) = machine.scratchpads, problem.bytes_each()
        planes = min(pads.input_bytes // read, pads.output_bytes // written)
        if planes:
            return PlanePlan(planes)
        memory, needed, available = max(
            ("input memory", read, pads.input_bytes), ("output memory", written, pads.output_bytes),
            key=lambda one: one[1] / one[2],
        )  # fmt: skip
        remedy = "give the machine a larger one"
        return Infeasible(memory, needed, available, "a plane does not fit", remedy)

    def emit(self, planned: PlannedGraph, machine: LoomMachine) -> Emitted:
        writer = Writer(self.loop_machine(machine))
        return LayerWords(planned, LOOM_ISA, writer.layer, [LOOM_ISA.encode("halt")])


BACKEND = LoomBackend()
