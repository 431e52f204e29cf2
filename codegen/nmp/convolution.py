"""Convolution and fully connected layers: a ConvPlan as a command tree."""

from __future__ import annotations

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedConv
from tvm_npu.codegen.nmp.grouped import Grouped
from tvm_npu.codegen.nmp.layer import LayerCode, Operands
from tvm_npu.codegen.nmp.multicast import Multicast
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem
from tvm_npu.sim.machine import Machine


def convolution(
    layer: FixedConv, problem: ConvProblem, plan: ConvPlan, machine: Machine, operands: Operands
) -> LayerCode:
    """The command tree of one layer. Raises EmitError for a plan that the machine cannot run."""
    slices = plan.row_slices * plan.filter_slices
    if slices > machine.cores.tles:
        raise EmitError(
            f"layer {layer.name!r}: the plan uses {slices} TLEs, the machine has "
            f"{machine.cores.tles}"
        )
    if plan.mode == "grouped":
        return Grouped(layer, problem, plan, machine, operands).code()
    return Multicast(layer, problem, plan, machine, operands).code()
