"""Memory that operands of tile programs take of the host while an instruction runs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.tiles.isa import TILE_ISA
from tvm_npu.sim.tiles.isa import TileRegister as Reg
from tvm_npu.sim.tiles.machine import TileMachine
from tvm_npu.sim.tiles.state import SCRATCH_ELEMENTS
from tvm_npu.sim.tiles.values_ahead import products_at, rows_of, values_at

_NUMBER_BYTES = 8
"""An element, product or sum, unpacked: float64 or int64; float32 where elements are int8."""

_INPUT = Reg.IN_ROWS, Reg.IN_COLUMNS
_WINDOW = Reg.KERNEL_ROWS, Reg.KERNEL_COLUMNS
_POSITIONS = Reg.OUT_ROWS, Reg.OUT_COLUMNS
_RESULTS = (Reg.OUT_CHANNELS, *_POSITIONS)
_COLUMNS = "columns"
_BY_GROUP = "weights", "products"
_UNPACKED: dict[str, dict[str, tuple[Reg, ...]]] = {
    "tconv": {
        "tile": (Reg.GROUPS, Reg.IN_CHANNELS, *_INPUT),
        "weights": (Reg.OUT_CHANNELS, Reg.IN_CHANNELS, *_WINDOW),
        _COLUMNS: (Reg.IN_CHANNELS, *_WINDOW, *_POSITIONS),
        "products": _RESULTS,
    },
    "tpool": {"tile": (Reg.OUT_CHANNELS, *_INPUT), "products": _RESULTS},
    "tvec": {"tile": _RESULTS, "weights": _RESULTS, "products": _RESULTS},
    "tfinish": {"tile": _RESULTS, "sums": _RESULTS, "products": _RESULTS},
    "tfill": {"products": _RESULTS},
}
"""By instruction: arrays of `State`, and the registers whose product is how many numbers one
gets."""


def unpacked_bytes(words: NDArray[np.uint32], machine: TileMachine) -> int:
    """Of each array what the instruction with most numbers fills. Operands that are as large as no
    memory of ``machine`` trap before they are unpacked."""
    decoded = TILE_ISA.decode_array(words)
    units = (unit for unit in machine.units() if machine.core is not None or unit.part != "dram")
    largest = max(SCRATCH_ELEMENTS, *(unit.capacity_bytes for unit in units))
    most: dict[str, float] = {}
    for mnemonic, arrays in _UNPACKED.items():
        rows = rows_of(decoded, mnemonic)
        for name, registers in arrays.items():
            numbers = products_at(decoded, registers, rows)
            if mnemonic == "tconv" and name in _BY_GROUP:
                numbers /= np.maximum(values_at(decoded, Reg.GROUPS, rows), 1)
            if name == _COLUMNS:
                numbers = np.minimum(numbers, SCRATCH_ELEMENTS)
            most[name] = min(float(numbers.max(initial=most.get(name, 0.0))), largest)
    return _NUMBER_BYTES * int(sum(most.values()))
