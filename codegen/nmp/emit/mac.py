"""MAC instructions: the OUT tile that all of them name, and requantization."""

from __future__ import annotations

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.nmp.emit.commands import Compute, Nodes, registers
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.table import FinishPlace
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.sim.nmp.xnmp import Initialise, MacRegister

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


def first_bias(layer: FixedConv) -> Initialise:
    """How a convolution begins its sums: from biases, or from those in filter words."""
    return Initialise.BIAS if layer.filter_shifts is None else Initialise.FILTER


def multiplying(layer: FixedConv, is_dense: bool) -> tuple[str, dict[MacRegister, Operand]]:
    """The instruction of a convolution's or fully connected layer's products, and the register that
    it takes for its filters' zero point."""
    mnemonic = "nmp_percept" if is_dense else "nmp_conv2d"
    if not layer.weight_zero_point:
        return mnemonic, {}
    return f"{mnemonic}z", {MacRegister.SHIFT_B: layer.weight_zero_point}


def requantize_conv(
    layer: FixedConv,
    out: OutTile,
    bias: Expression,
    element_bytes: int,
    place: FinishPlace | None = None,
    first_filter: Expression | None = None,
) -> Nodes:
    """`requantize` as ``layer`` says; index ``bias`` of the bias buffer belongs to the tile's first
    filter, which is ``first_filter`` of the layer."""
    return requantize(
        out, layer.shift, layer.low, layer.high, element_bytes,
        None if layer.filter_shifts is None else bias, place, first_filter,
    )  # fmt: skip


def requantize(
    out: OutTile,
    shift: int,
    low: int,
    high: int,
    element_bytes: int,
    filter_words: Expression | None = None,
    place: FinishPlace | None = None,
    first_filter: Expression | None = None,
) -> Nodes:
    """Requantizes the OUT tile in place and waits for it; ``filter_words`` is the index of the
    first word in the bias buffer, if shifts are those of filters. ``place`` is a table behind that,
    slopes of negative accumulators, or scale words in place of the shift. ``element_bytes`` are
    those of the results."""
    smallest, largest = element_limits(element_bytes)
    values: dict[MacRegister, Operand] = {
        **out,
        MacRegister.ELEMENT_BYTES: element_bytes,
        MacRegister.SHIFT: min(max(shift, LEAST_SHIFT), MOST_SHIFT),
        MacRegister.LOW: min(max(low, smallest), largest),
        MacRegister.HIGH: min(max(high, smallest), largest),
    }
    mnemonic = "nmp_activation"
    sub: int | None = None
    if place is not None:
        mnemonic, sub, more = place.form(first_filter)
        values |= more
    if filter_words is not None:
        mnemonic += "f"
        values[MacRegister.BIAS_ADDRESS] = filter_words
    return (Compute(mnemonic, sub, MAC_DONE, registers(values)), wait(MAC_DONE))
