"""Who makes instructions for which part of a machine."""

from __future__ import annotations

from collections.abc import Callable

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.tiles.emit.dmac import DmacEmitter
from tvm_npu.codegen.tiles.emit.emitter import Emitter, MoverEmitter
from tvm_npu.sim.tiles.machine import TileMachine

EMITTERS: dict[str, Callable[[TileMachine, Constants], Emitter]] = {
    "mover": MoverEmitter,
    "dmac": DmacEmitter,
}
"""By the part of a machine that moves tiles. Constants may be added to."""


def emitter_for(machine: TileMachine, constants: Constants) -> Emitter:
    """Raises EmitError for a machine whose transfers nobody emits."""
    for part, make in EMITTERS.items():
        if getattr(machine, part) is not None:
            return make(machine, constants)
    known = ", ".join(EMITTERS)
    raise EmitError(f"machine {machine.name!r} moves tiles with none of: {known}")
