"""Instruction dispatch, generated from the ISA table.

The table names a semantic function per instruction; this module writes the functions that pick
one by operation number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.nmp import (
    activation,
    convolution,
    core,
    dma_issue,
    mac,
    rescale,
    scalar,
    semaphores,
    vector,
)
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.environment import OVERWRITTEN
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import NMP_ISA

KINDS = ("value", "branch", "jump", "state")
VALUE, BRANCH, JUMP, STATE = range(4)

KIND_OF = np.array([KINDS.index(i.kind) for i in NMP_ISA.instructions], np.int64)
"""By operation number: the form of the semantic function."""

SHARED = np.array([instruction.shared for instruction in NMP_ISA.instructions])
"""By operation number: runs in global time order."""

SEMANTICS = {
    name: function
    for module in (
        scalar, core, semaphores, mac, convolution, vector, activation, rescale, dma_issue
    )
    for name, function in vars(module).items()
    if name.startswith(("rv_", "nmp_"))
}


def _chain(name: str, parameters: str, kinds: tuple[str, ...], arguments: str, last: str) -> Any:
    """A function that calls the semantic function of operation ``op``; LLVM makes it a table."""
    lines = [f"def {name}({parameters}):"]
    for number, instruction in enumerate(NMP_ISA.instructions):
        if instruction.kind in kinds:
            lines.append(f"    if op == {number}:")
            lines.append(f"        return {instruction.execute}({arguments})")
    lines.append(f"    return {last}")
    namespace = {"__name__": __name__, **SEMANTICS, "illegal": illegal}
    exec(compile("\n".join(lines), __file__, "exec"), namespace)
    return device(namespace[name])


@device
def illegal(s: Any, costs: Any, who: int, row: int) -> int:
    if s.decoded[row, 0] == OVERWRITTEN:
        return core.trap(s, who, Code.OVERWRITTEN, 0, 0, 0, 0)
    return core.trap(s, who, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)


value_of = _chain("value_of", "op, a, b, imm, pc", ("value", "jump"), "a, b, imm, pc", "0")
taken = _chain("taken", "op, a, b, imm, pc", ("branch",), "a, b, imm, pc", "False")
execute = _chain(
    "execute", "op, s, m, core, row", ("state",), "s, m, core, row", "illegal(s, m, core, row)"
)
