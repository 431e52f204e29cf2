"""Layers with more live variables than registers: some variables lie in words of the core's line.

A word of the line is loaded wherever its variable is read, and stored wherever it is written.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tvm_npu.codegen.nmp.emit.commands import Assign, Minimum, Product, walk
from tvm_npu.codegen.nmp.emit.expressions import Variable
from tvm_npu.codegen.nmp.emit.layer import LayerCode
from tvm_npu.codegen.nmp.emit.liveness import uses_of


def spilled(code: LayerCode, held: Set[Variable]) -> LayerCode | None:
    """``code`` with the one variable of ``held`` in memory that is read least; None where all that
    are left count loops or end them."""
    nodes = (*code.early, *code.nodes)
    set_apart = {n.variable for n in walk(nodes) if isinstance(n, Assign | Minimum | Product)}
    found = sorted((set_apart & held) - set(code.parameters.variables), key=lambda one: one.name)
    if not found:
        return None
    uses = uses_of(nodes)
    least = min(found, key=lambda one: uses[one])
    return replace(code, parameters=code.parameters.with_variable(least))
