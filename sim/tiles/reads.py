"""Which configuration registers an instruction reads: for messages about it."""

from __future__ import annotations

from tvm_npu.sim.tiles.isa import TileRegister

_R = TileRegister
_TRANSFER = (
    _R.ADDRESS, _R.CHIP_OFFSET, _R.RUN_BYTES, _R.COUNT_INNER, _R.STRIDE_INNER, _R.COUNT_OUTER,
    _R.STRIDE_OUTER,
)  # fmt: skip
_RESULT = (_R.OUT_OFFSET, _R.OUT_CHANNELS, _R.OUT_ROWS, _R.OUT_COLUMNS)
_TILE = (_R.IN_OFFSET, _R.IN_CHANNELS, _R.IN_ROWS, _R.IN_COLUMNS)
_WINDOW = (
    _R.KERNEL_ROWS, _R.KERNEL_COLUMNS, _R.STRIDE_ROWS, _R.STRIDE_COLUMNS, _R.PAD_TOP, _R.PAD_LEFT,
)  # fmt: skip
_REQUANTIZE = (_R.SHIFT, _R.LOW, _R.HIGH, _R.SHIFT_A, _R.SHIFT_B)

READS: dict[str, tuple[TileRegister, ...]] = {
    "tload": _TRANSFER,
    "tstore": _TRANSFER,
    "tconv": (
        *_TILE, _R.W_OFFSET, *_RESULT, *_WINDOW, _R.DILATION_ROWS, _R.DILATION_COLUMNS, _R.GROUPS,
        _R.TAPS_AT_ONCE, _R.OPERANDS,
    ),
    "tfinish": (*_RESULT, _R.IN_OFFSET, _R.BIAS_OFFSET, *_REQUANTIZE, _R.OPERANDS),
    "tpool": (
        *_TILE, *_RESULT, *_WINDOW, _R.LOW, _R.HIGH, _R.ORIGIN_ROW, _R.ORIGIN_COLUMN,
        _R.COUNT_ROW_BEGIN, _R.COUNT_ROW_END, _R.COUNT_COLUMN_BEGIN, _R.COUNT_COLUMN_END,
        _R.OPERANDS,
    ),
    "tvec": (*_RESULT, _R.IN_OFFSET, _R.W_OFFSET, *_REQUANTIZE, _R.OPERANDS),
    "tfill": (*_RESULT, _R.FILL, _R.OPERANDS),
    "tgo": (_R.ADDRESS, _R.CHIP_OFFSET, _R.EXTENT_BYTES, _R.MOVED_BYTES, _R.PROGRAM),
}  # fmt: skip
