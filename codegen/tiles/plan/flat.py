"""Elementwise layers: flat runs of the tensors, as long as the memories hold."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.tiles.plan.sizes import Sizes, even, largest, sizes
from tvm_npu.sim.tiles.isa import LARGEST_EXTENT
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class FlatShape:
    """``operands`` (1 or 2) tensors of ``elements`` each, and a result of as many; ``stacked`` ones
    lie in the input memory, one behind the other."""

    elements: int
    operands: int
    element_bytes: int
    stacked: bool = False


@dataclass(frozen=True)
class FlatTiles:
    tile_elements: int
    buffers: int


def flat_tiles(shape: FlatShape, machine: TileMachine) -> FlatTiles | Infeasible:
    """All at once where that fits, else two buffers with even parts."""
    if _fit(shape, shape.elements, sizes(machine, 1)):
        return FlatTiles(shape.elements, 1)
    room = sizes(machine, 2)
    most = largest(shape.elements, lambda n: _fit(shape, n, room))
    if most == 0:
        return Infeasible(
            "memory", shape.element_bytes, room.first, "one element of each operand",
            "use a machine with a larger memory",
        )  # fmt: skip
    return FlatTiles(even(shape.elements, most), 2)


def _fit(shape: FlatShape, elements: int, room: Sizes) -> bool:
    if elements > LARGEST_EXTENT:
        return False
    size = elements * shape.element_bytes
    if shape.stacked:
        return room.fits(shape.operands * size, 0, size)
    return room.fits(size, size if shape.operands > 1 else 0, size)
