"""The constants of the linear DMA cost, measured on the simulated controller.

T = C + s p + n t (double-buffer tiling paper, Equation 1) is what a planner estimates with. The
sample is a fixed set of boxes: rows, channels and columns of tile sizes from one row of some
elements to whole on-chip buffers. s counts the breaks in the addresses that there are
(`address_jumps`); counting every row as one, as Equation 2 does, also where full rows follow each
other without a gap, fits ten times worse.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tvm_npu.codegen.parts.pl330 import (
    Box,
    Direction,
    Tensor3d,
    TransferLimits,
    address_jumps,
    build_transfer,
)
from tvm_npu.sim.parts.pl330 import DmacTiming, LinearCost, TimedTransfer, fit, run_program

TENSORS = ((64, 96, 128), (256, 48, 64), (512, 12, 16))
"""[channels, rows, columns] of the sampled feature maps: FlowNetS's sizes."""
BOX_CHANNELS = (1, 4, 16)
BOX_ROWS = (1, 3, 12)
COLUMN_CUTS = (1, 2, 4)
LARGEST_TILE = 1 << 17
DDR, ON_CHIP = 0x0010_0000, 0xFFFC_0000


@lru_cache(maxsize=64)
def measure_linear_cost(
    timing: DmacTiming, element_bytes: int = 4, direction: Direction = "load"
) -> LinearCost:
    """C, p and t in the cycles of ``timing``, fitted to `sample_transfers`."""
    return fit(sample_transfers(timing, element_bytes, direction))


def sample_transfers(
    timing: DmacTiming, element_bytes: int = 4, direction: Direction = "load"
) -> list[TimedTransfer]:
    """Simulated transfers of boxes that start in the middle of their tensors."""
    limits = TransferLimits(timing.bus_bytes, timing.program_bytes)
    on_chip = np.zeros(LARGEST_TILE, np.uint8)
    found = []
    for channels, rows, columns in TENSORS:
        tensor = Tensor3d(DDR, channels, rows, columns, element_bytes)
        ddr = np.zeros(tensor.size_bytes, np.uint8)
        for box in _boxes(tensor):
            program = build_transfer(
                tensor, box, ON_CHIP, direction=direction, event=0, limits=limits
            )
            cycles, _ = run_program(
                program, timing, ddr, on_chip, ddr_base=DDR, on_chip_base=ON_CHIP
            )
            found.append(TimedTransfer(address_jumps(tensor, box), box.elements, cycles))
    return found


def _boxes(tensor: Tensor3d) -> list[Box]:
    boxes = [
        Box(tensor.channels // 2, rows, tensor.columns // cut * (cut - 1), channels, rows, width)
        for channels in BOX_CHANNELS
        for rows in BOX_ROWS
        for cut in COLUMN_CUTS
        for width in (tensor.columns // cut,)
        if 2 * rows <= tensor.rows or rows == 1
    ]
    return [box for box in boxes if box.elements * tensor.element_bytes <= LARGEST_TILE]
