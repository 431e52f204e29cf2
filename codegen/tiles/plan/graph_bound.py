"""At which rate values reach the chip of a tile machine at best, for the bound of a region."""

from __future__ import annotations

from math import inf

from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import Core, TileMachine

VALUES_PER_ACCESS = 1.5
"""Of a core's commands at most: one that adds two values and stores the sum counts two accesses."""


def most_bytes_per_cycle(machine: TileMachine, precision: Precision) -> float:
    """Of the mover or the DMA controller and, beside it, of a core, which may fetch and store
    values by itself."""
    rate = machine.dram_bytes_per_cycle
    assert rate is not None, "a machine has a mover or a DMA controller"
    if machine.core is None:
        return rate
    access = _least_access_cycles(machine.core)
    size = machine.element_bytes(precision)
    return rate + VALUES_PER_ACCESS * size / access if access else inf


def _least_access_cycles(core: Core) -> float:
    """Wherever the value lies."""
    if core.cache_bytes:
        return core.hit_cycles
    return min(core.chip_access_cycles, core.dram_access_cycles)
