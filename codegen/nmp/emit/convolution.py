"""Convolution and fully connected layers: a ConvPlan as a command tree."""

from __future__ import annotations

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.grouped import grouped
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands
from tvm_npu.codegen.nmp.emit.multicast import multicast
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.ops import FixedCascade, FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine


def convolution(
    layer: FixedConv | FixedCascade,
    problem: ConvProblem,
    plan: ConvPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """The command tree of one layer. Raises EmitError for a plan that the machine cannot run."""
    slices = plan.row_slices * plan.column_slices * plan.filter_slices
    grid = plan.tlt_rows * plan.tlt_columns
    if slices > machine.cores.tles:
        raise EmitError(
            f"layer {layer.name!r}: the plan uses {slices} TLEs, the machine has "
            f"{machine.cores.tles}"
        )
    if machine.cores.tlts_per_tle % grid:
        raise EmitError(
            f"layer {layer.name!r}: the plan has tlt_rows * tlt_columns = {grid}, which does not "
            f"divide the machine's {machine.cores.tlts_per_tle} TLTs a TLE"
        )
    if plan.mode == "grouped":
        if problem.groups == 1:
            raise EmitError(
                f"layer {layer.name!r}: the plan's mode is grouped, which spreads whole groups, "
                f"but the layer has groups = 1; use mode multicast"
            )
        if grid * plan.column_slices * plan.buffers > 1 or plan.ring_in or plan.ring_weights:
            raise EmitError(
                f"layer {layer.name!r}: a grouped plan shares nothing and has one buffer"
            )
        if isinstance(layer, FixedCascade):
            raise EmitError(f"layer {layer.name!r}: a grouped plan has no window behind it")
        return grouped(layer, problem, plan, machine, operands)
    return multicast(layer, problem, plan, machine, operands)
