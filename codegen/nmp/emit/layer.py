"""What a layer's generator gets and gives: operands in memory, and a command tree."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.commands import Nodes, when
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters, Location
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class ConstantsPlace:
    """Constants beside the biases: where they lie, and the bytes of the bias buffer they take."""

    location: Location
    size_bytes: int


@dataclass(frozen=True)
class Operands:
    """Where a layer's tensors and constants lie."""

    inputs: tuple[Location, ...]
    output: Location
    weight: Location | None = None
    bias: Location | None = None
    window_weight: Location | None = None
    window_bias: Location | None = None
    point_weight: Location | None = None
    point_bias: Location | None = None
    table: ConstantsPlace | None = None


@dataclass(frozen=True)
class LayerCode:
    """One layer at the command level: the tree that all cores run and the words they read."""

    parameters: LayerParameters
    nodes: Nodes
    early: Nodes = ()
    """Loads of constants for which nobody has to wait: they run in front of the barrier that ends
    the layer before."""


def finish(parameters: LayerParameters, nodes: Nodes, early: Nodes = ()) -> LayerCode:
    """``nodes`` for active cores; the others go straight to the barrier."""
    activity = parameters.activity()
    return LayerCode(
        parameters, when(activity, "!=", nodes), when(activity, "!=", early) if early else ()
    )


def require_fit(layer: str, what: str, needed_bytes: int, machine: NmpMachine, memory: str) -> None:
    """EmitError when a tile of a plan does not fit its memory."""
    available = getattr(machine.memories, f"{memory}_bytes")
    if needed_bytes > available:
        raise EmitError(
            f"layer {layer!r}: {what} takes {needed_bytes} bytes of {memory.upper()}, which has "
            f"{available}"
        )
