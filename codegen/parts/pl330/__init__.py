"""Channel programs for a PL-330: boxes of tensors in DDR to contiguous on-chip tiles and back."""

from tvm_npu.codegen.parts.pl330.boxes import (
    Box,
    Direction,
    Tensor3d,
    Tile,
    TransferError,
    address_jumps,
)
from tvm_npu.codegen.parts.pl330.transfer import (
    TransferLimits,
    build_transfer,
    build_transfers,
)

__all__ = [
    "Box",
    "Direction",
    "Tensor3d",
    "Tile",
    "TransferError",
    "TransferLimits",
    "address_jumps",
    "build_transfer",
    "build_transfers",
]
