"""Layers with more live variables than registers: some variables lie in words of the core's line.

A word of the line is loaded wherever its variable is read, and stored wherever it is written.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tvm_npu.codegen.nmp.emit.commands import Loop, assigned, walk
from tvm_npu.codegen.nmp.emit.expressions import Variable
from tvm_npu.codegen.nmp.emit.layer import LayerCode
from tvm_npu.codegen.nmp.emit.liveness import uses_of


def spilled(code: LayerCode, held: Set[Variable]) -> LayerCode | None:
    """``code`` with the one variable of ``held`` in memory that is read least; None where all that
    are left count loops or end them."""
    nodes = (*code.early, *code.nodes)
    loops = [node for node in walk(nodes) if isinstance(node, Loop)]
    turning = {variable for node in loops for variable in (node.index, node.extent)}
    uses = uses_of(nodes)
    found = (assigned(nodes) & held) - turning - set(code.parameters.variables)
    least = min(found, key=lambda one: (uses[one], one.name), default=None)
    if least is None:
        return None
    return replace(code, parameters=code.parameters.with_variable(least))
