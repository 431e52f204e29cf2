"""The memory outside of the chip, as every simulator offers it: the bytes of one image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError


def check_room(machine: MachineDescription, dram_bytes: int) -> None:
    """SimError when an image of ``dram_bytes`` is larger than the machine's DRAM."""
    if dram_bytes > machine.dram.capacity_bytes:
        raise SimError(
            f"the image needs {dram_bytes} bytes of DRAM; {machine.name} has "
            f"{machine.dram.capacity_bytes}"
        )


def check_code(
    machine: MachineDescription, address: int, words: int, dram_bytes: int
) -> None:
    """SimError when code does not lie whole, and at a multiple of 4, in an image of
    ``dram_bytes``."""
    base = machine.dram.base_address
    end = address + 4 * words
    if address < base or end > base + dram_bytes or address % 4:
        raise SimError(
            f"code at {address:#x}..{end:#x} does not lie, aligned to 4 bytes, in the image at "
            f"{base:#x}..{base + dram_bytes:#x}"
        )


def write_bytes(
    dram: NDArray[np.uint8], base_address: int, address: int, data: NDArray[Any]
) -> None:
    """Copies the bytes of ``data`` to ``address`` of an image that begins at ``base_address``.
    Raises SimError when they leave the image."""
    offset = address - base_address
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if offset < 0 or offset + flat.size > dram.size:
        raise SimError(
            f"{flat.size} bytes at {address:#x} do not lie in the image's {dram.size} bytes of DRAM"
        )
    dram[offset : offset + flat.size] = flat
