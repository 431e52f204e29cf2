"""MAC instructions: the OUT tile that all of them name, and requantization."""

from __future__ import annotations

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.nmp.emit.commands import Compute, Nodes, registers
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.sim.nmp.xnmp import MacRegister

OutTile = dict[MacRegister, Operand]
"""The registers that say where the OUT tile lies in MB2 and how large it is."""


def out_tile(
    channels: Operand,
    rows: Operand,
    columns: Operand,
    element_bytes: int,
    address: Operand = 0,
) -> OutTile:
    """The OUT tile [channels, rows, columns] at element ``address`` of MB2."""
    return {
        MacRegister.ELEMENT_BYTES: element_bytes,
        MacRegister.OUT_ADDRESS: address,
        MacRegister.OUT_CHANNELS: channels,
        MacRegister.OUT_ROWS: rows,
        MacRegister.OUT_COLUMNS: columns,
    }


MOST_SHIFT, LEAST_SHIFT = 62, -47
"""Beyond these, accumulators of at most 63 bits give the same results as at them."""


def filter_words(layer: FixedConv, bias: Expression) -> OutTile:
    """The registers of MAC instructions that read the filter words of a layer, the tile's first at
    index ``bias``; none for a layer that has biases."""
    if layer.filter_shifts is None:
        return {}
    return {MacRegister.FILTER_WORDS: 1, MacRegister.BIAS_ADDRESS: bias}


def requantize(out: OutTile, shift: int, low: int, high: int, element_bytes: int) -> Nodes:
    """Requantizes the OUT tile in place and waits for it."""
    smallest, largest = element_limits(element_bytes)
    values: dict[MacRegister, Operand] = {
        **out,
        MacRegister.SHIFT: min(max(shift, LEAST_SHIFT), MOST_SHIFT),
        MacRegister.LOW: min(max(low, smallest), largest),
        MacRegister.HIGH: min(max(high, smallest), largest),
    }
    return (Compute("nmp_activation", None, MAC_DONE, registers(values)), wait(MAC_DONE))
